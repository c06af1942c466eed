"""Write the number of a release wherever it stands.

    make release VERSION=0.3.0

It changes files, and commits nothing: look at `git diff`, then continue as SECURITY.md says.
"""

import datetime
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from packaging.version import Version

from babelmill import __version__
from babelmill.core.files import UserError
from helpers import ROOT


def number(version: str) -> Version:
    """Return a release as a number that can be compared."""
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise UserError(f"VERSION={version}: a release has three numbers, such as 0.3.0")
    return Version(version)


def git(*arguments: str) -> str:
    """Return what a command of git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def refuse(version: str) -> None:
    """Raise a UserError that says why there can be no such release now."""
    wanted = number(version)
    if git("status", "--porcelain"):
        raise UserError("git status lists changes: commit them first")
    if wanted <= Version(__version__):
        raise UserError(f"VERSION={version}: the last release is {__version__}, so the next one has a higher number")
    if git("tag", "--list", f"v{version}"):
        raise UserError(f"VERSION={version}: git has a tag v{version}")


def replaced(version: str) -> dict[Path, str]:
    """Return the files with the number of a release, and their new text."""
    today = datetime.date.today().isoformat()
    texts: dict[Path, str] = {}
    for name, pattern, new in (
        ("workflow/babelmill/__init__.py", r"^__version__ = .*", f'__version__ = "{version}"'),
        ("CITATION.cff", r"^version: .*", f"version: {version}"),
        ("CITATION.cff", r"^date-released: .*", f'date-released: "{today}"'),
        ("CHANGELOG.md", r"^## \[Unreleased\]$", f"## [{version}] - {today}"),
    ):
        path = ROOT / name
        text = texts.get(path) or path.read_text(encoding="utf-8")
        texts[path], count = re.subn(pattern, new, text, flags=re.MULTILINE)
        if count != 1:
            raise UserError(f"{name} has {pattern!r} {count} times, and not once")
    return texts


def main() -> None:
    """Change the files."""
    version = "".join(sys.argv[1:])
    refuse(version)
    for path, text in replaced(version).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
