"""Define the optimizers: LAMB (as published), PyTorch's fused AdamW, and Muon.

An update does not change the weights if `finite` is 0. This number is on the device, so that the host need not wait.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from babelmill.config import schema
from babelmill.training.optimization.gradients import Sharding, segments

Groups = list[dict[str, Any]]  # groups of parameters, as torch.optim takes them

Decays = Callable[[str, nn.Parameter], bool]

PREFIX = "optimizer."  # begins names in checkpoints; the name of a state, a dot and the parameter's name follow
MOMENTUM = PREFIX + "momentum."  # of Muon
STATE = ("step", "exp_avg", "exp_avg_sq")  # of Adam
SEGMENT = 1024  # elements; the update of a parameter takes a multiple of this in LAMB's buffer
NO_DECAY = ("bias", "layer_norm")  # parts of the names of parameters without weight decay, as published

# Of Muon.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # by Jordan et al. (2024): they raise small singular values fastest
STEPS = 5
SMALLEST_NORM = 1e-7
AT_ONCE = 2**25  # elements: more matrices than that are not orthogonalized at once, to bound the memory


class FusedAdamW(torch.optim.AdamW):
    """Updates by PyTorch's fused AdamW, which skips its step on the device where `found_inf` is 1.

    It is the interface of all optimizers.

    Args:
        params: groups of parameters, each with its weight decay.
        train: learning rate, betas and so on.
        sharding: how the parameters were cut, if they are rows of tensors; None: they are whole.
    """

    def __init__(self, params: Groups, train: schema.Train, sharding: Sharding | None = None):
        first, second = train.betas
        super().__init__(params, train.learning_rate, (first, second), train.eps, fused=True)
        self._sharding = sharding

    def update(self, learning_rate: float, finite: torch.Tensor) -> None:
        """Update the parameters from their gradients, unless `finite` (a scalar on the device) is 0."""
        for group in self.param_groups:
            group["lr"] = learning_rate
        self.found_inf = (1 - finite).float()
        self.step()

    def _named(self) -> Iterator[tuple[str, torch.Tensor]]:
        for group in self.param_groups:
            yield from zip(group["param_names"], group["params"], strict=True)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the state of all parameters, by the names in checkpoints."""
        return {f"{PREFIX}{key}.{name}": state for name, p in self._named() for key, state in self.state[p].items()}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue from what `tensors` returned; tensors with other names are ignored."""
        for name, parameter in self._named():
            found = {key: tensors[f"{PREFIX}{key}.{name}"] for key in STATE}
            self.state[parameter] = {key: state.to(parameter.device, copy=True) for key, state in found.items()}


class Lamb(FusedAdamW):
    """Updates by LAMB (You et al., 2020, arXiv:1904.00962), in the published implementation's form.

    m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  u = m^ / (sqrt(v^) + eps),  ^ meaning bias-corrected
    with weight decay:   u += wd p;  p -= lr u |p| / |u|   (the ratio is 1 where a norm is 0; it is not clamped)
    without:             p -= lr u

    So AdamW with learning rate 1 and without decay turns zeros into -u. Its fused kernel does this in one pass over
    memory instead of a dozen. All updates are segments of one buffer, because a GPU then needs a few kernels for all
    parameters together instead of a few for each. The buffer takes memory during `update` only. This is faster than a
    library's LAMB (`benchmarks/README.md`, "By hand or by a library"). With `sharding`, norms are those of whole
    tensors.
    """

    def __init__(self, params: Groups, train: schema.Train, sharding: Sharding | None = None):
        super().__init__(params, train, sharding)
        self._groups = [group["params"] for group in self.param_groups]
        self._parameters = list(itertools.chain(*self._groups))
        with torch.no_grad():
            self._flat, self._updates = segments(self._parameters, SEGMENT)
        whose = [torch.full((-(-p.numel() // SEGMENT),), number) for number, p in enumerate(self._parameters)]
        self._whose = torch.cat(whose).to(self._flat.device)  # the number of the parameter, for each SEGMENT elements
        decayed = [bool(group["weight_decay"]) for group in self.param_groups for _ in group["params"]]
        self._decayed = torch.tensor(decayed, device=self._flat.device)
        updates = iter(self._updates)
        for group in self.param_groups:
            group["params"] = [next(updates) for _ in group["params"]]
        self._flat.untyped_storage().resize_(0)

    @torch.no_grad()
    def update(self, learning_rate: float, finite: torch.Tensor) -> None:
        """See `FusedAdamW.update`."""
        memory = self._flat.untyped_storage()
        memory.resize_(self._flat.nbytes)
        self._flat.zero_()
        for parameter, update in zip(self._parameters, self._updates, strict=True):
            update.grad = parameter.grad
        super().update(1.0, finite)  # the decay of zeros is 0
        for group, parameters in zip(self.param_groups, self._groups, strict=True):
            group["lr"] = learning_rate
            if decay := group["weight_decay"]:
                torch._foreach_add_(group["params"], parameters, alpha=-decay)  # pyright: ignore[reportPrivateImportUsage]
        # Not 0.0: x + -0.0 is x for every x, but -0.0 + 0.0 is 0.0.
        rates = torch.where(finite > 0, learning_rate * self._ratios(), -0.0)
        self._flat.view(-1, SEGMENT).mul_(rates[self._whose].unsqueeze(1))
        torch._foreach_add_(self._parameters, self._updates)  # pyright: ignore[reportPrivateImportUsage]
        for update in self._updates:
            update.grad = None  # gradients of FSDP2 are freed before the next step
        memory.resize_(0)

    def _ratios(self) -> torch.Tensor:
        """Return |p| / |u| of each parameter, [parameters]; 1 without weight decay or where a norm is 0."""
        norms = torch.stack(torch._foreach_norm([*self._parameters, *self._updates]))  # pyright: ignore[reportPrivateImportUsage]
        if self._sharding is not None and self._sharding.shapes:
            norms = self._sharding.sum_(norms.square()).sqrt()
        norm, update = pairs = norms.view(2, -1)
        return torch.where(self._decayed & (pairs.amin(0) > 0), norm / update, 1.0)


def orthogonalize(matrices: torch.Tensor) -> torch.Tensor:
    """Return matrices with the same singular vectors, and with singular values between about 0.7 and 1.2.

    Each step of Newton and Schulz's iteration replaces X by a X + (b X X^T + c (X X^T)^2) X, so a singular value s
    becomes a s + b s^3 + c s^5. Singular values that are nearly 0 stay small; a matrix of zeros stays one.

    Args:
        matrices: [matrices, rows, columns]. Products are computed in their type.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.size(1) > matrices.size(2)
    x = matrices.mT if tall else matrices  # X X^T is the smaller product
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(STEPS):
        product = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(product, product, product, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(FusedAdamW):
    """Updates matrices of layers by Muon (Jordan et al., 2024), and all other parameters by AdamW at the same rate.

    The other parameters have no weight decay: as much as is good for the matrices would shrink rare embeddings to 0.

    m = 0.95 m + 0.05 g;  u = orthogonalized(0.95 m + 0.05 g);  p *= 1 - lr wd;  p -= lr 0.2 sqrt(max(shape)) u

    The factor gives u the size of an update of AdamW (Liu et al., 2025, arXiv:2502.16982). This is `torch.optim.Muon`
    with `adjust_lr_fn="match_rms_adamw"`, which updates one matrix after the other, and always in bf16. Here all
    matrices of a shape are updated together. They must be whole on each process.

    Args:
        params: groups of the other parameters.
        train: see `FusedAdamW`. With the precision bf16, the matrices are orthogonalized in bf16, otherwise in the type
            of the parameters.
        matrices: the matrices by name.
    """

    def __init__(self, params: Groups, train: schema.Train, matrices: Mapping[str, nn.Parameter]):
        super().__init__(params, train)
        self._decay, self._type = train.weight_decay, torch.bfloat16 if train.precision == "bf16" else None
        self._momentum: dict[str, torch.Tensor] = {}
        self._batches: list[tuple[list[torch.Tensor], torch.Tensor]] = []  # matrices of one shape, and their momentum
        by_shape: dict[torch.Size, list[str]] = {}
        for name, matrix in matrices.items():
            by_shape.setdefault(matrix.shape, []).append(name)
        for shape, names in by_shape.items():
            most = max(1, AT_ONCE // shape.numel())
            for some in (names[begin : begin + most] for begin in range(0, len(names), most)):
                parameters: list[torch.Tensor] = [matrices[name] for name in some]
                momentum = torch.zeros_like(torch.stack([parameter.detach() for parameter in parameters]))
                self._batches.append((parameters, momentum))
                self._momentum |= zip(some, momentum.unbind(), strict=True)

    @torch.no_grad()
    def update(self, learning_rate: float, finite: torch.Tensor) -> None:
        """See `FusedAdamW.update`."""
        super().update(learning_rate, finite)
        for parameters, momentum in self._batches:
            gradients = torch.stack([parameter.grad for parameter in parameters])  # pyright: ignore[reportArgumentType]
            momentum.lerp_(gradients, 0.05 * finite)
            mixed = gradients.lerp_(momentum, 0.95)
            update = orthogonalize(mixed.to(self._type or mixed.dtype)).to(mixed.dtype)
            if amount := learning_rate * self._decay:
                torch._foreach_mul_(parameters, 1 - amount * finite)  # pyright: ignore[reportPrivateImportUsage]
            # Not 0.0: x + -0.0 is x for every x, but -0.0 + 0.0 is 0.0.
            size = math.sqrt(max(momentum.shape[1:]))
            update = torch.where(finite > 0, update * (-learning_rate * 0.2 * size), -0.0)
            torch._foreach_add_(parameters, list(update.unbind()))  # pyright: ignore[reportPrivateImportUsage]

    def tensors(self) -> dict[str, torch.Tensor]:
        """See `FusedAdamW.tensors`."""
        return super().tensors() | {MOMENTUM + name: momentum for name, momentum in self._momentum.items()}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """See `FusedAdamW.restore`."""
        super().restore(tensors)
        for name, momentum in self._momentum.items():
            momentum.copy_(tensors[MOMENTUM + name])


def decays_by_name(name: str, _parameter: nn.Parameter) -> bool:
    """Return whether a parameter has weight decay, as published: not if its name contains `bias` or `layer_norm`."""
    return not any(part in name for part in NO_DECAY)


def parameter_groups(
    named_parameters: Iterable[tuple[str, nn.Parameter]], weight_decay: float, decays: Decays = decays_by_name
) -> Groups:
    """Return two groups: with weight decay, and without."""
    decay, rest = [], []
    for name, parameter in named_parameters:
        (decay if decays(name, parameter) else rest).append((name, parameter))
    groups = [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def make_optimizer(
    named: Mapping[str, nn.Parameter],
    train: schema.Train,
    decays: Decays = decays_by_name,
    sharding: Sharding | None = None,
    matrices: Collection[str] = (),
) -> FusedAdamW:
    """Return the optimizer that `train.optimizer` names.

    Args:
        named: the parameters that are trained.
        train: optimizer, learning rate, betas and so on.
        decays: returns whether a parameter, given with its name, has weight decay. With Muon, only its matrices do.
        sharding: how the parameters were cut, if `named` holds this process's rows; None: they are whole.
        matrices: the names of the parameters that Muon updates.
    """
    if train.optimizer == "muon":
        by_muon = {name: parameter for name, parameter in named.items() if name in matrices}
        rest = ((name, parameter) for name, parameter in named.items() if name not in matrices)
        return Muon(parameter_groups(rest, 0.0, decays), train, by_muon)
    kind = Lamb if train.optimizer == "lamb" else FusedAdamW
    return kind(parameter_groups(named.items(), train.weight_decay, decays), train, sharding)


class MovingAverage:
    """Holds an average of the weights.

    It is an exponential moving average, whose decay is min(decay, (1 + t) / (60 + t)) at step t. So it is an average of
    about the last sixtieth of the steps so far. Without the warm-up, the average of a short run is mostly its initial
    weights. With 10 in place of 60, it lags behind weights that still learn: after 1,000 steps, when the learning rate
    has come down, it is up to 0.4 % worse.

    From a step `mean_from` on, it is the mean of the weights after this step and all later ones.

    Attributes:
        differs: whether it may differ from the weights. With a decay of 0, it does not before `mean_from`.
    """

    def __init__(self, named: Mapping[str, torch.Tensor], decay: float, mean_from: int | None = None):
        """Begin with the weights `named`. If these are always their own average, no copy is made."""
        self._weights = dict(named)
        self._decay, self._mean_from = decay, math.inf if mean_from is None else mean_from
        own = self.differs = bool(decay) or mean_from is not None
        self.tensors = {name: weight.detach().clone() for name, weight in named.items()} if own else None

    @torch.no_grad()
    def begin(self) -> None:
        """Begin again with the present weights."""
        for name, average in (self.tensors or {}).items():
            average.copy_(self._weights[name])

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after step `step`, counted from 0, to the average."""
        if self.tensors is None:
            return
        decay, average = min(self._decay, (1 + step) / (60 + step)), list(self.tensors.values())
        in_mean = 1 + step - self._mean_from  # how many weights it is the mean of; 0 or less: it is no mean yet
        new = 1 / in_mean if in_mean > 0 else 1 - decay
        self.differs = decay > 0 or in_mean > 0
        torch._foreach_lerp_(average, list(self._weights.values()), new)  # pyright: ignore[reportPrivateImportUsage]

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Replace the weights by their average in this context, in the same memory: no third copy is needed."""
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
