"""Run Python programs in processes that have large libraries imported already.

They are forks of a server (`program_server.py`), one for all processes of a test session, that has imported Snakemake,
PyTorch and others, and nothing of ours. A program runs in its fork as `python -m` would run it, without the two to five
seconds of CPU time that the imports take; the tests start hundreds of them. For such a program `sys.executable` is a
command that asks the server, too: the jobs of Snakemake, and the processes that they start, are forks as well.
"""

import multiprocessing
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import program_server

CONTEXT = multiprocessing.get_context("forkserver")  # for functions of a test
CONTEXT.set_forkserver_preload(["torch"])
VARIABLE = "BABELMILL_PROGRAM_SERVER"  # its folder
STARTED = []  # by this process


def start_server() -> None:
    """Start the server for this process and all that it starts; it imports nothing before the first request."""
    folder = tempfile.mkdtemp(prefix="babelmill-programs-")
    command = shlex.join([sys.executable, "-IS", program_server.__file__, "ask", folder])
    python = Path(folder, "python")
    python.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    python.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen(100)
        server = subprocess.Popen(
            [sys.executable, program_server.__file__, "serve", folder, str(listener.fileno())],
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            stdin=subprocess.PIPE,  # it ends with this process: when nobody can write there any more
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    STARTED.append(server)
    os.environ[VARIABLE] = folder


def run_module(module: str, *arguments, cwd=None, environment=None) -> subprocess.CompletedProcess:
    """Run `python -m module arguments` and return its exit code and what it said.

    Args:
        module: a program, such as `snakemake` or `babelmill.train`.
        arguments: of its command line.
        cwd: the folder that it runs in; None for the present one.
        environment: all its environment variables; None for the present ones.
    """
    if VARIABLE not in os.environ:
        start_server()
    command, variables = [module, *map(str, arguments)], dict(environment or os.environ)
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr, open(os.devnull) as nothing:
        descriptors = [nothing.fileno(), stdout.fileno(), stderr.fileno()]
        folder = os.environ[VARIABLE]
        code = program_server.ask(folder, command, str(cwd or os.getcwd()), variables, descriptors, lambda _: None)
        said = []
        for file in (stdout, stderr):
            file.seek(0)
            said.append(file.read().decode(errors="replace"))
        return subprocess.CompletedProcess(command, code, *said)
