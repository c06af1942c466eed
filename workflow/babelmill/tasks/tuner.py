"""Fine-tune a model for a task, step by step, so that a killed job goes on with the same bits.

A plain loop of its own, and not the Trainer of transformers: the challenge's numbers need its head, its order of rows
and its schedule. A checkpoint after each epoch holds all that the next one depends on (weights, optimizer, random
numbers), so a run that was killed repeats one epoch at most, and ends with the same weights.

Protocols (`config/protocols/`) say how: `babylm` is the loop of the BabyLM challenge, `babylm_multilingual` that of
transformers' Trainer with its defaults, which the multilingual track uses, and `sound` chooses the best epoch by rows
that are neither trained on nor scored.
"""

import io
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from babelmill.config.entries import Tuning
from babelmill.core.bars import Bar
from babelmill.core.files import UserError
from babelmill.runtime.checkpoint import Checkpoints
from babelmill.tasks.encoding import Padding, Row, pad, targets

# Scores an epoch, given a function that returns the logits of rows, [targets, classes]; the best epoch is chosen by it.
Judge = Callable[[Callable[[Sequence[Row]], np.ndarray]], float]

PREDICT_BATCH = 64  # rows per batch without training
DAMAGED = "the weights of this model are damaged; replace the model"
DIVERGED = "the fine-tuning diverged; lower learning_rate in `tuning` of the task"

log = logging.getLogger("babelmill.tune")


