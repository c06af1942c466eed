"""What is learnt from a row: hybrid, masked or causal prediction, behind one small interface.

Both kinds of rows predict token t + 1 at position t; they differ in what is hidden and who may attend to whom. An
objective says which rows are masked and how much each target weighs. The loss itself knows nothing of objectives: it
is a weighted sum over targets, so that micro-batches and processes simply add up to the loss of the global batch:

    loss = sum over targets of w (cross-entropy + z logsumexp^2)

with w = (n/d) / masked targets of the global batch in masked rows and (1 - n/d) / causal targets in causal rows: the
means of the two objectives, weighted n/d to 1 - n/d. With `token_weighted` each target weighs the same.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from babelmill.training.batches import MicroBatch

STATISTICS = ("cross_entropy", "z", "correct")  # what `loss` sums for each group of targets


@dataclass(frozen=True)
class Objective:
    """Masked and causal rows in a fixed proportion.

    Attributes:
        masked_share: share of masked rows, n/d: 1 for `masked`, 0 for `causal`.
        token_weighted: weigh by targets instead of by the share.
    """

    masked_share: Fraction
    token_weighted: bool = False

    @classmethod
    def of(cls, train) -> "Objective":
        """The objective of the `train` settings."""
        share = {"hybrid": Fraction(train.hybrid_ratio), "masked": Fraction(1), "causal": Fraction(0)}[train.objective]
        return cls(share, train.token_weighted)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of rows that occur."""
        return tuple(k for k, share in (("masked", self.masked_share), ("causal", 1 - self.masked_share)) if share)

    def masked(self, index: np.ndarray) -> np.ndarray:
        """Whether the `index`-th row of a language (counted over the whole run) is masked; bool, same shape.

        floor((i + 1) n/d) > floor(i n/d): the share holds within one row at every prefix. Rows are counted by
        language, since one count over all would lock languages and objectives together (two languages taking
        turns, half of the rows masked: one language always, the other never).
        """
        n, d = self.masked_share.numerator, self.masked_share.denominator
        return (index + 1) * n // d > index * n // d

    def weights(self, masked_targets: int, causal_targets: int) -> tuple[float, float]:
        """Weight of a target in masked and in causal rows, from the numbers of targets in the global batch."""
        if self.token_weighted:
            return (1 / max(1, masked_targets + causal_targets),) * 2
        share = float(self.masked_share)
        return share / max(1, masked_targets), (1 - share) / max(1, causal_targets)

    def combine(self, masked: float | None, causal: float | None) -> float | None:
        """The hybrid of two means (losses, accuracies), as the loss weighs them; None where there is no target."""
        parts = [(masked, float(self.masked_share)), (causal, 1 - float(self.masked_share))]
        parts = [(value, share) for value, share in parts if value is not None and share]
        return sum(value * share for value, share in parts) / sum(share for _, share in parts) if parts else None


def loss(logits: torch.Tensor, batch: MicroBatch, z_loss_weight: float, groups: int):
    """The weighted loss of a micro-batch's targets, and sums to report.

    Args:
        logits: [n, V] of the positions that have a target.
        batch: gives targets [n], weights [n] and groups [n].
        z_loss_weight: of logsumexp^2, which keeps logits from drifting (PaLM, Chowdhery et al., 2022).
        groups: number of groups of targets.

    Returns:
        the loss, a scalar; [groups, 3] float64 sums of cross-entropy, logsumexp^2 and right predictions.
    """
    logits = logits.float()
    normalizer = logits.logsumexp(1)
    cross_entropy = normalizer - logits.gather(1, batch.targets[:, None])[:, 0]
    z = normalizer.square()
    total = (batch.weights * (cross_entropy + z_loss_weight * z)).sum()
    with torch.no_grad():
        correct = logits.argmax(1) == batch.targets
        values = torch.stack([cross_entropy.double(), z.double(), correct.double()], 1)
        sums = values.new_zeros(groups, len(STATISTICS)).index_add_(0, batch.groups, values)
    return total, sums
