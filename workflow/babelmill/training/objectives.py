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
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from babelmill.config import schema
from babelmill.model.attention import compute_dtype
from babelmill.training.amounts import CHUNK, masked_share
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
    def of(cls, train: schema.Train) -> "Objective":
        """Return the objective of these settings."""
        return cls(masked_share(train), train.token_weighted)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of rows that occur."""
        return tuple(k for k, share in (("masked", self.masked_share), ("causal", 1 - self.masked_share)) if share)

    def masked(self, index: np.ndarray) -> np.ndarray:
        """Return whether the `index`-th row of a language, counted over the whole run, is masked; [n] bool.

        floor((i + 1) n/d) > floor(i n/d): the share holds within one row at every prefix. Rows are counted by
        language, since one count over all would lock languages and objectives together (two languages taking
        turns, half of the rows masked: one language always, the other never).
        """
        n, d = self.masked_share.numerator, self.masked_share.denominator
        return (index + 1) * n // d > index * n // d

    def weights(self, masked_targets: int, causal_targets: int) -> tuple[float, float]:
        """Return what a target in masked and in causal rows weighs, from the numbers of both in the global batch."""
        if self.token_weighted:
            weight = 1 / max(1, masked_targets + causal_targets)
            return weight, weight
        share = float(self.masked_share)
        return share / max(1, masked_targets), (1 - share) / max(1, causal_targets)

    def combine(self, masked: float | None, causal: float | None) -> float | None:
        """Return the hybrid of two means (losses, accuracies) as the loss weighs them; None without any target."""
        parts = [(masked, float(self.masked_share)), (causal, 1 - float(self.masked_share))]
        parts = [(value, share) for value, share in parts if value is not None and share]
        return sum(value * share for value, share in parts) / sum(share for _, share in parts) if parts else None


class _CrossEntropy(torch.autograd.Function):
    """The loss of a linear output layer, a few targets at a time: the scores of all never exist at once.

    The gradient is made along with the loss, while the scores are at hand; the backward pass only hands it out. For
    scores s with normalizer z = logsumexp(s), the gradient of w (z - s_t + c z^2) is w (1 + 2 c z) softmax(s) - w 1_t.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: torch.Tensor,
        matrix: torch.Tensor,
        bias: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor,
        z_loss_weight: float,
        dtype: torch.dtype,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        count, (vocabulary, width) = len(targets), matrix.shape
        ctx.dtypes = [tensor.dtype for tensor in (features, matrix, bias)]
        features, matrix, bias = (tensor.to(dtype) for tensor in (features, matrix, bias))
        wide = torch.promote_types(dtype, torch.float32)  # of sums and exponentials
        learning = ctx.needs_input_grad[0]  # under no_grad, too, weights say that they need one
        statistics = torch.empty(count, 3, dtype=wide, device=features.device)
        total = statistics.new_zeros(())
        shapes = (vocabulary, width), (vocabulary,)
        gradients = [torch.empty_like(features), *map(statistics.new_zeros, shapes)] if learning else []
        size = max(1, CHUNK[features.device.type == "cpu"] // vocabulary)
        for begin in range(0, count, size):
            part = slice(begin, begin + size)
            x, target, weight = features[part], targets[part, None], weights[part, None].to(wide)
            scores = torch.addmm(bias, x, matrix.T).to(wide)
            best, picked = scores.argmax(1, keepdim=True), scores.gather(1, target)
            log_probabilities = torch.log_softmax(scores, 1)
            cross_entropy = -log_probabilities.gather(1, target)
            normalizer = picked + cross_entropy
            statistics[part] = torch.cat([cross_entropy, normalizer.square(), (best == target).to(wide)], 1)
            total += (weight * (cross_entropy + z_loss_weight * normalizer.square())).sum()
            if learning:
                gradient = log_probabilities.exp_().mul_(weight * (1 + 2 * z_loss_weight * normalizer))
                gradient = gradient.scatter_add_(1, target, -weight).to(dtype)
                torch.mm(gradient, matrix, out=gradients[0][part])
                gradients[1].add_(gradient.T @ x)
                gradients[2].add_(gradient.sum(0, dtype=wide))
        if learning:
            ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(statistics)
        return total, statistics

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        gradient, _ = gradients
        found = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        return *((tensor * gradient).to(dtype) for tensor, dtype in found), None, None, None, None


def loss(
    features: torch.Tensor,
    matrix: torch.Tensor,
    bias: torch.Tensor,
    batch: MicroBatch,
    z_loss_weight: float,
    groups: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weighted loss of a micro-batch's targets, and sums to report.

    Args:
        features: [n, H], the output layer's input at the positions that have a target.
        matrix, bias: [V, H] and [V], the output layer; scores are made in autocast's type where that is on.
        batch: has targets [n], weights [n] and groups [n].
        z_loss_weight: of logsumexp^2, which keeps logits from drifting (PaLM, Chowdhery et al., 2022).
        groups: number of groups of targets.

    Returns:
        the loss, a scalar; [groups, 3] float64 sums of cross-entropy, logsumexp^2 and right predictions.
    """
    dtype = compute_dtype(features)
    with torch.autocast(features.device.type, enabled=False):
        total, statistics = _CrossEntropy.apply(
            features, matrix, bias, batch.targets, batch.weights, z_loss_weight, dtype
        )
        sums = torch.zeros(groups, len(STATISTICS), dtype=torch.float64, device=features.device)
        return total, sums.index_add_(0, batch.groups, statistics.double())
