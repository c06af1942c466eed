"""Write training_history.json and .png beside the record of a run while it trains.

A separate process (`release/card/training_history.py`) reads the record and draws the picture, which takes about a
second of one core. So drawing neither delays nor stops the training. The picture is drawn at most every `EVERY`
seconds. For a shorter run, only the stage `convert` draws it.
"""

import logging
import subprocess
import sys
import time
from pathlib import Path

log = logging.getLogger(__name__)


class History:
    """Updates the history files of a run at each validation; only the main process has one."""

    EVERY = 10.0  # seconds between two pictures
    PATIENCE = 15.0  # seconds that `close` waits at the end of the training

    def __init__(self, folder: Path, model: str):
        """Remember the run's `folder`, and the name of the `model` for the title of the picture."""
        self._folder, self._model = folder, model
        self._process: subprocess.Popen[str] | None = None
        self._drawn = time.monotonic()
        self._behind = False  # the record has a validation that is not in the files yet

    def update(self) -> None:
        """Update the files in the background; if the last update still runs, leave this one to the next call."""
        self._behind = True
        if self._process is None or self._process.poll() is not None:
            self._report()
            self._start()

    def close(self) -> None:
        """Wait at most `PATIENCE` seconds until the last validation is in the files."""
        end = time.monotonic() + self.PATIENCE
        while self._process is not None:
            try:
                self._process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return  # the process continues alone
            self._report()
            if self._behind:
                self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "babelmill.release.card.training_history", str(self._folder), self._model]
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
        """Log in one line why the process failed, if it failed."""
        process, self._process = self._process, None
        if process is None:
            return
        said = process.communicate()[1].strip().splitlines()
        if process.returncode:
            log.warning("no training history: %s", said[-1] if said else f"it ended with {process.returncode}")
