"""Keep what the next attempt of a training needs in the folder of its run, results/checkpoints/{label}-{key}.

lock.json               the process that writes here (run_lock.py)
identity.json           the settings and data of the run
attempt.json            the number of attempts: after two without progress, the run ends with an error
logs/                   the log of each attempt, since Snakemake deletes a rule's log before the next attempt
step-00000040.*         checkpoints (checkpoint.py)
metrics.jsonl           the record
snapshots/              weights after given numbers of words (checkpoint.py)

`metrics.jsonl` is the record, one JSON object per line. During training, it is in the run's folder, so that it stays
after a failed attempt. At the end it becomes a result of the stage. A resumed run first drops the lines after its
checkpoint, so the record has each logged step once.

The fields of a line are `step` (steps done), `kind` and those below. In training lines, they are means since the last
training line:
    loss, loss_masked, loss_causal  cross-entropy in nats per target; `loss` weighs the kinds of rows as the objective
                                    does; each objective names its kinds (here: masked and causal, of hybrid models)
    perplexity, accuracy            exp(loss); share of targets predicted right
    z_loss                          mean of logsumexp^2
    grad_norm                       before clipping
    learning_rate, mask_rate, sequence_length, rows, tokens (of the run so far), epoch
    tokens_per_second, mfu          over all processes; share of the GPUs' peak (null if the peak is not known)
    memory                          peak of the main process in MiB: the GPU's, or the process's without a GPU
    skipped                         steps skipped because of a non-finite gradient
and, if the driver reports them:
    gpu_utilization, gpu_memory, gpu_power, gpu_temperature
                                    of the main process's GPU, in percent, MiB, W and degrees Celsius
    energy                          of all GPUs since the last training line, with validations and checkpoints, in J
Validation lines have loss, loss_masked, loss_causal, perplexity and accuracy of the last weights, and the same for the
averaged weights, with the prefix `ema_`; and `targets`, the number of targets measured, in which samples of the
validation text differ (`run.validation_tokens`). Models of several languages also have
`languages`: the same losses for each.
"""

import contextlib
import json
import logging
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch

from babelmill.config import schema
from babelmill.core import escape, manifest, modules
from babelmill.core.files import UserError, atomic_write, read_json, write_json, writing
from babelmill.runtime import slurm
from babelmill.runtime.checkpoint import Checkpoints, Load, Snapshots, Tensors
from babelmill.runtime.copies import Copies
from babelmill.runtime.run_lock import locked
from babelmill.runtime.watching import mirror

log = logging.getLogger(__name__)

SPLITS = ("train", "validation")
IDENTITY, ATTEMPT = "identity.json", "attempt.json"


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


