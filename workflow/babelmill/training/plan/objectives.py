"""Define what is learnt from a row: the interface `Objective` and its classes, each with an entry in `OBJECTIVES`.

An objective says which kinds of rows there are, how many targets each row has, how many targets each of them represents
(its importance), the weight of a target, and how the means of the kinds are combined. The loss itself (`loss.py`) does
not depend on the objective. It is a weighted sum over targets, so the losses of micro-batches and processes add up to
the loss of the global batch:

    loss = sum over targets of w r (cross-entropy + z logsumexp^2)

with importance r (1 unless the objective says otherwise) and w = share of the kind / sum of r over the targets of this
kind in the global batch. So the loss is the sum of the kinds' means, weighted by their shares. With `token_weighted`
all targets have the same weight.

This file does not import torch, so that a login node can plan with it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numpy as np

from babelmill.config import schema
from babelmill.runtime.cost import Amount
from babelmill.training.plan import randomness
from babelmill.training.plan.randomness import RATES, ROUNDING

GOLDEN_RATIO = (5**0.5 - 1) / 2  # its multiples, modulo 1, fill [0, 1) more evenly than those of other numbers


class Kind(NamedTuple):
    """Describes a kind of rows.

    Attributes:
        name: its name in the record (`loss_{name}`).
        hides: whether its targets are hidden from the model; then positions attend to both sides. In rows of other
            kinds, nothing is hidden, all tokens are targets, and positions attend only to earlier ones.
    """

    name: str
    hides: bool


class Hiding(NamedTuple):
    """Says how tokens are hidden, in rows of a kind that hides them.

    Attributes:
        random, keep: share of the chosen spans that become random tokens, and share that stay as they are; the others
            become `<mask>`.
        longest_span: spans are 1 to this many tokens long, each length equally often.
        ends: whether the end of a document may be hidden, too.
    """

    random: float = 0.1
    keep: float = 0.1
    longest_span: int = 3
    ends: bool = False


@dataclass(frozen=True)
class Aims:
    """Says what to learn from rows: arrays of [rows].

    Attributes:
        kind: int64, index of the row's kind among the objective's kinds.
        targets: int64, number of targets; in rows of a kind that hides, these are hidden.
        importance: float64, how many targets each target represents; None if each represents one.
    """

    kind: np.ndarray
    targets: np.ndarray
    importance: np.ndarray | None = None


class Objective(ABC):
    """Decides what is learnt from rows.

    Args:
        train: the section `train`.

    Attributes:
        kinds: the kinds of rows; in rows of the last kind, all tokens may be targets. The group of a target is
            (number of kinds) * language + kind.
        shares: share of each kind in the loss; they add up to 1. A kind with share 0 does not occur.
        token_weighted: whether all targets have the same weight; then `shares` do not weigh them.
        hiding: how the rows hide tokens.
        smallest_batch: the fewest rows of a global batch.
    """

    kinds: ClassVar[tuple[Kind, ...]]
    shares: tuple[float, ...] = (1.0,)
    token_weighted: bool = False
    smallest_batch: int = 1
    hiding: Hiding = Hiding()

    def __init__(self, train: schema.Train):
        self.train = train

    @abstractmethod
    def aims(
        self, step: int, steps: int, index: np.ndarray, number: np.ndarray, hideable: np.ndarray, every: np.ndarray
    ) -> Aims:
        """Return what to learn from the rows of a global batch. This is a pure function.

        Args:
            step: number of the step, counted from 0.
            steps: number of steps of the run.
            index: [rows], number of each row among its language's rows, counted over the whole run.
            number: [rows], number of each row in the whole run.
            hideable: [rows], number of targets of each row, without special tokens.
            every: [rows], number of targets of each row, with ends of documents.
        """

    def validation_aims(self, kind: int, number: np.ndarray, hideable: np.ndarray, every: np.ndarray) -> Aims:
        """Return what validation rows of this kind measure, at all steps of a run: by default as at the first step."""
        return self.aims(0, 1, number, number, hideable, every)

    def mask_rate(self, step: Amount, steps: int) -> Amount:
        """Return the mean share of hideable targets that rows hide, at a step (or an array of steps) of `steps`."""
        return 0 * step

    def target_share(self, mask_rate: Amount) -> Amount:
        """Return the number of targets per position, at a mask rate (or an array of them)."""
        return mask_rate

    @property
    def occurring(self) -> list[int]:
        """Return the indices of the kinds that occur."""
        return [kind for kind, share in enumerate(self.shares) if share]

    @property
    def validated(self) -> list[int]:
        """Return the indices of the kinds of rows that validation measures, one after another."""
        return self.occurring

    def counts(self, kind: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return how many targets of each kind each row has, [rows, kinds] int64. All targets of a row have its kind.

        Args:
            kind: [rows].
            targets: [rows], how many targets the targets of each row represent.
        """
        counts = np.zeros((len(kind), len(self.kinds)), dtype=np.int64)
        counts[np.arange(len(kind)), kind] = targets
        return counts

    def weights(self, targets: Sequence[int]) -> tuple[float, ...]:
        """Return the weight of a target of each kind. `targets` says how many of each the global batch represents."""
        if self.token_weighted:
            return (1 / max(1, sum(targets)),) * len(targets)
        return tuple(share / max(1, count) for share, count in zip(self.shares, targets, strict=True))

    def combine(self, means: Sequence[float | None]) -> float | None:
        """Combine the kinds' means (losses, accuracies) as in the loss. Return None if there are no targets."""
        pairs = zip(means, self.shares, strict=True)
        parts = [(value, share) for value, share in pairs if value is not None and share]
        return sum(value * share for value, share in parts) / sum(share for _, share in parts) if parts else None


