"""Name the code that this is: the release and, in a checkout, its commit.

A training records it, for readers of a report. It is no setting, so another commit makes nothing again.
"""

import subprocess

from babelmill import __version__
from babelmill.core.places import PACKAGE, ROOT

SECONDS = 20  # the longest that git may take: the file system of a checkout may be slow
DIGITS = 12  # of a commit's hash


def code() -> str:
    """Return the release and the commit: `babelmill 1.0.0 at 3a4b5c6d7e8f`, and `, edited` if the package differs."""
    release = f"babelmill {__version__}"
    if not (ROOT / ".git").exists():  # an installed package, perhaps inside of another project's checkout
        return release

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout.strip()

    try:
        edited = ", edited" if git("status", "--porcelain", "--", str(PACKAGE)) else ""
        return f"{release} at {git('rev-parse', f'--short={DIGITS}', 'HEAD')}{edited}"
    except (OSError, subprocess.SubprocessError):  # there is no git, or it does not trust the owner of the folder
        return release
