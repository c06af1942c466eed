"""The history of a run beside its record, while it trains: training_history.json and .png.

The record is read and drawn by a process of its own (`release/training_history.py`), so that drawing, about a second of
a core, neither delays nor stops the training. The picture is drawn at most every `EVERY` seconds: a run that is over
before then leaves it to `convert`.
"""

import logging
import subprocess
import sys
import time
from pathlib import Path

log = logging.getLogger(__name__)


class History:
    """The files of a run, brought up to date at each validation; the main process alone has one."""

    EVERY = 10.0  # seconds between two pictures
    PATIENCE = 15.0  # seconds at the end of the training

    def __init__(self, folder: Path, model: str):
        """`folder`: of the run; `model`: its name, for the title of the picture."""
        self._folder, self._model = folder, model
        self._process: subprocess.Popen[str] | None = None
        self._drawn = time.monotonic()
        self._behind = False  # the record has a validation that the files have not

    def update(self) -> None:
        """Bring the files up to date, in the background; if it is still busy with the last time, the next time does."""
        self._behind = True
        if self._process is None or self._process.poll() is not None:
            self._report()
            self._start()

    def close(self) -> None:
        """Let it finish, and have the last validation in the files, within `PATIENCE` seconds."""
        end = time.monotonic() + self.PATIENCE
        while self._process is not None:
            try:
                self._process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return  # it is on its own from now on
            self._report()
            if self._behind:
                self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "babelmill.release.training_history", str(self._folder), self._model]
        if time.monotonic() - self._drawn >= self.EVERY:
            command.append("--draw")
            self._drawn = time.monotonic()
        self._behind = False
        null, pipe = subprocess.DEVNULL, subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, stdin=null, stdout=null, stderr=pipe, text=True, start_new_session=True
            )
        except OSError as error:
            log.warning("no training history: %s", error)

    def _report(self) -> None:
        """Say in a line why the process that has ended could not do its work, if so."""
        process, self._process = self._process, None
        if process is None:
            return
        said = process.communicate()[1].strip().splitlines()
        if process.returncode:
            log.warning("no training history: %s", said[-1] if said else f"it ended with {process.returncode}")