class Hybrid(Objective):
    """Mixes masked and causal rows in a fixed proportion. Both predict token t + 1 at position t.

    The objectives `masked` and `causal` have rows of one kind only.
    """

    kinds = (Kind("masked", hides=True), Kind("causal", hides=False))

    def __init__(self, train: schema.Train):
        super().__init__(train)
        pure = {"masked": Fraction(1), "causal": Fraction(0)}
        self.masked_share = pure.get(train.objective, Fraction(train.hybrid_ratio))
        self.shares = float(self.masked_share), 1 - float(self.masked_share)
        self.token_weighted = train.token_weighted
        self.smallest_batch = self.masked_share.denominator
        self.hiding = Hiding(train.mask_random, train.mask_keep)

    def _masked(self, index: np.ndarray) -> np.ndarray:
        """Return whether the `index`-th row of a language, counted over the whole run, is masked; [n] bool.

        Row i is masked if floor((i + 1) n/d) > floor(i n/d). So the share is right to within one row at every prefix.
        Rows are counted per language: one count over all languages would tie kinds to languages. (If two languages
        take turns and half of the rows are masked, all rows of one language would be masked, and none of the other.)
        """
        n, d = self.masked_share.numerator, self.masked_share.denominator
        return (index + 1) * n // d > index * n // d

    def aims(
        self, step: int, steps: int, index: np.ndarray, number: np.ndarray, hideable: np.ndarray, every: np.ndarray
    ) -> Aims:
        """See `Objective.aims`."""
        masked = self._masked(index)
        rounding = randomness.uniform(randomness.key(self.train.seed, ROUNDING, number))
        hidden = masked_targets(hideable, self.mask_rate(step, steps), rounding)
        return Aims(np.where(masked, 0, 1), np.where(masked, hidden, every))

    def validation_aims(self, kind: int, number: np.ndarray, hideable: np.ndarray, every: np.ndarray) -> Aims:
        """See `Objective.validation_aims`: the mask rate is that of the last step."""
        hidden = masked_targets(hideable, self.train.mask_rate_end, 0.5)
        return Aims(np.full(len(number), kind), every if kind else hidden)

    def mask_rate(self, step: Amount, steps: int) -> Amount:
        """Return the share of hideable targets that masked rows hide; it changes linearly."""
        first, last = self.train.mask_rate_start, self.train.mask_rate_end
        return first + (last - first) * step / steps

    def target_share(self, mask_rate: Amount) -> Amount:
        """See `Objective.target_share`."""
        share, _ = self.shares
        return share * mask_rate + 1 - share


