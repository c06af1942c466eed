"""What is learnt from a row, behind one small interface: `Objective`, with an entry in `OBJECTIVES` for each.

An objective says which kinds of rows there are, how many targets each row has, how many targets one of them stands for
(its importance), what a target weighs, and how the means of the kinds combine. The loss itself (`loss.py`) knows
nothing of objectives: it is a weighted sum over targets, so that micro-batches and processes simply add up to the loss
of the global batch:

    loss = sum over targets of w r (cross-entropy + z logsumexp^2)

with importance r (1 but where an objective says otherwise) and w = share of the kind / sum of r over the targets of
this kind in the global batch: the means of the kinds, weighted by their shares. With `token_weighted` each target
weighs the same.

Without torch, so that a login node can plan with it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from babelmill.config import schema
from babelmill.tokens.codes import SYSTEMS
from babelmill.training import randomness
from babelmill.training.randomness import RATES, ROUNDING

GOLDEN_RATIO = (5**0.5 - 1) / 2  # its multiples, modulo 1, fill [0, 1) more evenly than any other number's

Amount = TypeVar("Amount", float, np.ndarray)


class Kind(NamedTuple):
    """A kind of rows.

    Attributes:
        name: as in the record (`loss_{name}`).
        hides: its targets are hidden from the model, whose positions attend to both sides; in rows of another kind
            nothing is hidden, all tokens are targets, and positions attend to earlier ones alone.
    """

    name: str
    hides: bool


class Hiding(NamedTuple):
    """How tokens are hidden, in rows of the kind that hides.

    Attributes:
        random, keep: shares of the chosen spans that become random tokens and that stay; the others become `<mask>`.
        longest_span: spans are 1 to this long, equally often.
        ends: whether the end of a document may be hidden, too.
    """

    random: float = 0.1
    keep: float = 0.1
    longest_span: int = 3
    ends: bool = False


@dataclass(frozen=True)
class Aims:
    """What rows are to learn, arrays of [rows].

    Attributes:
        kind: int64, index among the objective's kinds.
        targets: int64, the number of targets; of a kind that hides, these are hidden.
        importance: float64, how many targets one target stands for; None where each stands for itself.
    """

    kind: np.ndarray
    targets: np.ndarray
    importance: np.ndarray | None = None


class Objective(ABC):
    """What is learnt from rows.

    Args:
        train: the shape of the run.

    Attributes:
        kinds: the kinds of rows; in the last one, all tokens of a row may be targets. A target's group is
            (number of kinds) language + kind.
        shares: of the kinds in the loss; they add up to 1. A kind of share 0 does not occur.
        token_weighted: weigh by targets instead of by the shares.
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
        """Return what the rows of a global batch are to learn; a pure function.

        Args:
            step: counted from 0.
            steps: of the run.
            index: [rows] number of each among its language's rows, counted over the whole run.
            number: [rows] number of each in the whole run.
            hideable: [rows] targets of each without special tokens.
            every: [rows] targets of each, ends of documents included.
        """

    @abstractmethod
    def validation_aims(self, kind: int, number: np.ndarray, hideable: np.ndarray, every: np.ndarray) -> Aims:
        """Return what validation rows measure, all of this kind, at any step of a run the same."""

    @abstractmethod
    def mask_rate(self, step: Amount, steps: int) -> Amount:
        """Return the share of hideable targets that rows hide on average, at a step (or at several) of `steps`."""

    @abstractmethod
    def target_share(self, mask_rate: Amount) -> Amount:
        """Return the number of targets per position, at a mask rate (or at several)."""

    @property
    def occurring(self) -> list[int]:
        """Return the kinds that occur, as indices."""
        return [kind for kind, share in enumerate(self.shares) if share]

    @property
    def validated(self) -> list[int]:
        """Return the kinds of rows that validation goes through, one after another."""
        return self.occurring

    def counts(self, kind: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return how many targets of each kind rows have, [rows, kinds] int64: all are of the row's own kind.

        `kind`, `targets`: [rows], the latter with those that one target stands for.
        """
        counts = np.zeros((len(kind), len(self.kinds)), dtype=np.int64)
        counts[np.arange(len(kind)), kind] = targets
        return counts

    def weights(self, targets: Sequence[int]) -> tuple[float, ...]:
        """Return what a target of each kind weighs, from the targets that the global batch stands for, by kind."""
        if self.token_weighted:
            return (1 / max(1, sum(targets)),) * len(targets)
        return tuple(share / max(1, count) for share, count in zip(self.shares, targets, strict=True))

    @property
    def no_weights(self) -> tuple[float, ...]:
        """Return what `weights` returns, for passes that nothing is learnt from."""
        return (0.0,) * len(self.weights([1] * len(self.kinds)))

    def combine(self, means: Sequence[float | None]) -> float | None:
        """Return one mean of the kinds' (losses, accuracies) as the loss weighs them; None without any target."""
        pairs = zip(means, self.shares, strict=True)
        parts = [(value, share) for value, share in pairs if value is not None and share]
        return sum(value * share for value, share in parts) / sum(share for _, share in parts) if parts else None


class Hybrid(Objective):
    """Masked and causal rows in a fixed proportion. Both predict token t + 1 at position t."""

    kinds = (Kind("masked", hides=True), Kind("causal", hides=False))

    def __init__(self, train: schema.Train):
        super().__init__(train)
        self.masked_share = self._masked_share(train)
        self.shares = float(self.masked_share), 1 - float(self.masked_share)
        self.token_weighted = train.token_weighted
        self.smallest_batch = self.masked_share.denominator
        self.hiding = Hiding(train.mask_random, train.mask_keep)

    @staticmethod
    def _masked_share(train: schema.Train) -> Fraction:
        return Fraction(train.hybrid_ratio)

    def _masked(self, index: np.ndarray) -> np.ndarray:
        """Return whether the `index`-th row of a language, counted over the whole run, is masked; [n] bool.

        floor((i + 1) n/d) > floor(i n/d): the share holds within one row at every prefix. Rows are counted by
        language, since one count over all would lock languages and objectives together (two languages taking
        turns, half of the rows masked: one language always, the other never).
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
        train = self.train
        return train.mask_rate_start + (train.mask_rate_end - train.mask_rate_start) * step / steps

    def target_share(self, mask_rate: Amount) -> Amount:
        """See `Objective.target_share`."""
        share, _ = self.shares
        return share * mask_rate + 1 - share


class Masked(Hybrid):
    """Masked rows alone."""

    @staticmethod
    def _masked_share(train: schema.Train) -> Fraction:
        return Fraction(1)


class Causal(Hybrid):
    """Causal rows alone."""

    @staticmethod
    def _masked_share(train: schema.Train) -> Fraction:
        return Fraction(0)


class Diffusion(Objective):
    """Masked diffusion (LLaDA, Nie et al., 2025, arXiv:2502.09992): rows hide any share, from one token to all.

    LLaDA hides each token with probability t and divides its cross-entropy by t. Here a row with e targets hides
    exactly k = 1 + floor(t e) of them, and each stands for e / k: the same expectation, with counts that the plan
    knows, and t spread evenly over the rows of a batch. The loss is sum (e / k) cross-entropy / sum e.
    """

    kinds = (Kind("diffusion", hides=True),)
    hiding = Hiding(random=0.0, keep=0.0, longest_span=1, ends=True)

    @staticmethod
    def _at(time: np.ndarray, every: np.ndarray) -> Aims:
        """Return what rows with `every` targets are to learn at times in [0, 1), both [rows]."""
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
        """Return the mean share, at all steps a half."""
        return 0.5 + 0 * step

    def target_share(self, mask_rate: Amount) -> Amount:
        """See `Objective.target_share`."""
        return mask_rate


class Labels(Objective):
    """The codes of a document: each row predicts them as classes, and spells them (`block_loss.py`).

    A row has a target of the kind `classes`, and as many of the kind `blocks` as it has codes. A row without codes that
    the model knows counts for nothing. Without the section `labels` it tells what a plan of costs asks for.
    """

    kinds = (Kind("blocks", hides=False), Kind("classes", hides=False))

    def __init__(self, train: schema.Train, labels: schema.Labels | None = None):
        super().__init__(train)
        weight = labels.blocks_weight if labels and SYSTEMS[labels.code].spelt else 0.0
        self.shares = weight, 1 - weight

    @property
    def validated(self) -> list[int]:
        """See `Objective.validated`: a row is measured in both ways at once."""
        return [1]

    def counts(self, kind: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """See `Objective.counts`."""
        return np.stack([targets if self.shares[0] else 0 * targets, targets > 0], 1).astype(np.int64)

    def weights(self, targets: Sequence[int]) -> tuple[float, ...]:
        """Return what a code weighs that is spelt, a row's classes, and a row's empty blocks."""
        codes, rows = (max(1, count) for count in targets)
        return self.shares[0] / codes, self.shares[1] / rows, self.shares[0] / rows

    def aims(
        self, step: int, steps: int, index: np.ndarray, number: np.ndarray, hideable: np.ndarray, every: np.ndarray
    ) -> Aims:
        """See `Objective.aims`."""
        return Aims(np.ones_like(every), every)

    def validation_aims(self, kind: int, number: np.ndarray, hideable: np.ndarray, every: np.ndarray) -> Aims:
        """See `Objective.validation_aims`."""
        return Aims(np.ones_like(every), every)

    def mask_rate(self, step: Amount, steps: int) -> Amount:
        """Return 0: nothing is hidden."""
        return 0 * step

    def target_share(self, mask_rate: Amount) -> Amount:
        """Return 0: positions have no targets of their own."""
        return 0 * mask_rate


OBJECTIVES: dict[str, type[Objective]] = {
    "hybrid": Hybrid,
    "masked": Masked,
    "causal": Causal,
    "diffusion": Diffusion,
    "labels": Labels,
}


def objective_of(train: schema.Train, labels: schema.Labels | None = None) -> Objective:
    """Return the objective of these settings; `labels`: the section, for the objective of that name."""
    return Labels(train, labels) if train.objective == "labels" else OBJECTIVES[train.objective](train)


def hides_alone(objective: Objective) -> bool:
    """Return whether all rows hide their targets: a model that reads both sides is enough."""
    return all(objective.kinds[kind].hides for kind in objective.occurring)


def masked_targets(maskable: np.ndarray, mask_rate: float, rounding: np.ndarray | float) -> np.ndarray:
    """Return how many of each row's maskable targets are masked: max(1, floor(p e + u)), 0 where there is none."""
    return np.minimum(maskable, np.maximum(1, np.floor(mask_rate * maskable + rounding).astype(np.int64)))
