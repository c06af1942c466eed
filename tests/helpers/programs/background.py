"""Run Snakemake on a cluster in the background, and wait for what happens there."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil

PATIENCE = 1100  # seconds until a test gives up waiting; pytest-timeout may be faster


class Background:
    """Runs a command in a folder, in a session of its own."""

    def __init__(self, command: list, folder: Path, environment: dict[str, str]):
        self.folder, self.output = folder, folder / f"output-{time.monotonic_ns()}.txt"
        with open(self.output, "w") as file:
            self.process = subprocess.Popen(
                [*map(str, command)], cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True
            )

    @property
    def printed(self) -> str:
        return self.output.read_text()

    def finish(self) -> int:
        """Wait for its end. Return the exit code."""
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End it as a crash of the login node would."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def trainers(folder: Path) -> list[psutil.Process]:
    """Return the processes that train in a folder, or stand for those that do (`program_client.py`), with `info`."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            if "babelmill.train" in (process.info["cmdline"] or []) and Path(process.cwd()) == folder:
                found.append(process)
    return found


def wait(what: str, condition, run: Background | None = None):
    """Return the first true value of `condition`. It is waited for in vain if `run` has ended."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := condition():
            return value
        assert run is None or run.process.poll() is None, f"waiting for {what}: {run.printed}"
        time.sleep(0.2)
    raise AssertionError(f"waited in vain for {what}")
