"""Programs that are forked from a prepared process end as those do that Python starts, and with whoever started them."""

import os
import signal
import subprocess
import sys

import pytest

from prepared import VARIABLE, run_module, run_python

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
    number, *said = process.stdout.readline().split(maxsplit=1)
    assert said == ["True False ['an argument']\n"] and int(number) != process.pid
    return process, int(number)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGKILL, -signal.SIGKILL), (signal.SIGUSR1, -signal.SIGUSR1)]
)
def test_a_signal_reaches_it_and_its_exit_code_comes_back(tmp_path, number, code):
    process, _ = start(tmp_path)
    process.send_signal(number)
    process.communicate()  # ends when the program has: both have its output
    assert process.returncode == code


def test_one_that_is_killed_is_told(tmp_path):
    process, program = start(tmp_path)
    os.kill(program, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_what_it_starts_comes_from_there_too(tmp_path):
    (tmp_path / "ends.py").write_text(
        "import os, sys; print(os.environ['GREETING'], 'torch' in sys.modules); print('bad', file=sys.stderr)\n"
        "sys.exit(int(sys.argv[1]))"
    )
    (tmp_path / "starts.py").write_text(INNER)
    done = run_module("starts", cwd=tmp_path, environment=os.environ | {"GREETING": "hello"})
    assert (done.returncode, done.stdout, done.stderr) == (3, "hello True\n", "bad\n")


def test_transformers_has_the_names_that_it_finds_itself():
    """It does not look for them again, though (`import_structures.py`)."""
    code = "import transformers\nfrom transformers.utils import import_utils\nfrom transformers.models import auto\n"
    code += "print(import_utils.create_import_structure_from_path.__module__)\n"
    code += "print(*sorted(dir(transformers)), *sorted(dir(transformers.models)), *sorted(dir(auto)))"
    ours = run_python("-c", code)
    theirs = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ours.stdout.splitlines()[0] == "import_structures", ours.stderr
    assert theirs.stdout.splitlines()[0] == "transformers.utils.import_utils", theirs.stderr
    assert len(ours.stdout.split()) > 5000 and ours.stdout.splitlines()[1:] == theirs.stdout.splitlines()[1:]


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit('words')",
        "import sys; print('kept', end=''); sys.exit(300)",
        "raise SystemExit",
        "1 / 0",
        "raise KeyboardInterrupt",
        "import atexit; atexit.register(print, 'last')",
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
    ],
)
def test_it_ends_as_python_does(code):
    ours = run_python("-c", code)
    theirs = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = [(done.returncode, done.stdout, done.stderr.splitlines()[-1:]) for done in (ours, theirs)]
    assert said[0] == said[1]
