"""What happens at each step: a pure function of the settings, the sizes of the shards and the step.

`plan.step(s)` gives sequence length, rows, objective of each row, mask rate, learning rate and numbers of targets.
There is no iterator to save: any process asks for any step, in any order, and gets the same answer. So a run resumes
anywhere, on any number of processes.

Rows are numbered through the whole run, and each belongs to a language, in proportions that hold within one row at
every prefix. Within a phase (a sequence length) each language's rows are counted from 0 and permuted anew in every
epoch.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from babelmill.config import schema
from babelmill.core.files import UserError
from babelmill.training import randomness
from babelmill.training.amounts import mask_rate
from babelmill.training.batches import Rows, TokenCounts
from babelmill.training.objectives import Objective
from babelmill.training.randomness import ORDER, ROUNDING
from babelmill.training.schedule import learning_rate_factor, phase_starts, rows_by_step, steps_for

PERIOD = 2**16  # language proportions are multiples of 1 / PERIOD, so that their schedule repeats


@dataclass(frozen=True)
class Step:
    """One optimizer step.

    Attributes:
        step: counted from 0.
        phase: index of the phase.
        length: tokens per row.
        rows: the global batch.
        mask_rate: share of maskable targets masked in masked rows.
        learning_rate: of this step.
        weights: of a target in masked and in causal rows.
        tokens: of all steps up to the end of this one.
    """

    step: int
    phase: int
    length: int
    rows: Rows
    mask_rate: float
    learning_rate: float
    weights: tuple[float, float]
    tokens: int


def proportions(tokens: list[int], weights: float) -> np.ndarray:
    """Return the rows of each language out of PERIOD, at least one each, [languages] int64.

    Args:
        tokens: size of each language's stream.
        weights: the exponent of the size (Conneau et al., 2020: 0.3).
    """
    size = np.array(tokens, dtype=np.float64) ** weights
    exact = size / size.sum() * PERIOD
    whole = np.maximum(1, np.floor(exact)).astype(np.int64)
    missing = PERIOD - int(whole.sum())
    if missing > 0:  # largest remainders first
        whole[np.argsort(whole - exact, kind="stable")[:missing]] += 1
    whole[whole.argmax()] += min(missing, 0)  # what the smallest languages were given to have one row
    return whole


def interleave(shares: np.ndarray) -> np.ndarray:
    """Return a schedule of PERIOD rows, [PERIOD] int: the language of each, `shares[l]` rows of language l.

    Every prefix of g rows has between g w - 1 and g w + 1 rows of a language with share w: row j of it is due after
    j / w and before (j + 1) / w rows, and earliest due date first meets all such windows (Baruah et al., 1996).
    """
    if len(shares) == 1:
        return np.zeros(PERIOD, dtype=np.int64)
    language = np.repeat(np.arange(len(shares)), shares)
    nth = np.concatenate([np.arange(share) for share in shares])
    release = nth * PERIOD // shares[language]
    due = -(-(nth + 1) * PERIOD // shares[language])
    waiting: list[tuple[int, int]] = []
    arrivals = np.argsort(release, kind="stable")
    schedule, arrived = np.empty(PERIOD, dtype=np.int64), 0
    for position in range(PERIOD):
        while arrived < PERIOD and release[arrivals[arrived]] <= position:
            row = arrivals[arrived]
            heapq.heappush(waiting, (int(due[row]), int(language[row])))
            arrived += 1
        schedule[position] = heapq.heappop(waiting)[1]
    return schedule


class LanguageSchedule:
    """Which language each row of the run belongs to."""

    def __init__(self, shares: np.ndarray):
        """`shares`: rows of each language out of PERIOD."""
        self.shares = shares
        self._schedule = interleave(shares)
        one_hot = self._schedule[:, None] == np.arange(len(shares))
        self._before = np.concatenate([np.zeros((1, len(shares)), np.int64), one_hot.cumsum(0)])

    def counts(self, rows: int) -> np.ndarray:
        """Return how many of the run's first `rows` rows belong to each language, [languages] int64."""
        return rows // PERIOD * self.shares + self._before[rows % PERIOD]

    def languages(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the languages of `count` rows from `first`, and the number of each among its language's rows."""
        language = self._schedule[np.arange(first, first + count) % PERIOD]
        index = np.empty(count, dtype=np.int64)
        for i, before in enumerate(self.counts(first)):
            mine = np.flatnonzero(language == i)
            index[mine] = before + np.arange(len(mine))
        return language, index


class Plan:
    """All steps of a run.

    Args:
        train: the shape of the run.
        weights: the mixture's, see `proportions`.
        counts: token counts of each language's training shard.

    Raises:
        UserError: a shard is empty, or a global batch is too small for the hybrid ratio.
    """

    def __init__(self, train: schema.Train, weights: float, counts: list[TokenCounts]):
        self.train = train
        self.objective = Objective.of(train)
        self.counts = counts
        self.tokens = sum(count.tokens for count in counts)
        self.steps = steps_for(train, self.tokens)
        self.mixture = LanguageSchedule(proportions([count.tokens for count in counts], weights))
        self._lengths, rows = rows_by_step(train, self.steps)
        self._first_rows = np.concatenate([[0], rows.cumsum()])
        self._tokens = np.concatenate([[0], (self._lengths * rows).cumsum()])
        self._starts = phase_starts(train, self.steps)
        if rows.min() < self.objective.masked_share.denominator:
            smallest = int(rows.argmin())
            raise UserError(
                f"train.global_batch_tokens = {train.global_batch_tokens} with train.batch_reduction ="
                f" {train.batch_reduction:g} gives {rows.min()} rows of {self._lengths[smallest]} tokens at step"
                f" {smallest}, fewer than the {self.objective.masked_share.denominator} that train.hybrid_ratio ="
                f" {train.hybrid_ratio} needs; raise global_batch_tokens, lower batch_reduction or simplify the ratio"
            )

    def tokens_until(self, steps: int) -> int:
        """Return the tokens of the first `steps` steps."""
        return int(self._tokens[steps])

    def epochs(self, steps: int) -> float:
        """Return the passes over the training text in the first `steps` steps."""
        return self.tokens_until(steps) / self.tokens

    def step(self, step: int) -> Step:
        """Return everything about step `step`, counted from 0."""
        train = self.train
        rate = mask_rate(train, step, self.steps)
        phase = int(np.searchsorted(self._starts, step, side="right")) - 1
        rows = self._rows(step, phase, rate)
        factor = learning_rate_factor(step, self.steps, train.warmup, train.cooldown, train.learning_rate_floor)
        return Step(
            step=step,
            phase=phase,
            length=int(self._lengths[step]),
            rows=rows,
            mask_rate=rate,
            learning_rate=train.learning_rate * factor,
            weights=self.objective.weights(int(rows.masked_targets.sum()), int(rows.causal_targets.sum())),
            tokens=self.tokens_until(step + 1),
        )

    def _rows(self, step: int, phase: int, mask_rate: float) -> Rows:
        length = int(self._lengths[step])
        first, end = int(self._first_rows[step]), int(self._first_rows[step + 1])
        language, index = self.mixture.languages(first, end - first)
        before = self.mixture.counts(int(self._first_rows[self._starts[phase]]))
        row, maskable, causal = (np.empty(len(index), dtype=np.int64) for _ in range(3))
        for i in np.unique(language):
            count, mine = self.counts[i], language == i
            epoch, position = np.divmod(index[mine] - before[i], count.rows(length))
            for e in np.unique(epoch):
                order = randomness.key(self.train.seed, ORDER, phase, int(e), int(i))
                row[np.flatnonzero(mine)[epoch == e]] = randomness.permute(
                    position[epoch == e], count.rows(length), order
                )
            maskable[mine], causal[mine] = (targets[row[mine]] for targets in count.targets(length))
        masked = self.objective.masked(index)
        number = np.arange(first, end)
        rounding = randomness.uniform(randomness.key(self.train.seed, ROUNDING, number))
        return Rows(
            language=language,
            row=row,
            masked=masked,
            masked_targets=np.where(masked, masked_targets(maskable, mask_rate, rounding), 0),
            causal_targets=np.where(masked, 0, causal),
            number=number,
        )


def masked_targets(maskable: np.ndarray, mask_rate: float, rounding: np.ndarray | float) -> np.ndarray:
    """Return how many of each row's maskable targets are masked: max(1, floor(p e + u)), 0 where there is none."""
    return np.minimum(maskable, np.maximum(1, np.floor(mask_rate * maskable + rounding).astype(np.int64)))


def split(rows: Rows, size: int) -> list[Rows]:
    """Cut rows into parts of `size`; the last may be short."""
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def every_row(counts: list[TokenCounts], length: int, mask_rate: float, masked: bool) -> Rows:
    """Return all rows of all languages once, all masked or all causal: what validation goes through."""
    rows = [count.rows(length) for count in counts]
    maskable, causal = (np.concatenate(t) for t in zip(*(count.targets(length) for count in counts), strict=True))
    number = np.arange(sum(rows))
    return Rows(
        language=np.repeat(np.arange(len(counts)), rows),
        row=np.concatenate([np.arange(n) for n in rows]),
        masked=np.full(len(number), masked),
        masked_targets=masked_targets(maskable, mask_rate, 0.5) if masked else np.zeros_like(number),
        causal_targets=np.zeros_like(number) if masked else causal,
        number=number,
    )
