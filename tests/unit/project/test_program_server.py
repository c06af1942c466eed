"""Programs that are forked from a prepared process end as those do that Python starts, and with whoever started them."""

import os
import signal
import subprocess
import sys

import pytest

from babelmill.stages import STAGES
from helpers.programs.prepared import VARIABLE, run_module, run_python

pytestmark = pytest.mark.slow

WAITS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
print(os.getpid(), 'torch' in sys.modules, 'babelmill' in sys.modules, sys.argv[1:], flush=True)
time.sleep(600)
"""
INNER = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-u', '-m', 'ends', '3']).returncode)"


def start(folder) -> tuple[subprocess.Popen, int]:
    """Start a program in the place of `python -m`; its process number is not that of what stands for it."""
    (folder / "waits.py").write_text(WAITS)
    command = [f"{os.environ[VARIABLE]}/python", "-m", "waits", "an argument"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    number, *output = process.stdout.readline().split(maxsplit=1)
    assert output == ["True False ['an argument']\n"] and int(number) != process.pid
    return process, int(number)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGKILL, -signal.SIGKILL), (signal.SIGUSR1, -signal.SIGUSR1)]
)
def test_a_signal_reaches_it_and_its_exit_code_comes_back(tmp_path, number, code):
    process, _ = start(tmp_path)
    process.send_signal(number)
    process.communicate()  # ends when the program has: both have its output
    assert process.returncode == code


def test_what_it_starts_comes_from_there_too(tmp_path):
    (tmp_path / "ends.py").write_text(
        "import os, sys; print(os.environ['GREETING'], 'torch' in sys.modules); print('bad', file=sys.stderr)\n"
        "sys.exit(int(sys.argv[1]))"
    )
    (tmp_path / "starts.py").write_text(INNER)
    done = run_module("starts", cwd=tmp_path, environment=os.environ | {"GREETING": "hello"})
    assert (done.returncode, done.stdout, done.stderr) == (3, "hello True\n", "bad\n")


def test_each_stage_imports_what_it_uses():
    """Alone in a process: the others may be forks of one that has imported all of our modules."""
    for stage in (*STAGES, "cli"):
        code = f"import sys; sys.meta_path[0]._modules.clear(); import babelmill.{stage}"
        run_python("-c", code, check=True)


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
