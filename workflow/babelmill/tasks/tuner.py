"""Fine-tune a classifier for a task, step by step, so that a killed job goes on with the same bits.

A plain loop of its own, and not the Trainer of transformers: the challenge's numbers need its head, its order of rows
and its schedule; a checkpoint holds all that the next step depends on (weights, optimizer, random numbers, the place in
the epoch), so a resumed run ends with the same weights as one that was never stopped.

Protocols (`config/protocols/`) say how: `babylm` is the loop of the BabyLM challenge, `babylm_multilingual` that of
transformers' Trainer with its defaults, which the multilingual track uses, and `sound` chooses the best epoch by rows
that are neither trained on nor scored.
"""

import itertools
import logging
import math
import operator
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F

from babelmill.config.entries import Tuning
from babelmill.core.bars import Bar
from babelmill.core.escape import some
from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.runtime.checkpoint import Checkpoints
from babelmill.runtime.slurm import Stop
from babelmill.tasks import metrics

SAVE_EVERY = 600.0  # seconds between checkpoints within an epoch
PREDICT_BATCH = 64  # rows per batch without training
AT_ONCE = 2**20  # characters that are encoded at once: this takes a hundred times as much memory
PER_TOKEN = 20  # characters: no text has tokens so long, so what is beyond as many times `longest` is never read
DAMAGED = "the weights of this model are damaged; replace the model"
DIVERGED = "the fine-tuning diverged; lower learning_rate in `tuning` of the task"

log = logging.getLogger("babelmill.tune")


class Rows(Protocol):
    """What the training needs of the rows of a task: `EncodedRows`, or `sentences.EncodedSentences`."""

    def __len__(self) -> int: ...

    def batch(self, rows: Sequence[int], padding: "Padding") -> list[torch.Tensor]:
        """Return what the model is given of some rows."""
        ...

    def targets(self, rows: Sequence[int]) -> np.ndarray:
        """Return the classes that the model should give these rows, in the order of its logits."""
        ...

    def score(self, metric: str, logits: np.ndarray) -> float:
        """Return a metric of the logits of all rows."""
        ...


@dataclass(frozen=True)
class EncodedRows:
    """Rows as a model reads them."""

    ids: list[list[int]]  # the token ids of each row, with special tokens, cut to the length of the protocol
    labels: np.ndarray  # [rows] int64, the number of each row's class
    cut: int  # how many rows were longer than the protocol allows
    # to which text of a pair each token belongs (0 or 1), for models such as BERT that read it; None for others
    types: list[list[int]] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def chosen(self, rows: Sequence[int]) -> "EncodedRows":
        types = self.types and [self.types[row] for row in rows]
        return EncodedRows([self.ids[row] for row in rows], self.labels[list(rows)], 0, types)

    def and_those_of(self, other: "EncodedRows") -> "EncodedRows":
        """Return these rows and, after them, others."""
        types = self.types + other.types if self.types is not None and other.types is not None else None
        labels = np.concatenate([self.labels, other.labels])
        return EncodedRows(self.ids + other.ids, labels, self.cut + other.cut, types)

    def targets(self, rows: Sequence[int]) -> np.ndarray:
        return self.labels[rows]

    def score(self, metric: str, logits: np.ndarray) -> float:
        return metrics.value(metric, self.labels, logits.argmax(1), logits.shape[1])

    def batch(self, rows: Sequence[int], padding: "Padding") -> list[torch.Tensor]:
        """Return what the model is given of some rows: ids, attention mask and types, if any; [B, T] each."""
        ids, there = batch_of([self.ids[row] for row in rows], padding)
        if self.types is None:
            return [ids, there]
        return [ids, there, batch_of([self.types[row] for row in rows], padding._replace(token=0))[0]]