class RunFolder(contextlib.ExitStack):
    """A run's folder. All processes read its checkpoints; only the main process opens it for writing.

    As a context manager, it releases the folder at the end.
    """

    record: "Record"

    def __init__(self, path: Path, identity: dict[str, Any], run: schema.Run):
        """Describe the folder without opening it. For `identity`, see the function of this name."""
        super().__init__()
        self.path, self.run, self._identity = path, run, identity
        self.checkpoints, self.snapshots = Checkpoints(path), Snapshots(path)
        self.copies: Copies | None = None

    def open(self, model: str, attempt: int, steps: int, tokens: int, precision: str) -> Done:
        """Lock the folder for this process, and return the work that is done.

        Args:
            model: the name of the model.
            attempt: the number of the attempt: 1, or more for a retry.
            steps, tokens: the number of steps and tokens of the whole run.
            precision: the precision of a run that begins here.

        Raises:
            UserError: another run writes here, the attempt must not begin (see `_begin_attempt`), or the place of
                `run.checkpoint_mirror` does not answer.
        """
        self.enter_context(locked(self.path))
        done, elsewhere = self.checkpoints.newest(), self.run.checkpoint_mirror
        if elsewhere:
            self.copies = Copies(elsewhere, self.checkpoints)
            done = self.copies.fetch(done)
        if done:
            precision = self.checkpoints.load(done)[1]["precision"]
            if noted(self.path / IDENTITY) != self._identity:
                copies = f" (also in {elsewhere})" if elsewhere else ""
                raise UserError(
                    f"{self.path}: was trained with other settings or on other data; delete it{copies} to train anew"
                )
            if names := modules.edited(modules_of(self.path)):
                verb = "was" if len(names) == 1 else "were"
                log.info("%s %s edited since this run began", escape.some(names, 3), verb)
        write_json(self.path / IDENTITY, self._identity)
        if done < steps:
            self._begin_attempt(model, attempt, done, {"steps": steps, "tokens": tokens, "precision": precision})
        self.record = Record(self.path / "metrics.jsonl", done)
        if self.run.tracking == "wandb":
            self.enter_context(mirror(model, self.path))
        if self.copies:
            log.info("checkpoints are also kept in %s", elsewhere)
            self.copies.update()
            self.callback(self.copies.close)
        return Done(done, self.record.validated, precision)

    def save(self, step: int, tensors: Tensors, state: dict[str, Any], load: Load) -> None:
        """Save a checkpoint (see `Checkpoints.save`), once its lines of the record are on disk."""
        self.record.sync()
        self.checkpoints.save(step, tensors, state, load)
        if self.copies:
            self.copies.update()

    def _begin_attempt(self, model: str, attempt: int, done: int, about: dict[str, Any]) -> None:
        """Note that an attempt begins after `done` steps: `babelmill status` and `plan` read this. Keep its log.

        One retry without progress is allowed, since it may have more memory or another machine. A job that SLURM put
        back into its queue is still the same attempt. The note has the modules with which the run began.

        The log of this process is also written to `logs/20261122-143105_attempt2_job812.log`. The time is UTC, so that
        the names sort by time on any machine. All attempts are counted. This includes attempts that the user or SLURM
        starts again, which Snakemake counts as the first. Each message is written immediately, so it is in the file
        even if the process is killed right after it.

        Raises:
            UserError: the two attempts before this one made no progress.
        """
        job, host, last = slurm.job_id(), platform.node(), noted(self.path / ATTEMPT)
        fruitless = 0
        if attempt > 1 and last and last["began_after_step"] == done:
            fruitless = last["fruitless"] + (job is None or last["job"] != job)
        if fruitless > 1:
            raise UserError(
                f"training failed in two attempts without progress after step {done}, so it is not tried again;"
                " fix the cause and run the workflow again"
            )
        about |= {"attempt": attempt, "job": job, "began_after_step": done, "fruitless": fruitless, "host": host}
        about["device"] = "cuda" if torch.cuda.is_available() else "cpu"
        # A checkpoint that was fetched may have no note of its attempts.
        about["modules"] = last.get("modules", {}) if done else modules.loaded()
        write_json(self.path / ATTEMPT, about)

        logs, now = self.path / "logs", datetime.now(UTC)
        logs.mkdir(exist_ok=True)
        number, of_job = 1 + sum(1 for _ in logs.glob("*.log")), f"_job{job}" if job else ""
        path = logs / f"{now:%Y%m%d-%H%M%S}_attempt{number}{of_job}.log"
        where = f"{host}, job {job}" if job else host
        begins = f"{now:%F %T} UTC: attempt {number} of {model} on {where}, after step {done}/{about['steps']}\n"
        path.write_text(begins)
        handler = logging.FileHandler(path, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        # It stays until the process ends: an error of the process is logged after the folder is closed.
        logging.getLogger().addHandler(handler)


def identity(
    settings: dict[str, Any], tokenizer: Path, shards: list[Path], source: Path | None = None
) -> dict[str, Any]:
    """Return the identity of a run, for JSON.

    Args:
        settings: the content of the stage's settings file, with the version of the stage.
        tokenizer, shards: the folders of the data, whose manifests are read.
        source: the folder of the model that the run continues.
    """
    about: dict[str, Any] = {"shape": read_json(source / "config.json")} if source else {}
    data = {folder.as_posix(): manifest.digest(folder) for folder in [*shards, *([source] if source else [])]}
    digest = manifest.read(tokenizer)["files"]["tokenizer.json"]["sha256"]
    return about | {"settings": settings, "data": data, "tokenizer": digest}


def noted(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file of a run's folder; {} if there is none."""
    return read_json(path) if path.is_file() else {}


def modules_of(path: Path) -> dict[str, str]:
    """Return the modules with which the run in a folder began; {} if they are not known."""
    return noted(path / ATTEMPT).get("modules", {})


class Record:
    """The file `metrics.jsonl` of a run that has done `step` steps.

    Attributes:
        path: the path of the file.
        validated: whether the file has the validation after `step` steps.
    """

    def __init__(self, path: Path, step: int):
        kept: list[str] = []
        self.validated = False
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            with contextlib.suppress(ValueError):  # the process died while it wrote its last line
                entry = json.loads(line)
                if entry["step"] <= step:
                    kept.append(line + "\n")
                    self.validated |= entry["step"] == step and entry["kind"] == "validation"
        with atomic_write(path, "w") as file:
            file.writelines(kept)
        self.path, self._file = path, open(path, "a", encoding="utf-8")  # noqa: SIM115  it stays open during the run

    def append(self, line: dict[str, Any]) -> None:
        """Add a line; numbers that are not finite become null."""
        line = json.loads(json.dumps(line), parse_constant=lambda _: None)
        with writing(self.path):
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Flush the file to disk: at each checkpoint, all lines before it must be on disk."""
        with writing(self.path):
            os.fsync(self._file.fileno())