class Diffusion(Objective):
    """Trains masked diffusion (LLaDA, Nie et al., 2025, arXiv:2502.09992): rows hide from one token to all tokens.

    LLaDA hides each token with probability t and divides its cross-entropy by t. Here a row with e targets hides
    exactly k = 1 + floor(t e) of them, and each represents e / k targets. The expectation is the same, but the plan
    knows the counts, and t is spread evenly over the rows of a batch. The loss is sum (e / k) cross-entropy / sum e.
    """

    kinds = (Kind("diffusion", hides=True),)
    hiding = Hiding(random=0.0, keep=0.0, longest_span=1, ends=True)

    @staticmethod
    def _at(time: np.ndarray, every: np.ndarray) -> Aims:
        """Return what to learn from rows with `every` targets, at times in [0, 1); both are [rows]."""
        hidden = np.minimum(every, 1 + np.floor(time * every).astype(np.int64))
        return Aims(np.zeros_like(every), hidden, every / np.maximum(hidden, 1))

    def aims(
        self, step: int, steps: int, index: np.ndarray, number: np.ndarray, hideable: np.ndarray, every: np.ndarray
    ) -> Aims:
        """See `Objective.aims`."""
        first = randomness.uniform(randomness.key(self.train.seed, RATES, step))
        return self._at((first + GOLDEN_RATIO * np.arange(len(every))) % 1, every)

    def validation_aims(self, kind: int, number: np.ndarray, hideable: np.ndarray, every: np.ndarray) -> Aims:
        """See `Objective.validation_aims`."""
        return self._at(GOLDEN_RATIO * number % 1, every)

    def mask_rate(self, step: Amount, steps: int) -> Amount:
        """Return the mean share, which is the same at all steps."""
        return 0.5 + 0 * step


class LabelsObjective(Objective):
    """Trains a model to predict the codes of a document, as classes and symbol by symbol (`labels/network.py`).

    A row has one target of the kind `classes`, and one target of the kind `blocks` per code. A row without a code that
    the model knows does not count. `blocks_weight` is the share of the codes in the loss; the costs of a run do not
    depend on it.
    """

    kinds = (Kind("blocks", hides=False), Kind("classes", hides=False))

    def __init__(self, train: schema.Train, blocks_weight: float = 0.0):
        super().__init__(train)
        self.shares = blocks_weight, 1 - blocks_weight

    @property
    def validated(self) -> list[int]:
        """See `Objective.validated`: one pass over a row measures both kinds."""
        return [1]

    def counts(self, kind: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """See `Objective.counts`."""
        return np.stack([targets if self.shares[0] else 0 * targets, targets > 0], 1).astype(np.int64)

    def weights(self, targets: Sequence[int]) -> tuple[float, ...]:
        """Return the weights of a spelt code, of a row's classes, and of a row's empty blocks."""
        codes, rows = (max(1, count) for count in targets)
        return self.shares[0] / codes, self.shares[1] / rows, self.shares[0] / rows

    def aims(
        self, step: int, steps: int, index: np.ndarray, number: np.ndarray, hideable: np.ndarray, every: np.ndarray
    ) -> Aims:
        """See `Objective.aims`."""
        return Aims(np.ones_like(every), every)


OBJECTIVES: dict[str, type[Objective]] = {
    "hybrid": Hybrid,
    "masked": Hybrid,
    "causal": Hybrid,
    "diffusion": Diffusion,
    "labels": LabelsObjective,
}


def objective_of(train: schema.Train, blocks_weight: float = 0.0) -> Objective:
    """Return the objective of these settings. For `blocks_weight`, see `LabelsObjective`."""
    if train.objective == "labels":
        return LabelsObjective(train, blocks_weight)
    return OBJECTIVES[train.objective](train)


def hides_alone(objective: Objective) -> bool:
    """Return whether all rows hide their targets. Then a model that always reads both sides is enough."""
    return all(objective.kinds[kind].hides for kind in objective.occurring)


def masked_targets(maskable: np.ndarray, mask_rate: float, rounding: np.ndarray | float) -> np.ndarray:
    """Return how many of each row's maskable targets are masked: max(1, floor(p e + u)), or 0 if e is 0."""
    return np.minimum(maskable, np.maximum(1, np.floor(mask_rate * maskable + rounding).astype(np.int64)))
