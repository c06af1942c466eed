"""Programs that are forked from a prepared process end as those do that Python starts (`test_life.py` has signals)."""

import subprocess
import sys

import pytest

from helpers.programs.prepared import run_python

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit('words')",
        "1 / 0",
        "raise KeyboardInterrupt",
        "import atexit; atexit.register(print, 'last')",
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
    ],
)
def test_it_ends_as_python_does(code):
    ours = run_python("-c", code)
    theirs = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    output = [(done.returncode, done.stdout, done.stderr.splitlines()[-1:]) for done in (ours, theirs)]
    assert output[0] == output[1]
