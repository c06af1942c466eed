"""Run the training loop: steps, the record, validation, checkpoints, snapshots, and leaving early.

The numbers of steps are read where a line is logged, so no step waits for the device. Before the loop writes anything,
it reads the numbers of all steps. All processes read the same sums, so all make the same decisions. Decisions that
depend on a clock or a signal (leaving, saving) are made together at the end of each step: one process is enough. (The
hosts ask each other by gloo beside NCCL: not run on a GPU yet.)
"""

import functools
import logging
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from babelmill.config.schema import Snapshots
from babelmill.config.snapshots import kept_at_the_end, missing_points, name_of, points, say_missing
from babelmill.core.bars import Bar
from babelmill.core.escape import some
from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.runtime.cost import peak_of
from babelmill.runtime.run_folder import Done, RunFolder
from babelmill.runtime.slurm import Stop
from babelmill.runtime.watching import GpuFigures, device_name, peak_memory, shown
from babelmill.training.networks.loss import STATISTICS, summarize
from babelmill.training.plan.plan import Plan, Step
from babelmill.training.plan.schedule import validation_steps
from babelmill.training.trainer import Outcome, Trainer

log = logging.getLogger(__name__)

READ_EVERY = 100  # steps whose numbers are read at the latest, so that the host does not run ahead for ever


def snapshot_steps(plan: Plan, asked: Snapshots) -> dict[float, int]:
    """Return {point: step}: for each point, in million words, the first step after which the run has read that many.

    A point shortly after the end of the run belongs to the last step. Later ones are dropped.
    """
    kept = kept_at_the_end(points(asked), plan.words_until(plan.steps) / 1e6)
    return {point: plan.first_step_with(point * 1e6 / plan.words_per_token) or plan.steps for point in kept}


def due_snapshots(plan: Plan, folder: RunFolder, done: Done) -> dict[float, int]:
    """Return {point: step} of the snapshots (`run.snapshots`) to be kept; warn of those that the run will not have."""
    asked, words = folder.run.snapshots, plan.words_until(plan.steps) / 1e6
    kept, steps = folder.snapshots.kept(), snapshot_steps(plan, asked)
    left = {point: step for point, step in steps.items() if name_of(point) not in kept}
    # Weights that are here just now can still be kept, also those of a finished run.
    due = {point: step for point, step in left.items() if step >= done.steps}
    if steps:
        log.info("run.snapshots: %s will be kept in %s million words", plural(len(due), "snapshot"), f"{words:,.4g}")
    if lost := [name_of(point) for point in left if point not in due]:
        log.warning("run.snapshots: %s: the run is already further", some(lost))
    if text := say_missing(missing_points(asked, words), words):
        log.warning("%s", text)
    return due


def snapshots_of(plan: Plan, folder: RunFolder) -> dict[str, list[str]]:
    """Return, for the manifest, the names of the snapshots that a finished run has, and of those that it lacks."""
    kept, missing = folder.snapshots.kept(), missing_points(folder.run.snapshots, plan.words_until(plan.steps) / 1e6)
    names = map(name_of, [*snapshot_steps(plan, folder.run.snapshots), *missing])
    found = {"snapshots": [*kept], "missing_snapshots": [name for name in names if name not in kept]}
    return {key: value for key, value in found.items() if value}


@dataclass
class Window:
    """Holds what was summed since the last line of the record; a checkpoint keeps it, for the next line of its run."""

    sums: np.ndarray  # [groups, 3], see `loss.STATISTICS`
    counts: np.ndarray  # [groups]
    seconds: float = 0.0  # of training alone
    tokens: int = 0
    skipped: int = 0
    flops: float = 0.0
    joules: float | None = 0.0  # of all GPUs; None: not known

    @classmethod
    def empty(cls, groups: int) -> "Window":
        """Return a window in which nothing is summed yet."""
        return cls(np.zeros((groups, len(STATISTICS))), np.zeros(groups, dtype=np.int64))

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "Window":
        """Return the window with this `state`."""
        arrays: dict[str, Any] = {name: np.array(state[name]) for name in ("sums", "counts")}
        return cls(**state | arrays)

    def state(self) -> dict[str, Any]:
        """Return the sums for a checkpoint."""
        return vars(self) | {"sums": self.sums.tolist(), "counts": self.counts.tolist()}


