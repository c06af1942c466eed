"""Plan a run. What happens at a step is a pure function of the settings, the sizes of the shards and the step.

`plan.step(s)` gives sequence length, rows, objective of each row, mask rate, learning rate and numbers of targets.
There is no iterator to save: any process can ask for any step, in any order, and gets the same answer. So a run can
resume at any step, on any number of processes.

Rows are numbered through the whole run, and each row belongs to a language. At every prefix of the run, the proportions
of the languages are right to within two rows. Within a phase (a sequence length) each language's rows are counted from
0 and permuted anew in every epoch. With `train.order: documents`, the documents are permuted before they are cut into
rows, too (`rows.Shuffled`).
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from babelmill.config import schema
from babelmill.core.files import UserError
from babelmill.training.plan import randomness
from babelmill.training.plan.objectives import Objective, objective_of
from babelmill.training.plan.randomness import DOCUMENTS, ORDER, permutation
from babelmill.training.plan.rows import Packed, Rows, Shuffled
from babelmill.training.plan.schedule import PERIOD, learning_rate_factor, phase_starts, proportions, whole_run


@dataclass(frozen=True)
class Step:
    """Describes one optimizer step.

    Attributes:
        step: number of the step, counted from 0.
        length: tokens per row.
        rows: the global batch.
        mask_rate: share of hideable targets that are hidden, in rows that hide.
        learning_rate: learning rate of this step.
        weights: weight of a target of each kind of rows, before it is multiplied by the target's importance.
        tokens: number of tokens of all steps up to the end of this one.
    """

    step: int
    length: int
    rows: Rows
    mask_rate: float
    learning_rate: float
    weights: tuple[float, ...]
    tokens: int


def interleave(shares: np.ndarray) -> np.ndarray:
    """Return a schedule of PERIOD rows, [PERIOD] int64: the language of each row. Language l has `shares[l]` rows.

    The rows of each language are spread evenly: the j-th of s rows is due at (j + phase) / s of the period. The phase
    differs between languages (by the golden ratio), or rows of many small ones of the same size would come at once.
    """
    language = np.repeat(np.arange(len(shares)), shares)
    nth = np.concatenate([np.arange(share) for share in shares])
    phase = (0.5 + language * (5**0.5 - 1) / 2) % 1
    return language[np.argsort((nth + phase) / shares[language], kind="stable")]


class LanguageSchedule:
    """Says which language each row of the run belongs to."""

    def __init__(self, shares: np.ndarray):
        """Make the schedule. `shares` says how many of PERIOD rows belong to each language."""
        self.shares = shares
        self._schedule = interleave(shares)
        one_hot = self._schedule[:, None] == np.arange(len(shares))
        self._before = np.concatenate([np.zeros((1, len(shares)), np.int64), one_hot.cumsum(0)])

    def counts(self, rows: int) -> np.ndarray:
        """Return how many of the run's first `rows` rows belong to each language, [languages] int64."""
        return rows // PERIOD * self.shares + self._before[rows % PERIOD]

    def languages(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the language of each of `count` rows from `first` on, and its number among the language's rows."""
        periods, place = np.divmod(np.arange(first, first + count), PERIOD)
        language = self._schedule[place]
        return language, periods * self.shares[language] + self._before[place, language]


class Plan:
    """Describes all steps of a run.

    Args:
        train: the section `train`.
        weights: exponent of the mixture, see `proportions`.
        layouts: the rows of each language's training shard.
        blocks_weight: for the objective `labels`, see `LabelsObjective`.
        words: the number of words of each language's text; needed for `train.max_words`.

    Attributes:
        words_per_token: the mean number of words per token of the run; 0 if `words` are not given.

    Raises:
        UserError: a shard is empty, or a global batch is too small for the hybrid ratio.
    """

    def __init__(
        self,
        train: schema.Train,
        weights: float,
        layouts: Sequence[Packed],
        blocks_weight: float = 0.0,
        words: Sequence[float] = (),
    ):
        self.train = train
        self.objective = objective_of(train, blocks_weight)
        self.layouts = layouts
        self.tokens = sum(layout.tokens for layout in layouts)
        # Two orders of each language are kept, since an epoch begins within a step.
        self._order = [functools.lru_cache(2)(permutation) for _ in layouts]
        self._shuffled = [functools.lru_cache(2)(functools.partial(Shuffled, layout.offsets)) for layout in layouts]
        self.mixture = LanguageSchedule(proportions([layout.tokens for layout in layouts], weights))
        rates = [count / layout.tokens for count, layout in zip(words or [0] * len(layouts), layouts, strict=True)]
        self.words_per_token = float(self.mixture.shares @ np.array(rates)) / PERIOD
        self._lengths, rows = whole_run(train, self.tokens, self.words_per_token, self.objective.smallest_batch)
        self.steps = len(rows)
        self._first_rows = np.concatenate([[0], rows.cumsum()])
        self._tokens = np.concatenate([[0], (self._lengths * rows).cumsum()])
        self._starts = phase_starts(train, self.steps)
        if rows.min() < self.objective.smallest_batch:
            smallest = int(rows.argmin())
            raise UserError(
                f"train.global_batch_tokens = {train.global_batch_tokens} with train.batch_reduction ="
                f" {train.batch_reduction:g} gives {rows.min()} rows of {self._lengths[smallest]} tokens at step"
                f" {smallest}, fewer than the {self.objective.smallest_batch} that train.hybrid_ratio ="
                f" {train.hybrid_ratio} needs; raise global_batch_tokens, lower batch_reduction or simplify the ratio"
            )

    @property
    def groups(self) -> int:
        """Return the number of groups of targets, see `Objective`: each kind of rows of each language."""
        return len(self.layouts) * len(self.objective.kinds)

    def group_counts(self, rows: Rows) -> np.ndarray:
        """Return how many targets the targets of rows stand for, by group, [groups] int64."""
        counts = np.zeros((len(self.layouts), len(self.objective.kinds)), dtype=np.int64)
        np.add.at(counts, rows.language, self.objective.counts(rows.kind, rows.stands_for))
        return counts.reshape(-1)

    def rows_of(self, step: int) -> tuple[int, int]:
        """Return the number of rows of a step, and their length."""
        return int(self._first_rows[step + 1] - self._first_rows[step]), int(self._lengths[step])

    def tokens_until(self, steps: int) -> int:
        """Return the number of tokens of the first `steps` steps."""
        return int(self._tokens[steps])

    def words_until(self, steps: int) -> float:
        """Return the number of words of the first `steps` steps."""
        return self.words_per_token * self.tokens_until(steps)

    def first_step_with(self, tokens: float) -> int | None:
        """Return after how many steps the run has read `tokens` tokens, or None if it never does."""
        steps = int(np.searchsorted(self._tokens, tokens))
        return max(1, steps) if steps <= self.steps else None

    def epochs(self, steps: int) -> float:
        """Return how many passes over the training text the first `steps` steps make."""
        return self.tokens_until(steps) / self.tokens

    def step(self, step: int) -> Step:
        """Return everything about step `step`, counted from 0."""
        train = self.train
        phase = int(np.searchsorted(self._starts, step, side="right")) - 1
        rows = self._rows(step, phase)
        stand_for = self.objective.counts(rows.kind, rows.stands_for).sum(0)
        factor = learning_rate_factor(step, self.steps, train.warmup, train.cooldown, train.learning_rate_floor)
        return Step(
            step=step,
            length=int(self._lengths[step]),
            rows=rows,
            mask_rate=self.objective.mask_rate(step, self.steps),
            learning_rate=train.learning_rate * factor,
            weights=self.objective.weights([int(count) for count in stand_for]),
            tokens=self.tokens_until(step + 1),
        )

    def _rows(self, step: int, phase: int) -> Rows:
        length = int(self._lengths[step])
        first, last = int(self._first_rows[step]), int(self._first_rows[step + 1])
        language, index = self.mixture.languages(first, last - first)
        before = self.mixture.counts(int(self._first_rows[self._starts[phase]]))
        row = np.empty(len(index), dtype=np.int64)
        pieces = np.empty(len(index), dtype=object) if self.train.order == "documents" else None
        for i in np.unique(language):
            layout, mine = self.layouts[i], np.flatnonzero(language == i)
            epoch, position = np.divmod(index[mine] - before[i], layout.rows(length))
            for e in np.unique(epoch):
                now, about = mine[epoch == e], (phase, int(e), int(i))
                order = randomness.key(self.train.seed, ORDER, *about)
                row[now] = self._order[i](layout.rows(length), order)[position[epoch == e]]
                if pieces is not None:
                    order = randomness.key(self.train.seed, DOCUMENTS, *about)
                    pieces[now] = self._shuffled[i](order).pieces(*layout.bounds(row[now], length))
        begin, end, hideable, every = look_up(self.layouts, language, row, length, pieces)
        number = np.arange(first, last)
        aims = self.objective.aims(step, self.steps, index, number, hideable, every)
        return Rows(language, row, begin, end, aims.kind, aims.targets, number, aims.importance, pieces)


def look_up(
    layouts: Sequence[Packed], language: np.ndarray, row: np.ndarray, length: int, pieces: np.ndarray | None = None
) -> np.ndarray:
    """Return `begin` and `end` of rows (see `Rows`), and both numbers of `Packed.targets`: [4, rows] int64."""
    found = np.empty((4, len(row)), dtype=np.int64)
    for i in np.unique(language):
        layout, mine = layouts[i], language == i
        found[:2, mine] = layout.bounds(row[mine], length)
        if pieces is not None:
            counts = layout.targets_between(*np.concatenate(pieces[mine]).T)
            firsts = np.cumsum([0, *map(len, pieces[mine][:-1])])
            found[2:, mine] = np.add.reduceat(counts, firsts, axis=1)
        else:
            found[2:, mine] = layout.targets(row[mine], length)
    return found


def every_row(
    layouts: Sequence[Packed], length: int, objective: Objective, kind: int, tokens: int | None = None
) -> Rows:
    """Return each row of each language once, all of one kind, as validation reads them.

    If all languages have more than `tokens` tokens, rows with about this number are returned: the same share of each
    language, spread evenly over its text.
    """
    whole = sum(layout.tokens for layout in layouts)
    share = 1.0 if tokens is None or tokens >= whole else tokens / whole
    rows = [layout.rows(length) for layout in layouts]
    taken = [math.ceil(share * count) for count in rows]
    row = np.concatenate([np.arange(some) * count // some for some, count in zip(taken, rows, strict=True)])
    language, number = np.repeat(np.arange(len(layouts)), taken), np.arange(len(row))
    begin, end, hideable, every = look_up(layouts, language, row, length)
    aims = objective.validation_aims(kind, number, hideable, every)
    return Rows(language, row, begin, end, aims.kind, aims.targets, number, aims.importance)
