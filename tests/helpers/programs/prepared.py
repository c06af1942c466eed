"""Run Python programs in processes that have large libraries imported already.

They are forks of a server (`program_server.py`), one for a test session, that has imported Snakemake, PyTorch and
others, but nothing of ours. A program runs in its fork as `python -m` would run it, without the two to five seconds of CPU time
that the imports take; the tests start hundreds of them. For such a program `sys.executable` is a command that asks the
server, too: the jobs of Snakemake, and the processes that they start, are forks as well. So are the test processes of
pytest-xdist, but there `sys.executable` is Python's own.
"""

import multiprocessing
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers.programs import program_client

CONTEXT = multiprocessing.get_context("forkserver")  # for functions of a test
CONTEXT.set_forkserver_preload(["torch", "transformers.modeling_utils"])
VARIABLE = "BABELMILL_PROGRAM_SERVER"  # its folder
STARTED = []  # by this process


def start_server() -> str:
    """Start the server for this process and all that it starts; it imports nothing before the first request.

    Returns:
        the command that runs Python in a fork of it.
    """
    folder = tempfile.mkdtemp(prefix="babelmill-programs-")
    command = shlex.join([sys.executable, "-IS", program_client.__file__, folder])
    python = Path(folder, "python")
    python.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    python.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen(100)
        server = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("program_server.py"), folder, str(listener.fileno())],
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            stdin=subprocess.PIPE,  # it ends with this process: when nobody can write there any more
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    STARTED.append(server)
    os.environ[VARIABLE] = folder
    return str(python)


def run_module(module: str, *arguments, **where) -> subprocess.CompletedProcess:
    """Run `python -m module arguments`; see `run_python`."""
    return run_python("-m", module, *arguments, **where)


def run_python(*words, cwd=None, environment=None, check=False) -> subprocess.CompletedProcess:
    """Run Python and return its exit code and output.

    Args:
        words: `-m` and a module, `-c` and code, or a file; and arguments.
        cwd: the folder that it runs in; None for the present one.
        environment: all its environment variables; None for the present ones.
        check: fail, with its output, if its exit code is not 0.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        code, outputs = Program(*words, cwd=cwd, environment=environment, outputs=[stdout, stderr]).wait(), []
        for file in (stdout, stderr):
            file.seek(0)
            outputs.append(file.read().decode(errors="replace"))
    assert not check or code == 0, "".join(outputs)
    return subprocess.CompletedProcess([*map(str, words)], code, *outputs)


class Program:
    """Runs a program while a test continues, like `subprocess.Popen`. Standard error is a pipe."""

    def __init__(self, *words, cwd=None, environment=None, outputs=None, session=False):
        """Start Python; see `run_python`.

        Args:
            outputs: files or descriptors for standard output and standard error, in place of nowhere and the pipe.
            session: whether it begins a session, so that signals to its group reach nobody else.
        """
        if VARIABLE not in os.environ:
            start_server()
        self.returncode: int | None = None
        self._errors, errors = os.pipe() if outputs is None else (None, None)
        with open(os.devnull, "r+") as nothing:
            opened = [nothing, nothing, errors] if outputs is None else [nothing, *outputs]
            self._connection, self.pid = program_client.ask(
                os.environ[VARIABLE],
                [*map(str, words)],
                str(cwd or os.getcwd()),
                dict(environment or os.environ),
                [file if isinstance(file, int) else file.fileno() for file in opened],
                session=session,
            )
        if errors is not None:
            os.close(errors)

    def poll(self) -> int | None:
        """Return the exit code, or None while the program runs."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        """Wait for its end. Return the exit code."""
        if self.returncode is None:
            self.returncode = int(self._connection.recv(100))
            self._connection.close()
        return self.returncode

    def communicate(self) -> tuple[None, str]:
        """Wait until nobody holds its standard error any more. Return what was written there."""
        with open(self._errors, encoding="utf-8", errors="replace") as errors:
            text = errors.read()
        self.wait()
        return None, text

    def send_signal(self, number: int) -> None:
        """Send a signal to its process."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def run_limited(module: str, *arguments, size: int, **where) -> subprocess.CompletedProcess:
    """Run `python -m module arguments`, which may write no file of more than `size` bytes (as on a full disk)."""
    code = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, ({size}, {size})); {start}"
    return run_python("-c", code.format(size=size, start=START), module, *arguments, **where)


def run_killed(module: str, *arguments, name: str = "", cwd=None) -> subprocess.CompletedProcess:
    """Run `python -m module arguments`, and kill it (-9) when its first file, or that of a name, is to appear."""
    code = (
        "import os, sys; sys.addaudithook("
        f"lambda event, words: event == 'os.rename' and str(words[1]).endswith({name!r}) and os.kill(os.getpid(), 9)); "
    )
    return run_python("-c", code + START, module, *arguments, cwd=cwd)


START = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
