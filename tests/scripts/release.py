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
from helpers import ROOT


def git(*arguments: str) -> str:
    """Return what a command of git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def refuse(version: str) -> None:
    """Exit with a line that says why there can be no such release now."""
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        sys.exit(f"error: VERSION={version}: a release has three numbers, such as 0.3.0")
    if git("status", "--porcelain"):
        sys.exit("error: git status lists changes: commit them first")
    if Version(version) <= Version(__version__):
        sys.exit(f"error: VERSION={version}: the last release is {__version__}, so the next one has a higher number")
    if git("tag", "--list", f"v{version}"):
        sys.exit(f"error: VERSION={version}: git has a tag v{version}")


def write(version: str) -> None:
    """Write the number and the date into the files that name them."""
    today, texts = datetime.date.today().isoformat(), {}
    for name, pattern, new in (
        ("workflow/babelmill/__init__.py", r"^__version__ = .*", f'__version__ = "{version}"'),
        ("CITATION.cff", r"^version: .*", f"version: {version}"),
        ("CITATION.cff", r"^date-released: .*", f'date-released: "{today}"'),
        ("CHANGELOG.md", r"^## \[Unreleased\]$", f"## [{version}] - {today}"),
    ):
        text = texts.get(name) or (ROOT / name).read_text(encoding="utf-8")
        texts[name], count = re.subn(pattern, new, text, flags=re.MULTILINE)
        if count != 1:
            sys.exit(f"error: {name} has {pattern!r} {count} times, and not once")
    for name, text in texts.items():
        (ROOT / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    refuse("".join(sys.argv[1:]))
    write(sys.argv[1])
