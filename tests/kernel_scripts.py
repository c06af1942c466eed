"""Run the scripts of this folder that check Triton kernels."""

import os
import subprocess
import sys
from pathlib import Path


def run(script: str, *arguments: str, **variables: str) -> str:
    """Run a script of this folder in a process that has not imported Triton before; return what it prints."""
    command = [sys.executable, Path(__file__).parent / script, *arguments]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
