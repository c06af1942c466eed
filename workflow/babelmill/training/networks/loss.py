"""Compute the loss of a micro-batch (the weighted sum over its targets of `objectives.py`), and sums and means."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from babelmill.model.attention import compute_dtype
from babelmill.training.batches import MicroBatch
from babelmill.training.plan.objectives import Objective
from babelmill.training.plan.schedule import CHUNK

STATISTICS = ("cross_entropy", "z", "correct")  # what `loss` sums for each group of targets


def from_scores(
    scores: torch.Tensor,  # [m, V], s
    targets: torch.Tensor,  # [m] int64, t
    weights: torch.Tensor,  # [m], w
    z_loss_weight: float,  # c
    learning: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return the loss of some targets, a scalar, their statistics, [m, 3] (see `STATISTICS`), and a gradient.

    With the normalizer z = logsumexp(s), the gradient of w (z - s_t + c z^2) is w (1 + 2 c z) softmax(s) - w 1_t. It is
    [m, V] in the type of `scores`; None without `learning`. The others are in fp32, or in that type if it is wider.
    """
    dtype, wide = scores.dtype, torch.promote_types(scores.dtype, torch.float32)
    scores, target, weight = scores.to(wide), targets[:, None], weights[:, None].to(wide)
    best, picked = scores.argmax(1, keepdim=True), scores.gather(1, target)
    log_probabilities = torch.log_softmax(scores, 1)
    cross_entropy = -log_probabilities.gather(1, target)
    normalizer = picked + cross_entropy
    statistics = torch.cat([cross_entropy, normalizer.square(), (best == target).to(wide)], 1)
    loss = (weight * (cross_entropy + z_loss_weight * normalizer.square())).sum()
    if not learning:
        return loss, statistics, None
    gradient = log_probabilities.exp_().mul_(weight * (1 + 2 * z_loss_weight * normalizer))
    if torch.compiler.is_compiling():  # a scatter would be a kernel of its own
        at_target = torch.arange(scores.size(1), device=scores.device) == target
        return loss, statistics, torch.where(at_target, gradient - weight, gradient).to(dtype)
    return loss, statistics, gradient.scatter_add_(1, target, -weight).to(dtype)


FromScores = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, float, bool], tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
]  # `from_scores`, or a compiled version of it


class _CrossEntropy(torch.autograd.Function):
    """Computes the loss of a linear output layer for a few targets at a time, never the scores of all targets at once.

    The forward pass also computes the gradient, while it has the scores; the backward pass only returns it.

    PyTorch's `linear_cross_entropy` is slower and has no z-loss; its plain functions are slower and need several times
    the memory (`benchmarks/README.md`, "By hand or by a library").
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
        function: FromScores,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        count, (vocabulary, width) = len(targets), matrix.shape
        ctx.dtypes = [tensor.dtype for tensor in (features, matrix, bias)]
        features, matrix, bias = (tensor.to(dtype) for tensor in (features, matrix, bias))
        wide = torch.promote_types(dtype, torch.float32)  # type of sums and exponentials
        # Weights claim to need a gradient under no_grad, too, so `features` decides. A frozen output layer needs none.
        learning, of_matrix, of_bias = ctx.needs_input_grad[:3]
        statistics = torch.empty(count, 3, dtype=wide, device=features.device)
        total = statistics.new_zeros(())
        of_features = torch.empty_like(features) if learning else None
        made = statistics.new_zeros(vocabulary, width) if learning and of_matrix else None
        summed = statistics.new_zeros(vocabulary) if learning and of_bias else None
        size = max(1, CHUNK[features.device.type == "cpu"] // vocabulary)
        for begin in range(0, count, size):
            part = slice(begin, begin + size)
            x = features[part]
            part_of_total, statistics[part], gradient = function(
                torch.addmm(bias, x, matrix.T), targets[part], weights[part], z_loss_weight, learning
            )
            total += part_of_total
            if of_features is not None and gradient is not None:
                torch.mm(gradient, matrix, out=of_features[part])
                if made is not None:
                    made.add_(gradient.T @ x)
                if summed is not None:
                    summed.add_(gradient.sum(0, dtype=wide))
        if learning:
            ctx.save_for_backward(of_features, made, summed)
        ctx.mark_non_differentiable(statistics)
        return total, statistics

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        gradient, _ = gradients
        found = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        scaled = (None if tensor is None else (tensor * gradient).to(dtype) for tensor, dtype in found)
        return *scaled, None, None, None, None, None


def loss(
    features: torch.Tensor,  # [n, H], the output layer's input at the positions that have a target
    matrix: torch.Tensor,  # [V, H], of the output layer; under autocast, scores are computed in its type
    bias: torch.Tensor,  # [V]
    batch: MicroBatch,  # has targets [n], weights [n] (times their importance), groups [n] and importance [n] or None
    z_loss_weight: float,  # weight of logsumexp^2, which keeps logits from drifting (PaLM, Chowdhery et al., 2022)
    groups: int,  # number of groups of targets
    function: FromScores = from_scores,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weighted loss of a micro-batch's targets, a scalar, and sums to report.

    The sums, [groups, 3] float64, are of cross-entropy, logsumexp^2 and right predictions, in which each target is
    multiplied by its importance.
    """
    dtype = compute_dtype(features)
    with torch.autocast(features.device.type, enabled=False):
        total, statistics = _CrossEntropy.apply(
            features, matrix, bias, batch.targets, batch.weights, z_loss_weight, dtype, function
        )
        values = statistics.double()
        if batch.importance is not None:
            values *= batch.importance[:, None]
        return total, no_sums(groups, features.device).index_add_(0, batch.groups, values)


def no_sums(groups: int, device: torch.device) -> torch.Tensor:
    """Return sums by group of targets, [groups, 3] float64, to which nothing has been added yet."""
    return torch.zeros(groups, len(STATISTICS), dtype=torch.float64, device=device)


def summarize(sums: np.ndarray, counts: np.ndarray, languages: list[str], objective: Objective) -> dict[str, Any]:
    """Return means, computed from sums by group; `Objective` says what a group is.

    The sums are [groups, 3] (see `STATISTICS`), and the counts of targets [groups].
    """
    losses = [f"loss_{kind.name}" for kind in objective.kinds]

    def means(sums: np.ndarray, counts: np.ndarray) -> dict[str, float | None]:
        """Return the means from [kinds, 3] sums and [kinds] counts of targets."""
        values, combined = {}, {}
        for i, name in enumerate(STATISTICS):
            values[name] = [float(s / c) if c else None for s, c in zip(sums[:, i], counts, strict=True)]
            combined[name] = objective.combine(values[name])
        loss = combined["cross_entropy"]
        return {
            "loss": loss,
            **dict(zip(losses, values["cross_entropy"], strict=True)),
            "perplexity": None if loss is None else math.exp(min(loss, 700.0)),
            "accuracy": combined["correct"],
            "z_loss": combined["z"],
        }

    kinds = len(objective.kinds)
    sums, counts = sums.reshape(-1, kinds, len(STATISTICS)), counts.reshape(-1, kinds)
    result: dict[str, Any] = means(sums.sum(0), counts.sum(0))
    if len(languages) > 1:
        result["languages"] = {
            name: {key: value for key, value in means(sums[i], counts[i]).items() if key in ("loss", *losses)}
            for i, name in enumerate(languages)
        }
    return result
