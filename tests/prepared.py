"""Run Python programs in processes that have large libraries imported already.

The processes are forks of one that imported Snakemake and PyTorch and nothing of ours (the `forkserver` of
`multiprocessing`). A program runs in its fork as `python -m` would run it, without the two seconds of CPU time that the
imports take; the tests start hundreds of them.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARIES = ["snakemake.cli", "snakemake.report.html_reporter", "smart_open", "pydantic", "torch"]
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(LIBRARIES)
OURS = [str(Path(__file__).parents[1] / name) for name in ("workflow", "tests")]


def run_module(module: str, *arguments, cwd=None, environment=None) -> subprocess.CompletedProcess:
    """Run `python -m module arguments` and return its exit code and what it said.

    Args:
        module: a program, such as `snakemake` or `babelmill.train`.
        arguments: of its command line.
        cwd: the folder that it runs in; None for the present one.
        environment: all its environment variables; None for the present ones.
    """
    command = [module, *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"{folder}/stdout", f"{folder}/stderr"]
        process = CONTEXT.Process(
            target=_become, args=(command, str(cwd or os.getcwd()), dict(environment or os.environ), outputs)
        )
        process.start()
        process.join()
        stdout, stderr = (Path(name).read_text(encoding="utf-8", errors="replace") for name in outputs)
        return subprocess.CompletedProcess(command, process.exitcode, stdout, stderr)


def _become(command: list[str], cwd: str, environment: dict[str, str], outputs: list[str]) -> None:
    """Be the program from here on."""
    for number, name in enumerate(outputs, 1):
        opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [cwd, *filter(None, folders), *(path for path in sys.path if path and path not in OURS)]
    sys.argv[:] = command
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)