class Loop:
    """Trains from the first step that is not done to the end.

    `done` is what the run's folder contained before, and `state` that of the loop in the checkpoint (None: there is no
    checkpoint).
    """

    def __init__(self, trainer: Trainer, folder: RunFolder, done: Done, stop: Stop, state: dict[str, Any] | None):
        plan = trainer.plan
        self._trainer, self._run, self._folder, self._done = trainer, folder.run, folder, done
        self._stop, self._steps = stop, plan.steps
        self._snapshots = trainer.processes.on_main(lambda: due_snapshots(plan, folder, done))
        self._validations = set(validation_steps(folder.run, self._steps))  # after these
        if trainer.settings.begin_with is not None:  # the card also shows the loss of the source's weights
            self._validations.add(0)
        # The time left is estimated from tokens, since steps get longer during training.
        self._bar = Bar(plan.tokens_until(self._steps), plan.tokens_until(done.steps), at_once=True)
        self._gpus = GpuFigures(trainer.device)
        self._window = Window.empty(plan.groups) if state is None else Window.restored(state)
        self._unread: list[Outcome] = []
        self._leaving = self._saving = False
        self._saved = self._began = time.monotonic()  # the last checkpoint, and the first unread step
        self._longest = {"step": 0.0, "validation": 0.0, "checkpoint": 0.0}  # seconds

    def run(self) -> bool:
        """Train. Return False if there was a reason to leave before the end."""
        done = self._done.steps
        if done in self._validations and not self._done.validated:
            self._validate(done)
        self._keep_snapshots(done)  # asked for since the run was here
        saved = done
        if done < self._steps:
            log.info("training begins with step %d of %d", done + 1, self._steps)
        while done < self._steps and not self._leaving:
            self._unread.append(self._trainer.run_step(done))
            done += 1
            self._decide(done)
            due = self._logs(done) or self._saving or self._leaving or done in self._validations
            if due or done in self._snapshots.values() or len(self._unread) == READ_EVERY:
                self._read()
            self._keep_snapshots(done)
            if self._saving or self._leaving or done == self._steps:
                self._save(done)
                saved = done
            if done in self._validations and not self._leaving:
                self._validate(done)
                if self._leaving and saved != done:
                    self._save(done)
        if self._leaving:
            log.info("left after step %d; the same command continues from there", done)
        return not self._leaving

    def _logs(self, done: int) -> bool:
        return done == self._steps or done % self._run.log_every == 0

    def _decide(self, done: int) -> None:
        """Decide whether to leave and whether to save after `done` steps. The hosts ask each other; no GPU waits."""
        needed = (2 + len(self._unread)) * self._longest["step"] + 2 * self._longest["checkpoint"]
        needed += self._folder.copies.seconds if self._folder.copies else 0.0
        if done in self._validations:
            needed += self._longest["validation"]
        reason, processes = self._stop.reason(needed), self._trainer.processes
        if reason and not self._leaving:
            log.info("%s: finishing step %d", reason, done)
        every, minutes = self._run.checkpoint_every, (time.monotonic() - self._saved) / 60  # the main process's clock
        save = bool(every and done % every == 0) or (processes.main and minutes >= self._run.checkpoint_minutes)
        wanted = torch.tensor([reason is not None, save], dtype=torch.int32)
        self._leaving, self._saving = processes.sum_(wanted).bool().tolist()

    def _read(self) -> None:
        """Wait for the device, read the numbers of all unread steps, and write the lines that are due."""
        unread, self._unread = self._unread, []
        sums = torch.stack([outcome.sums for outcome in unread]).cpu().numpy()
        norms = torch.stack([outcome.norm for outcome in unread]).tolist()
        now = time.monotonic()
        self._longest["step"] = max(self._longest["step"], (now - self._began) / len(unread))
        self._window.seconds += now - self._began  # a line ends what is read, so all steps belong to one window
        self._began = now
        for outcome, each, norm in zip(unread, sums, norms, strict=True):
            self._account(outcome.step, each, norm)

    def _account(self, step: Step, sums: np.ndarray, norm: float) -> None:
        window, trainer = self._window, self._trainer
        counts = trainer.plan.group_counts(step.rows)
        if math.isfinite(norm) and np.isfinite(sums).all():
            window.sums += sums
            window.counts += counts
        else:
            self._not_finite(step, sums, norm)
            window.skipped += 1
        positions = len(step.rows) * step.length
        window.tokens += positions
        window.flops += trainer.network.flops(step.length, positions, int(step.rows.targets.sum()))
        if self._logs(step.step + 1):
            self._count_energy()
            self._write(self._line(step, norm))
            self._window = Window.empty(trainer.plan.groups)

    def _count_energy(self) -> None:
        """Add the energy of all GPUs to the window, as long as all processes know it."""
        joules, window = self._gpus.joules(), self._window
        used = torch.tensor([math.nan if joules is None else joules], dtype=torch.float64)
        total = self._trainer.processes.sum_(used).item()
        window.joules = None if math.isnan(total) or window.joules is None else window.joules + total

    def _line(self, step: Step, norm: float) -> dict[str, Any]:
        window, trainer = self._window, self._trainer
        peak = peak_of(device_name(trainer.device))
        return {
            "step": step.step + 1,
            "kind": "train",
            **summarize(window.sums, window.counts, trainer.settings.languages, trainer.plan.objective),
            "grad_norm": norm,
            "learning_rate": step.learning_rate,
            "mask_rate": step.mask_rate,
            "sequence_length": step.length,
            "rows": len(step.rows),
            "tokens": step.tokens,
            "epoch": trainer.plan.epochs(step.step + 1),
            "tokens_per_second": window.tokens / window.seconds,
            "mfu": window.flops / window.seconds / (peak * trainer.processes.size) if peak else None,
            "memory": peak_memory(trainer.device),
            "skipped": window.skipped,
            **self._gpus.figures,
            **({} if window.joules is None else {"energy": window.joules}),
        }

    def _write(self, line: dict[str, Any]) -> None:
        if not self._trainer.processes.main:
            return
        self._folder.record.append(line)
        if line["kind"] == "train":
            step, speed = f"step {line['step']:,}/{self._steps:,}", f"{line['tokens_per_second']:,.0f} tokens/s"
            self._bar.show(line["tokens"], f"{step}  loss {shown(line['loss'])}  {speed}")

    def _not_finite(self, step: Step, sums: np.ndarray, norm: float) -> None:
        """Report a step whose loss or gradient is not finite. The optimizer has already skipped it."""
        names = [self._trainer.settings.languages[i] for i in step.rows.language]
        rows = map("{} {}".format, names, step.rows.row)
        report = (
            f"step {step.step + 1}: loss or gradient is not finite: gradient norm {norm}; sums of cross-entropy"
            f" {', '.join(f'{value:.6g}' for value in sums[:, 0])}; learning rate {step.learning_rate:.3g};"
            f" {len(step.rows)} rows of {step.length} tokens from row {step.rows.number[0]} of the run: {some(rows, 8)}"
        )
        if self._trainer.train.non_finite == "stop":
            raise UserError(f"{report}; lower train.learning_rate, or set train.non_finite: skip to skip such steps")
        log.warning("%s; the step is skipped", report)

    def _validate(self, done: int) -> None:
        """Validate. If a signal to leave arrives meanwhile, the resumed run begins with this validation."""
        began = time.monotonic()
        result = self._trainer.validation.measure(lambda: self._stop.signalled is not None)
        self._pause("validation", began)
        if result is None:
            self._leaving = True
            return
        self._write({"step": done, "kind": "validation", **result})
        averaged = f", averaged weights {shown(result['ema_loss'])}" if self._trainer.average.tensors else ""
        log.info("step %d: validation loss %s%s", done, shown(result["loss"]), averaged)

    def _save(self, done: int) -> None:
        began, state = time.monotonic(), self._trainer.state
        state.compare_replicas()
        self._count_energy()
        numbers = {"loop": self._window.state(), "precision": self._trainer.train.precision}
        state.with_whole(lambda tensors, load: self._folder.save(done, tensors, numbers, load))
        self._pause("checkpoint", began)
        self._saved = time.monotonic()

    def _keep_snapshots(self, done: int) -> None:
        """Keep the weights that would be exported after this step, for each point that it reaches."""
        plan, words = self._trainer.plan, self._trainer.plan.words_until(done)
        about = {"step": done, "tokens": plan.tokens_until(done), "words": round(words)}
        prefix = "model." if self._trainer.average.tensors is None else "average."
        for point in (point for point, step in self._snapshots.items() if step == done):
            began, name = time.monotonic(), name_of(point)
            self._trainer.state.with_whole(functools.partial(self._folder.snapshots.save, point, about), prefix)
            log.info("step %d: the weights after %.4g million words are kept: %s", done, words / 1e6, name)
            self._pause("checkpoint", began)

    def _pause(self, what: str, began: float) -> None:
        """Do not count the time since `began` in the throughput, since it was spent on `what`, not on training."""
        self._began = time.monotonic()
        self._longest[what] = max(self._longest[what], self._began - began)
