"""Name the code that this is: the release and, in a checkout, its commit.

A training records it, for readers of a report. It is no setting, so another commit makes nothing again.
"""

import os
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
    try:
        commit = _git("rev-parse", f"--short={DIGITS}", "HEAD")
        edited = ", edited" if _git("status", "--porcelain", "--", str(PACKAGE)) else ""
    except (OSError, subprocess.SubprocessError):  # there is no git, or it does not trust the owner of the folder
        return release
    return f"{release} at {commit}{edited}"


def _git(*arguments: str) -> str:
    """Return what git says about the checkout, without taking a lock there."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-C", str(ROOT), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True, env=environment)
    return answer.stdout.strip()
