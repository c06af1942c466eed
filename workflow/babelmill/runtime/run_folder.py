"""Open the folder of a training run, results/checkpoints/{label}-{key}: it keeps what the next attempt needs.

lock.json               the process that writes here (run_lock.py)
identity.json           the settings and data of the run
attempt.json            the number of attempts (record.py)
validating.json         how far a validation is, while there is one
logs/                   the log of each attempt (record.py)
step-00000040.*         checkpoints (checkpoint.py)
metrics.jsonl           the record (record.py)
snapshots/              weights after given numbers of words (checkpoint.py)
training_history.*      lists and a picture of the losses (followers.py)
"""

import contextlib
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import torch

from babelmill.config import schema
from babelmill.core.files import UserError, read_json, write_json
from babelmill.runtime import checkout
from babelmill.runtime.checkpoint import Checkpoints, Snapshots
from babelmill.runtime.copies import Copies
from babelmill.runtime.record import Record, begin_attempt, keep_log, say_edited
from babelmill.runtime.run_lock import Lock
from babelmill.runtime.watching import History, mirror, processors

log = logging.getLogger(__name__)


class Done(NamedTuple):
    """The work that a run has done already.

    Attributes:
        steps: the number of steps at the newest checkpoint.
        validated: whether the record has the validation after these steps.
        precision: the precision of the run, "bf16" or "fp32": the one in which it began.
    """

    steps: int
    validated: bool
    precision: str


class RunFolder:
    """A run's folder. All processes read its checkpoints; only the main process opens it for writing.

    As a context manager, it releases the folder at the end.
    """

    def __init__(
        self,
        path: Path,
        identity: dict[str, Any],
        run: schema.Run,
        preset: str = "",
        write_history: Callable[[Path, str, bool], object] = lambda *_: None,
    ):
        """Describe the folder without opening it.

        Args:
            path: the folder.
            identity: see `record.identity`.
            run: the run's settings.
            preset: the preset of the model, for the names of logs.
            write_history: writes training_history.* into a run's folder, given the folder, the model's name, and
                whether to draw the picture.
        """
        self.path = path
        self.checkpoints = Checkpoints(self.path, run.keep)
        self.snapshots = Snapshots(self.path)
        self._identity, self._tracking, self._preset = identity, run.tracking, preset
        self._write_history = write_history
        self._elsewhere, self._copies = run.checkpoints, None
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._opened.close()

    def open(self, model: str, attempt: int, steps: int, tokens: int, precision: str) -> Done:
        """Lock the folder for this process, and return the work that is done.

        Args:
            model: the name of the model.
            attempt: the number of the attempt: 1, or more for a retry.
            steps, tokens: the number of steps and tokens of the whole run.
            precision: the precision of a run that begins here.

        Raises:
            UserError: another run writes here, the attempt must not begin (see `begin_attempt`), or the place of
                `run.checkpoints` does not answer.
        """
        self._opened.enter_context(Lock(self.path))
        done = self.checkpoints.newest()
        if self._elsewhere:
            self._copies = Copies(self._elsewhere, self.path, self.checkpoints)
            done = self._copies.fetch(done)
        precision = self.checkpoints.began_in(done, precision)
        self._check_identity(done)
        if done:
            say_edited(self.path)
        if done < steps:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            ran_with = {"processors": processors(), "code": checkout.code()}
            begin_attempt(self.path, attempt, done, steps, tokens, device, precision, ran_with)
            keep_log(self.path, model, self._preset, done, steps)
        self.validating(None)
        self.record = Record(self.path / "metrics.jsonl", done)
        self.history = History(partial(self._write_history, self.path, model))
        self._opened.callback(self.history.close)
        if self._tracking == "wandb" and os.environ.get("WANDB_DISABLED", "").lower() in ("1", "on", "true", "yes"):
            log.info("WANDB_DISABLED is set: run.tracking = wandb has no effect")
        elif self._tracking == "wandb":
            self._opened.enter_context(mirror(model, self.path))
        if self._copies:
            log.info("checkpoints are also kept in %s", self._elsewhere)
            self._copies.update()
            self._opened.callback(self._copies.close)
            self.checkpoints.after_saving = self._copies.update
        return Done(done, self.record.validated, precision)

    def _check_identity(self, done: int) -> None:
        """Write the identity of the run, or refuse to go on with other data than a checkpoint was trained on."""
        path = self.path / "identity.json"
        if done and path.is_file() and read_json(path) != self._identity:
            raise UserError(f"{self.path}: was trained on other data than is there now; delete it to train anew")
        write_json(path, self._identity)

    @property
    def seconds_to_copy(self) -> float:
        """Return how long it took to copy the last checkpoint to the place of `run.checkpoints`."""
        return self._copies.seconds if self._copies else 0.0

    def validating(self, how_far: dict[str, Any] | None) -> None:
        """Note for `babelmill status` how far a validation is: its `step` and `share`; None if there is none."""
        path = self.path / "validating.json"
        if how_far is None:
            path.unlink(missing_ok=True)
        else:
            with contextlib.suppress(UserError, OSError):  # such as a full disk: the note is not needed
                write_json(path, how_far)

    def check(self) -> None:
        """Get ready to save a checkpoint or a snapshot: its lines of the record must be on disk before."""
        self.record.sync()
