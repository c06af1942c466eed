"""Run the scripts that check Triton kernels."""

import os
import subprocess
import sys

from helpers import SCRIPTS


def run(script: str, *arguments: str, **variables: str) -> str:
    """Run a script of `tests/scripts` in a process that has not imported Triton before; return what it prints."""
    command = [sys.executable, SCRIPTS / script, *arguments]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
