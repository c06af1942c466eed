"""Optimizers: LAMB (as published), PyTorch's fused AdamW, and PyTorch's Muon with AdamW for the rest.

`Optimizers` is what the training loop sees: one learning rate, one state, and a step that leaves the weights as they
are when `finite` is 0. That is a number on the device: nobody has to wait for it.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from babelmill.config import schema
from babelmill.core.files import UserError
from babelmill.training.sharding import Sharding

Groups = list[dict[str, Any]]  # of parameters, as torch.optim takes them

Decays = Callable[[str, nn.Parameter], bool]

NO_DECAY = ("bias", "layer_norm")  # parts of the names of parameters without weight decay, as published


class FusedAdamW(torch.optim.AdamW):
    """PyTorch's fused AdamW, which skips its step on the device where `found_inf` is 1."""

    def __init__(self, params: Groups, lr: float, betas: Sequence[float], eps: float):
        first, second = betas
        super().__init__(params, lr, (first, second), eps, fused=True)

    def step_if(self, finite: torch.Tensor) -> None:
        """Update the parameters from their gradients; `finite` 0 (a scalar on the device) leaves them as they are."""
        self.found_inf = (1 - finite).float()
        super().step()


class Lamb(FusedAdamW):
    """LAMB (You et al., 2020, arXiv:1904.00962), in the published implementation's form.

    m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  u = m^ / (sqrt(v^) + eps),  ^ meaning bias-corrected
    with weight decay:   u += wd p;  p -= lr u |p| / |u|   (the ratio is 1 where a norm is 0; it is not clamped)
    without:             p -= lr u

    So p - u is what AdamW makes of p at learning rate 1: its fused kernel does that on a copy, in one pass over memory
    instead of a dozen, and p moves towards the copy. With `sharding`, norms are those of whole tensors.
    """

    def __init__(
        self,
        params: Groups,
        lr: float,
        betas: Sequence[float] = (0.9, 0.98),
        eps: float = 1e-8,
        sharding: Sharding | None = None,
    ):
        super().__init__(params, lr, betas, eps)
        self._sharding = sharding

    @torch.no_grad()
    def step_if(self, finite: torch.Tensor) -> None:
        """See `FusedAdamW.step_if`."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        before = [parameter.clone() for parameter in parameters]
        rates = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            group["lr"] = 1.0
        super().step_if(finite)
        norms = self._norms(before)
        for group, rate in zip(self.param_groups, rates, strict=True):
            group["lr"] = rate
            for parameter in group["params"]:
                old = before.pop(0)
                if group["weight_decay"]:
                    norm, update = norms.pop(0)
                    rate = group["lr"] * torch.where((norm > 0) & (update > 0), norm / update, 1.0)
                torch.lerp(old, parameter, rate, out=parameter)

    def _norms(self, before: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the norms of each decayed parameter before the step and of its update, [2] each."""
        pairs = zip([(group, p) for group in self.param_groups for p in group["params"]], before, strict=True)
        decayed = [(old, p) for (group, p), old in pairs if group["weight_decay"]]
        norms = [torch.stack([torch.linalg.vector_norm(old), torch.dist(p, old)]) for old, p in decayed]
        if self._sharding is None or not norms:
            return norms
        return list(self._sharding.sum_(torch.stack(norms).square()).sqrt())