def rate_factor(step: int, steps: int, how: Tuning) -> float:
    """Return the learning rate at a step, as a share of its peak: a linear warm-up, then down to `floor`."""
    rising = int(how.warmup * steps)
    if step < rising:
        return step / max(1, rising)
    progress = (step - rising) / max(1, steps - rising)
    if how.schedule == "linear":
        return max(how.floor, 1 - progress)
    return max(how.floor, how.floor + (1 - how.floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def _drawn() -> int:
    """Draw a number as a DataLoader does when it begins, so that what is drawn later (dropout) is the same."""
    return int(torch.empty((), dtype=torch.int64).random_())


class Tuner:
    """Trains a classifier on the rows `train` and chooses the weights of an epoch by the scores that `judge` gives.

    The model returns the logits of `targets` from what `pad` gives, and was made after `transformers.set_seed`. `how`
    is the protocol. If it shuffles by epoch, the order of rows follows from `seed`. Checkpoints are kept in `folder`. A
    UserError says that there are fewer rows than one batch has.

    Attributes:
        model: the model; after `predict` with the chosen weights.
        scores: the score of each epoch.
        steps: how many steps all epochs have.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        how: Tuning,
        seed: int,
        train: Sequence[Row],
        judge: Judge,
        padding: Padding,
        folder: Path,
        device: torch.device,
    ):
        if len(train) < how.batch:
            raise UserError(
                f"there are {len(train)} rows to train on, fewer than a batch of {how.batch} (`batch` of the task)"
            )
        self.model, self.scores = model.to(device), list[float]()
        self._how, self._seed, self._train, self._judge, self._padding = how, seed, train, judge, padding
        self._device, self._checkpoints = device, Checkpoints(folder, keep=1)
        self._per_epoch = len(train) // how.batch  # the last incomplete batch of an epoch is left out
        self.steps = self._per_epoch * how.epochs
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=how.learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=how.weight_decay
        )
        self._best: dict[str, torch.Tensor] = {}
        self._waited = 0

    @property
    def step(self) -> int:
        """Return how many steps were made, when an epoch is over."""
        return self._per_epoch * len(self.scores)

    @property
    def epoch(self) -> int:
        """Return the epoch whose weights are chosen, counted from 1."""
        return self.scores.index(max(self.scores)) + 1 if self._how.select == "best" else len(self.scores)

    def run(self) -> None:
        """Train to the end."""
        self._restore()
        how, bar = self._how, Bar(self.steps, self.step)
        while len(self.scores) < how.epochs and (how.patience is None or self._waited < how.patience):
            epoch, before = len(self.scores), self.step
            order = self._next_order(epoch)
            for place in range(self._per_epoch):
                loss = self._train_step(before + place, order[place * how.batch : (place + 1) * how.batch].tolist())
                bar.show(before + place + 1, f"epoch {epoch + 1} of {how.epochs}, loss {loss:.3f}")
            self._judge_epoch()
            self._save()
        bar.close()

    def predict(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the logits of the chosen weights, [targets, classes]. `run` must have ended."""
        if self._best:
            self.model.load_state_dict(self._best)
        return self._logits(rows)

    def _next_order(self, epoch: int) -> torch.Tensor:
        """Return the order of the training rows in an epoch.

        By state: as PyTorch's DataLoader draws it from the global random numbers, which dropout uses, too. By epoch: as
        accelerate's SeedableRandomSampler does it.
        """
        _drawn()  # for the DataLoader's workers
        seed = _drawn() if self._how.shuffle == "state" else self._seed + epoch
        return torch.randperm(len(self._train), generator=torch.Generator().manual_seed(seed))

    def _train_step(self, step: int, numbers: list[int]) -> float:
        how, rows = self._how, [self._train[number] for number in numbers]
        for group in self._optimizer.param_groups:
            group["lr"] = how.learning_rate * rate_factor(step, self.steps, how)
        self.model.train()
        loss = F.cross_entropy(self._compute(rows), torch.from_numpy(targets(rows)).to(self._device))
        if not torch.isfinite(loss):
            raise UserError(f"the loss at step {step} is not a number: {DIVERGED if step else DAMAGED}")
        loss.backward()
        if how.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), how.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.detach())

    def _judge_epoch(self) -> None:
        """Score the epoch, and keep its weights if it is the best so far."""
        _drawn()
        score, highest = self._judge(self._logits), max(self.scores, default=-math.inf)
        self.scores.append(score)
        self._waited = 0 if score - highest > self._how.threshold else self._waited + 1
        if score > highest and self._how.select == "best":
            self._best = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        log.info("epoch %d: score %.4f", len(self.scores), score)

    def _compute(self, rows: Sequence[Row]) -> torch.Tensor:
        return self.model(**{name: tensor.to(self._device) for name, tensor in pad(rows, self._padding).items()})

    @torch.inference_mode()
    def _logits(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the logits of rows without dropout, [targets, classes]."""
        self.model.eval()
        parts = [rows[start : start + PREDICT_BATCH] for start in range(0, len(rows), PREDICT_BATCH)]
        logits = np.concatenate([self._compute(part).float().cpu().numpy() for part in parts])
        if not np.isfinite(logits).all():
            raise UserError(f"after epoch {len(self.scores) + 1}, the model's answers are not numbers: {DIVERGED}")
        return logits

    def _save(self) -> None:
        state = {"model": self.model.state_dict(), "best": self._best, "optimizer": self._optimizer.state_dict()}
        state |= {"scores": self.scores, "waited": self._waited, "random": torch.get_rng_state()}
        state["of_gpu"] = torch.cuda.get_rng_state() if self._device.type == "cuda" else None
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self._checkpoints.save(self.step, {"state": torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)}, {})

    def _restore(self) -> None:
        newest = self._checkpoints.newest()
        if not newest:
            return
        saved, _ = self._checkpoints.load(newest)
        state = torch.load(io.BytesIO(saved["state"].numpy().tobytes()), map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._best, self.scores, self._waited = state["best"], state["scores"], state["waited"]
        torch.set_rng_state(state["random"])
        if self._device.type == "cuda" and state["of_gpu"] is not None:
            torch.cuda.set_rng_state(state["of_gpu"])
        log.info("going on after epoch %d of %d", len(self.scores), self._how.epochs)


def held_out(rows: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the rows to train on, and of those that choose the best epoch, both in order.

    A UserError says that there are too few rows to hold any out.
    """
    count = round(rows * share)
    if not 0 < count < rows:
        raise UserError(
            f"{rows} training rows are too few to hold out {share:.0%} of them, which choose the best epoch"
        )
    order = np.random.default_rng(seed).permutation(rows)
    return sorted(order[count:].tolist()), sorted(order[:count].tolist())
