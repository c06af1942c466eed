"""Write the number of a release wherever it stands, and make the results that tests try the next upgrade on.

    make release VERSION=0.3.0

It changes files, and commits nothing: look at `git diff`, then continue as SECURITY.md says.
"""

import datetime
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from babelmill import __version__
from babelmill.commands.accept import state_of
from babelmill.core.files import UserError
from babelmill.stages import STAGES
from helpers import ROOT


def number(version: str) -> tuple[int, ...]:
    """Return a version as numbers, which can be compared."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise UserError(f"VERSION={version}: a release has three numbers, such as 0.3.0")
    return tuple(map(int, version.split(".")))


def refuse(version: str) -> None:
    """Raise a UserError that says why there can be no such release now."""
    if number(version) <= number(__version__):
        raise UserError(f"VERSION={version}: the last release is {__version__}, so the next one has a higher number")
    if edited := [stage.name for stage in STAGES.values() if not state_of(stage)[0]]:
        raise UserError(f"the code of {', '.join(edited)} is edited and not accepted: see babelmill accept")
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, check=True).stdout:
        raise UserError("git status lists changes: commit them first")


def put(name: str, pattern: str, new: str, times: int = 1) -> None:
    """Replace what stands so many times in a file (0: any number of times)."""
    path = ROOT / name
    text, count = re.subn(pattern, new, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if times and count != times:
        raise UserError(f"{name} has {pattern!r} {count} times, and not {times}")
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Change the files, and make the results."""
    version, today = sys.argv[1], datetime.date.today().isoformat()
    refuse(version)
    put("workflow/babelmill/__init__.py", r"^__version__ = .*", f'__version__ = "{version}"')
    put("CITATION.cff", r"^version: .*", f"version: {version}")
    put("CITATION.cff", r"^date-released: .*", f'date-released: "{today}"')
    put("CHANGELOG.md", r"^## \[Unreleased\]$", f"## [{version}] - {today}")
    put("workflow/babelmill/code_versions.txt", r" unreleased$", f" {version}", times=0)
    # In another process, which has the new number.
    subprocess.run([sys.executable, "tests/scripts/released_results.py", "--write"], cwd=ROOT, check=True)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