def encode(tokenizer: Any, texts: list[str], pairs: list[str | None], labels: np.ndarray, longest: int) -> EncodedRows:
    """Encode texts, or pairs of texts, as the tokenizer does it; the longer text of a pair loses its end first.

    A tokenizer keeps what it cuts off, and for a pair each piece of one text with each piece of the other: two texts of
    100 kB take all memory. So their ends are cut off before.
    """
    texts = [text[: PER_TOKEN * longest] for text in texts]
    pairs = [pair and pair[: PER_TOKEN * longest] for pair in pairs]
    ids, types, cut = [], [], 0
    sizes = [len(text) + len(pair or "") for text, pair in zip(texts, pairs, strict=True)]
    of_row = (np.cumsum(sizes) // AT_ONCE).tolist()
    for _, rows in itertools.groupby(zip(of_row, texts, pairs, strict=True), key=operator.itemgetter(0)):
        _, firsts, seconds = zip(*rows, strict=True)
        given = (list(firsts),) if None in seconds else (list(firsts), list(seconds))
        found = tokenizer(*given, verbose=False)  # no warning of the length, which is counted
        if longer := sum(len(row) > longest for row in found["input_ids"]):
            found = tokenizer(*given, truncation=True, max_length=longest)
            cut += longer
        ids += map(list, found["input_ids"])
        types += found.get("token_type_ids", []) if len(given) == 2 else []
    return EncodedRows(ids, labels, cut, types or None)


class Padding(NamedTuple):
    """How rows become a batch: the padding token, the side it stands on, and the length of all batches (None: auto)."""

    token: int
    left: bool
    length: int | None


def batch_of(rows: Sequence[list[int]], padding: Padding) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows as a batch and its attention mask, both [rows, longest]."""
    length = padding.length or max(map(len, rows))
    ids, there = np.full((len(rows), length), padding.token), np.zeros((len(rows), length), np.int64)
    for row, tokens in enumerate(rows):
        place = slice(length - len(tokens), length) if padding.left else slice(len(tokens))
        ids[row, place], there[row, place] = tokens, 1
    return torch.from_numpy(ids), torch.from_numpy(there)


def rate_factor(step: int, steps: int, how: Tuning) -> float:
    """Return the learning rate at a step, as a share of its peak: a linear warm-up, then down to `floor`."""
    rising = int(how.warmup * steps)
    if step < rising:
        return step / max(1, rising)
    progress = (step - rising) / max(1, steps - rising)
    if how.schedule == "linear":
        return max(how.floor, 1 - progress)
    return max(how.floor, how.floor + (1 - how.floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def set_seed(seed: int) -> None:
    """Seed all random numbers from which heads, orders and dropout are drawn."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _seed_of_workers() -> None:
    """Draw the number that each DataLoader draws when it begins, so that what is drawn later (dropout) is the same."""
    torch.empty((), dtype=torch.int64).random_()


class Outcome(NamedTuple):
    """What a fine-tuning found."""

    logits: np.ndarray  # [test rows or their words, classes] of the chosen weights
    epoch: int  # the epoch after which the weights were chosen, counted from 1
    epochs: int  # how many epochs were trained
    chosen_by: list[float]  # the score of each epoch on the rows that chose it


class Tuner:
    """Trains a classifier on the rows `train` and chooses the weights of an epoch, by a metric of the rows `judge`.

    The model returns logits [targets, classes] of what `Rows.batch` gives, and was made after `set_seed`. `how` is the
    protocol. If it shuffles by epoch, the order of rows follows from `seed`. Checkpoints are kept in `folder`. A
    UserError says that there are fewer rows than one batch has.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        how: Tuning,
        seed: int,
        metric: str,
        train: Rows,
        judge: Rows,
        padding: Padding,
        folder: Path,
        device: torch.device,
    ):
        if len(train) < how.batch:
            raise UserError(
                f"there are {len(train)} rows to train on, fewer than a batch of {how.batch} (`batch` of the task)"
            )
        self._model, self._how, self._seed, self._metric = model.to(device), how, seed, metric
        self._train, self._judge, self._padding, self._device = train, judge, padding, device
        self._checkpoints = Checkpoints(folder, keep=1)
        self._per_epoch = len(train) // how.batch  # the last incomplete batch of an epoch is left out
        self._steps = self._per_epoch * how.epochs
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=how.learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=how.weight_decay
        )
        self._step = 0
        self._order = torch.zeros(0, dtype=torch.int64)
        self._best: dict[str, torch.Tensor] = {}
        self._scores: list[float] = []
        self._chosen = self._waited = 0
        self._began, self._earlier = time.monotonic(), 0.0
        self._highest = -math.inf

    def run(self, stop: Stop) -> bool:
        """Train to the end. Return False if there was a reason to leave before; a checkpoint then has the state."""
        self._began = time.monotonic()
        self._restore()
        bar, saved = Bar(self._steps, self._step), time.monotonic()
        longest = 0.0
        while self._step < self._steps and not self._is_over():
            began = time.monotonic()
            epoch, place = divmod(self._step, self._per_epoch)
            if place == 0:
                self._order = self._next_order(epoch)
            loss = self._train_step(place)
            self._step += 1
            if place + 1 == self._per_epoch:
                self._judge_epoch(epoch + 1)
            reason = stop.reason(2 * longest)
            if reason or place + 1 == self._per_epoch or time.monotonic() - saved > SAVE_EVERY:
                self._save()
                saved = time.monotonic()
            longest = max(longest, time.monotonic() - began)
            if reason:
                log.info(
                    "%s: left after step %d of %d; the same command goes on there", reason, self._step, self._steps
                )
                return False
            bar.show(self._step, f"epoch {epoch + 1} of {self._how.epochs}, loss {loss:.3f}")
        bar.close()
        equal = [str(epoch) for epoch, score in enumerate(self._scores, 1) if score == self._highest]
        if self._how.select == "best" and len(equal) > 1:
            rows = plural(len(self._judge), "row")
            log.info("epochs %s are equally good on the %s that choose: the first of them counts", some(equal), rows)
        return True

    def outcome(self, test: Rows) -> Outcome:
        """Return what the chosen weights say of the test rows. `run` must have ended."""
        if self._how.select == "best":
            self._model.load_state_dict(self._best)
            chosen = self._chosen
        else:
            chosen = len(self._scores)
        return Outcome(self._logits(test), chosen, len(self._scores), self._scores)

    @property
    def seconds(self) -> float:
        """Return how long all attempts have run up to now, without what they lost when they were killed."""
        return self._earlier + time.monotonic() - self._began

    @property
    def model(self) -> torch.nn.Module:
        """Return the model; after `outcome` with the chosen weights."""
        return self._model

    def _next_order(self, epoch: int) -> torch.Tensor:
        """Return the order of the training rows in an epoch.

        By state: as PyTorch's DataLoader draws it from the global random numbers, which dropout uses, too. By epoch: as
        accelerate's SeedableRandomSampler does it.
        """
        _seed_of_workers()
        generator = torch.Generator()
        if self._how.shuffle == "state":
            generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_()))
        else:
            generator.manual_seed(self._seed + epoch)
        return torch.randperm(len(self._train), generator=generator)

    def _train_step(self, place: int) -> float:
        how = self._how
        rows = self._order[place * how.batch : (place + 1) * how.batch].tolist()
        given = self._train.batch(rows, self._padding)
        labels = torch.from_numpy(self._train.targets(rows))
        for group in self._optimizer.param_groups:
            group["lr"] = how.learning_rate * rate_factor(self._step, self._steps, how)
        self._model.train()
        logits = self._model(*(tensor.to(self._device) for tensor in given))
        loss = F.cross_entropy(logits, labels.to(self._device))
        if not torch.isfinite(loss):
            raise UserError(f"the loss at step {self._step} is not a number: {DIVERGED if self._step else DAMAGED}")
        loss.backward()
        if how.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), how.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.detach())

    def _judge_epoch(self, epoch: int) -> None:
        """Score the epoch on the rows that choose it, and keep its weights if it is the best so far."""
        _seed_of_workers()
        logits = self._logits(self._judge)
        score = self._judge.score(self._metric, logits)
        self._scores.append(score)
        is_better = score > self._highest
        self._waited = 0 if score - self._highest > self._how.threshold else self._waited + 1
        if is_better:
            self._highest, self._chosen = score, epoch
            if self._how.select == "best":
                self._best = {name: tensor.clone() for name, tensor in self._model.state_dict().items()}
        told = ", better than all before" if is_better and epoch > 1 else ""
        log.info("epoch %d: %s %.4f%s", epoch, self._metric, score, told)

    def _is_over(self) -> bool:
        return self._how.patience is not None and self._waited >= self._how.patience

    @torch.inference_mode()
    def _logits(self, rows: Rows) -> np.ndarray:
        """Return the logits of rows without dropout, [targets, classes]."""
        self._model.eval()
        found = []
        for start in range(0, len(rows), PREDICT_BATCH):
            given = rows.batch(range(start, min(start + PREDICT_BATCH, len(rows))), self._padding)
            found.append(self._model(*(tensor.to(self._device) for tensor in given)).float().cpu().numpy())
        logits = np.concatenate(found)
        if not np.isfinite(logits).all():
            raise UserError(f"after step {self._step}, the model's answers are not numbers: {DIVERGED}")
        return logits

    def _save(self) -> None:
        tensors = {f"model.{name}": tensor for name, tensor in self._model.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self._best.items()}
        moments = self._optimizer.state_dict()["state"]
        for number, state in moments.items():
            tensors |= {f"optimizer.{number}.{key}": value for key, value in state.items()}
        tensors |= {"order": self._order, "random": torch.get_rng_state()}
        if self._device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state()
        state = {"scores": self._scores, "chosen": self._chosen, "waited": self._waited, "seconds": self.seconds}
        self._checkpoints.save(self._step, tensors, state)

    def _restore(self) -> None:
        step = self._checkpoints.newest()
        if not step:
            return
        saved, state = self._checkpoints.load(step)
        parts: dict[str, dict[str, torch.Tensor]] = {"model": {}, "best": {}, "optimizer": {}}
        for key in saved:
            part, _, name = key.partition(".")
            if part in parts:
                parts[part][name] = saved[key]
        self._model.load_state_dict(parts["model"])
        moments: dict[int, dict[str, torch.Tensor]] = {}
        for name, tensor in parts["optimizer"].items():
            number, _, key = name.partition(".")
            moments.setdefault(int(number), {})[key] = tensor
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self._best = {name: tensor.to(self._device) for name, tensor in parts["best"].items()}
        self._step, self._order = step, saved["order"]
        self._scores, self._chosen, self._waited = state["scores"], state["chosen"], state["waited"]
        self._highest, self._earlier = max(self._scores, default=-math.inf), state.get("seconds", 0.0)
        torch.set_rng_state(saved["random"])
        if self._device.type == "cuda" and "random.cuda" in saved:
            torch.cuda.set_rng_state(saved["random.cuda"])
        log.info("going on after step %d of %d", step, self._steps)


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