class Muon(torch.optim.Muon):
    """PyTorch's Muon (Jordan et al., 2024), for matrices, with the update scaled to AdamW's size (arXiv:2502.16982)."""

    def __init__(self, params: Groups, lr: float):
        super().__init__(params, lr, adjust_lr_fn="match_rms_adamw")

    @torch.no_grad()
    def step_if(self, finite: torch.Tensor) -> None:
        """See `FusedAdamW.step_if`. Momentum alone would move the weights, so they are kept aside and put back."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        before = [parameter.clone() for parameter in parameters]
        super().step()
        for parameter, old in zip(parameters, before, strict=True):
            parameter.copy_(torch.where(finite > 0, parameter, old))


def decays_by_name(name: str, _parameter: nn.Parameter) -> bool:
    """Return whether a parameter has weight decay, as published: not with `bias` or `layer_norm` in its name."""
    return not any(part in name for part in NO_DECAY)


def parameter_groups(
    named_parameters: Iterable[tuple[str, nn.Parameter]], weight_decay: float, decays: Decays = decays_by_name
) -> Groups:
    """Return two groups: with weight decay, and without.

    The parameters have their names with them, so that a checkpoint can be read without this code.
    """
    decay, rest = [], []
    for name, parameter in named_parameters:
        (decay if decays(name, parameter) else rest).append((name, parameter))
    groups = [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


class Optimizers:
    """The optimizers of a model behind one interface.

    Args:
        named: the parameters that are trained; under `muon`, their names decide which are its: matrices of layers.
        train: optimizer, learning rate, betas and so on.
        decays: says of a parameter, by its name, whether it has weight decay.
        sharding: how parameters are cut, whose rows are here; None: they are whole.

    Raises:
        UserError: Muon is asked for, which needs whole matrices, and they are cut.
    """

    def __init__(
        self,
        named: Mapping[str, nn.Parameter],
        train: schema.Train,
        decays: Decays = decays_by_name,
        sharding: Sharding | None = None,
    ):
        rate, betas, eps = train.learning_rate, train.betas, train.eps
        every = list(named.items())
        if train.optimizer == "lamb":
            self._parts = [Lamb(parameter_groups(every, train.weight_decay, decays), rate, betas, eps, sharding)]
        elif train.optimizer == "adamw":
            self._parts = [FusedAdamW(parameter_groups(every, train.weight_decay, decays), rate, betas, eps)]
        elif sharding is not None:
            raise UserError("train.optimizer = 'muon': an update needs a whole matrix; set adamw or lamb")
        else:
            matrices = [(n, p) for n, p in every if p.ndim == 2 and "embedding" not in n]
            chosen = {name for name, _ in matrices}
            rest = [(name, parameter) for name, parameter in every if name not in chosen]
            self._parts = [
                Muon(parameter_groups(matrices, train.weight_decay, decays), rate),
                FusedAdamW(parameter_groups(rest, train.weight_decay, decays), rate, betas, eps),
            ]

    def step(self, learning_rate: float, finite: torch.Tensor) -> None:
        """Make one update; `finite` 0 leaves the weights as they are."""
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = learning_rate
            part.step_if(finite)

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the state of each optimizer."""
        return [part.state_dict() for part in self._parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        """Restore what `state_dict` returned."""
        for part, state in zip(self._parts, states, strict=True):
            part.load_state_dict(state)

    def name(self, part: int, number: int) -> str:
        """Return the name of a parameter by its place in `state_dict`."""
        return [name for group in self._parts[part].param_groups for name in group["param_names"]][number]


@torch.no_grad()
def clip(gradient: torch.Tensor, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale a flat gradient down to the norm `limit`, in place; one that is not finite becomes 0.

    Returns:
        its norm before, and 1 where it was finite, else 0; both scalars on the device.
    """
    return clip_to([gradient], torch.linalg.vector_norm(gradient), limit)


@torch.no_grad()
def clip_to(gradients: Sequence[torch.Tensor], norm: torch.Tensor, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what `clip` does with gradients whose norm together is `norm`."""
    finite = norm.isfinite()
    scale = torch.where(finite, (limit / (norm + 1e-6)).clamp(max=1.0), 0.0)
    if norm.device.type != "cpu" or scale != 1:  # on a CPU, looking costs nothing
        for gradient in gradients:
            gradient.mul_(scale).nan_to_num_(0.0, 0.0, 0.0)
    return norm, finite.to(norm.dtype)


class MovingAverage:
    """Exponential moving average of the weights, its decay warmed up: min(decay, (1 + t) / (60 + t)) at step t.

    So it is an average of about the last sixtieth of the steps made so far. Without the warm-up the average of a short
    run is mostly its initial weights; with 10 in place of 60 it lags behind weights that still learn: up to 0.4 % worse
    after 1,000 steps, where the learning rate has come down.
    """

    def __init__(self, named: Mapping[str, torch.Tensor], decay: float):
        """Begin with the weights `named`. With a decay of 0 they are their own average, and there is no second copy."""
        self._weights = dict(named)
        self._decay = decay
        self.tensors = {name: weight.detach().clone() for name, weight in named.items()} if decay else None

    @torch.no_grad()
    def begin(self) -> None:
        """Begin again with the weights as they are now."""
        for name, average in (self.tensors or {}).items():
            average.copy_(self._weights[name])

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after step `step`, counted from 0."""
        if self.tensors is None:
            return
        decay, average = min(self._decay, (1 + step) / (60 + step)), list(self.tensors.values())
        torch._foreach_lerp_(average, list(self._weights.values()), 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the average stand in the weights' place for a while: in their memory, so that no third copy is needed."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, average in (self.tensors or {}).items():
            weight = self._weights[name].detach()
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)
