"""Compute layer mixing or residual sums on GPUs, together with the dropout before and the normalisation after them.

Between two sub-blocks of a model stand dropout, the residual sum, layer mixing and a normalisation. So they do between
the last sub-block and the classifier. Each would read and write whole hidden states. Here one kernel per sub-block does
all of them. It stores nothing but the change (the sub-block's output after dropout) and its result (the input of the
next product).

For this, the formulas of `babelmill.model.mixing`, x_j = sum_{i <= j} M[j, i] h_i and h_i = x_{i-1} + c_i, are put into
each other: x_j = sum_{i <= j} W[j, i] c_i, where c_0 = h_0 is the embedding and c_i the change by the i-th sub-block.
The matrix is W = (1 - M S)^-1 M, where M S is M with its columns moved to the left by one. The scale of dropout is part
of W, so the c_i are the numbers that a matrix product gave, in bf16, and nothing is rounded before it is summed.

Without layer mixing, W is a lower triangle of ones, and has no gradient.

The gradient of c_i is sum_{j >= i} W[j, i] g_j, where g_j is the gradient of x_j that the next sub-block gives: the
same recurrence, run backwards. The gradient of W is one matrix product at the end. So a backward pass must run from the
last x to the first one; no other kind of backward pass is supported.

Before every fifth row, a second kernel begins the next five sums with all rows so far, and reads each of them once. The
kernel of a sub-block adds only the rows after them. There are no atomic additions, and every run computes the same
numbers. The number of rows has no limit, and the kernels are built only once.

The kernels ran on an H200 (PyTorch 2.11, Triton 3.6): without them, a step of the preset `base` takes 56 % longer
(`benchmarks/README.md`, "On a GPU, measured"). Models without layer mixing have not used them on a GPU yet. Tests run
them in Triton's interpreter and build them for GPUs of NVIDIA and AMD.
"""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# (a type checker does not know what Triton makes of a function)

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn import functional as F

from babelmill.model.mixing import LayerMixing
from babelmill.training.kernels.dropout import RowDropout
from babelmill.training.kernels.shared_triton import drop, gradient_of_input, normalize, operator, sizes

SUMS = tl.constexpr(5)  # sums that the second kernel begins at once: about the square root of the number of rows
WARPS = 1  # of a program of the second kernel
BLOCK = 512  # numbers of a row per program of the second kernel
COLUMNS = 2**14  # numbers of two rows that are multiplied and added at once


@triton.jit
def _store_and_sum(newest, STORED, BEGUN, EARLIER, WEIGHTS, place, inside, N, t, GOES_ON: tl.constexpr):
    """Store the newest row. Return the weighted sum of this row and the t < SUMS rows before it, added to BEGUN."""
    tl.store(STORED + place, newest.to(STORED.dtype.element_ty), mask=inside)
    sums = tl.load(WEIGHTS + t) * newest
    if GOES_ON:
        sums += tl.load(BEGUN + place, mask=inside, other=0.0).to(tl.float32)
    for i in tl.static_range(SUMS - 1):  # unrolled, so that the loads do not wait for each other
        weight = tl.load(WEIGHTS + i, mask=i < t, other=0.0)
        sums += weight * tl.load(EARLIER + place, mask=inside & (i < t), other=0.0).to(tl.float32)
        EARLIER += N
    return sums


@triton.jit(do_not_specialize=["t", "length", "limit"], do_not_specialize_on_alignment=["WEIGHTS"])
def _mix_forward(
    CHANGE, BEGUN, EARLIER, WEIGHTS, STORED, RESULT, SCALE, KEYS, PLACE, N, H, t, length, limit, eps,
    GOES_ON: tl.constexpr, DROPS: tl.constexpr, EVEN: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Compute the input of the next sub-block for one token: drop, store, sum, normalise."""
    token, n = tl.program_id(0), tl.arange(0, B)
    inside, place = n < H, token.to(tl.int64) * H + n
    change = tl.load(CHANGE + place, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        change = drop(change, KEYS, PLACE, token, n, length, H, limit, EVEN)
    x = _store_and_sum(change, STORED, BEGUN, EARLIER, WEIGHTS, place, inside, N, t, GOES_ON)
    y, scale = normalize(x, inside, H, eps)
    tl.store(SCALE + token, scale)
    tl.store(RESULT + place, y.to(RESULT.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["t", "length", "limit"], do_not_specialize_on_alignment=["WEIGHTS"])
def _mix_backward(
    GRADIENT, NORMALIZED, SCALE, BEGUN, EARLIER, WEIGHTS, STORED, RESULT, KEYS, PLACE, N, H, t, length, limit,
    GOES_ON: tl.constexpr, DROPS: tl.constexpr, EVEN: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a change for one token: the gradient of the normalisation; store, sum, drop."""
    token, n = tl.program_id(0), tl.arange(0, B)
    inside, place = n < H, token.to(tl.int64) * H + n
    gradient = tl.load(GRADIENT + place, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(NORMALIZED + place, mask=inside, other=0.0).to(tl.float32)
    gradient = gradient_of_input(gradient, y, tl.load(SCALE + token), H)
    result = _store_and_sum(gradient, STORED, BEGUN, EARLIER, WEIGHTS, place, inside, N, t, GOES_ON)
    if DROPS:
        result = drop(result, KEYS, PLACE, token, n, length, H, limit, EVEN)
    tl.store(RESULT + place, result.to(RESULT.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["t", "stride", "count"], do_not_specialize_on_alignment=["WEIGHTS"])
def _begin_sums(EARLIER, WEIGHTS, RESULT, N, t, stride, count, S: tl.constexpr, B: tl.constexpr):
    """Compute B numbers of `count` <= S sums of t rows."""
    first = tl.program_id(0).to(tl.int64) * B
    n, s = tl.arange(0, B), tl.arange(0, S)
    inside, exists = n < N - first, s < count
    sums, place = tl.zeros([S, B], tl.float32), EARLIER + first
    for i in tl.range(0, t, num_stages=4):  # loads three rows ahead
        weights = tl.load(WEIGHTS + s * stride + i, mask=exists, other=0.0)
        sums += weights[:, None] * tl.load(place + n, mask=inside).to(tl.float32)[None, :]
        place += N
    places = RESULT + s.to(tl.int64)[:, None] * N + first + n[None, :]
    tl.store(places, sums.to(RESULT.dtype.element_ty), mask=exists[:, None] & inside[None, :])


def _launch(kernel: Any, hidden: torch.Tensor, inputs: tuple[Any, ...], **more: Any) -> None:
    """Run a kernel for each token of hidden states [B, T, H].

    `inputs` are those of `_forward`, from `begun` to `p`. A tensor that is None is not used.
    """
    (rows, length, width), (begun, earlier, weights, stored, keys, place, p) = hidden.shape, inputs
    tensors = {"BEGUN": begun, "EARLIER": earlier, "WEIGHTS": weights, "STORED": stored, "KEYS": keys, "PLACE": place}
    used = {name: stored if tensor is None else tensor for name, tensor in tensors.items()}
    numbers = {"N": hidden.numel(), "H": width, "t": len(earlier), "length": length, "limit": round(p * 2**16)}
    switches = {"GOES_ON": begun is not None, "DROPS": p > 0, "EVEN": width % 2 == 0}
    kernel[(rows * length,)](**used, **numbers, **switches, **more, **sizes(width))


def _empty(
    change: torch.Tensor, _begun: Any, _earlier: Any, _weights: Any, stored: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return empty tensors for the results of `_forward`."""
    return torch.empty_like(change, dtype=stored.dtype), torch.empty(change.shape[:2], device=change.device)


@operator("mix_forward", _empty, mutates=("stored",))
def _forward(
    change: torch.Tensor,
    begun: torch.Tensor | None,
    earlier: torch.Tensor,
    weights: torch.Tensor,
    stored: torch.Tensor,
    keys: torch.Tensor | None,
    place: torch.Tensor | None,
    p: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Drop elements of a change and write it into `stored`. Return its sum with earlier changes, normalised.

    Args:
        change: [B, T, H], of any type.
        begun: [B T H], to which the sum is added.
        earlier: [t, B T H], the changes before this one.
        weights: [t + 1] float32, of the earlier changes and of this one.
        stored: [B T H].
        keys, place, p: see `RowDropout`; with p = 0 nothing is dropped.
        eps: see `Normalization`.

    Returns:
        The sum, [B, T, H] in the type of `stored`, and by what it was multiplied to normalise it, [B, T] float32.
    """
    inputs = begun, earlier, weights, stored, keys, place, p
    result, scale = _empty(change, *inputs)
    _launch(_mix_forward, change, inputs, CHANGE=change, RESULT=result, SCALE=scale, eps=eps)
    return result, scale


@operator("mix_backward", lambda gradient, *more: torch.empty_like(gradient, dtype=more[-1]), mutates=("stored",))
def _backward(
    gradient: torch.Tensor,
    normalized: torch.Tensor,
    scale: torch.Tensor,
    begun: torch.Tensor | None,
    earlier: torch.Tensor,
    weights: torch.Tensor,
    stored: torch.Tensor,
    keys: torch.Tensor | None,
    place: torch.Tensor | None,
    p: float,
    kind: torch.dtype,
) -> torch.Tensor:
    """Write the gradient of an x into `stored`. Return its sum with later gradients, the gradient of a change.

    Args:
        gradient: [B, T, H], the gradient of what `_forward` returned.
        normalized, scale: what it returned.
        begun, earlier, weights, stored, keys, place, p: as in `_forward`, for gradients.
        kind: type of the result, which has the shape of `gradient`.
    """
    result = torch.empty_like(gradient, dtype=kind)
    inputs = begun, earlier, weights, stored, keys, place, p
    _launch(_mix_backward, gradient, inputs, GRADIENT=gradient, NORMALIZED=normalized, SCALE=scale, RESULT=result)
    return result


@operator("begin_sums", lambda earlier, weights: earlier.new_empty(len(weights), earlier.size(1)))
def _begin(earlier: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return weights [S, t] times the rows `earlier` [t, N], as [S, N] of the same type; S is at most `SUMS`."""
    count, numbers = len(weights), earlier.size(1)
    sums, block = earlier.new_empty(count, numbers), {"S": triton.next_power_of_2(SUMS.value), "B": BLOCK}
    grid, sizes = (-(-numbers // BLOCK),), (numbers, len(earlier), weights.stride(0), count)
    _begin_sums[grid](earlier, weights, sums, *sizes, **block, num_warps=WARPS)
    return sums


def _products(rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return rows [R, N] times the transpose of others [S, N], in float32.

    One matrix product of this shape would keep few of a GPU's processors busy, or would need atomic additions.
    """
    count = rows.size(1) // COLUMNS
    whole, exact = count * COLUMNS, {"out_dtype": torch.float32} if rows.is_cuda else {}
    left, right = (x[:, :whole].unflatten(1, (count, COLUMNS)).transpose(0, 1) for x in (rows, others))
    sums = torch.bmm(left, right.mT, **exact).sum(0, dtype=torch.float32)
    return torch.addmm(sums, rows[:, whole:].float(), others[:, whole:].float().T)


def of_changes(matrix: torch.Tensor) -> torch.Tensor:
    """Return W for the matrix M of `LayerMixing`; both are [S, S] and lower triangular."""
    moved = F.pad(matrix[:, 1:], (0, 1))
    return torch.linalg.solve_triangular(-moved, matrix, upper=False, unitriangular=True)


class _Sums:
    """Holds rows, and computes which inputs the kernel of the next row needs.

    Args:
        matrix: [S, S] float32, the weights of all sums, lower triangular.
        numbers: the numbers of a row.
        kind: their type.
    """

    def __init__(self, matrix: torch.Tensor, numbers: int, kind: torch.dtype):
        self.matrix, self.done = matrix, 0
        self.rows = matrix.new_empty(len(matrix), numbers, dtype=kind)
        self._begun: torch.Tensor | None = None  # by the second kernel, [up to SUMS, N]

    def next(self) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return `begun`, `earlier`, `weights` and `stored` of the next row; see `_forward`."""
        t, matrix = self.done, self.matrix
        start = t - t % SUMS.value
        self.done += 1
        if t == start and t > 0:
            self._begun = None  # frees its memory first
            self._begun = _begin(self.rows[:t], matrix[t : t + SUMS.value, :t])
        begun = None if self._begun is None else self._begun[t - start]
        return begun, self.rows[start:t], matrix[t, start : t + 1], self.rows[t]


class _Pass:
    """Holds the state of a forward pass, and of its backward pass: the changes, and the gradients of all x.

    Args:
        mixing: the module.
        matrix: W.
        hidden: the embedding, [B, T, H].
    """

    def __init__(self, mixing: "FusedMixing", matrix: torch.Tensor, hidden: torch.Tensor):
        self.eps, self.changes = mixing.eps, _Sums(matrix, hidden.numel(), mixing.kind)
        self.dropouts = [dropout.of_rows(mixing.training) for dropout in mixing.dropouts]
        self.gradients: _Sums | None = None


class _Mixed(torch.autograd.Function):
    """Computes the next x, normalised, from the change before dropout. Gradients are asked for from last to first.

    `matrix`, of which the first call computes the gradient, is None in all others.
    """

    @staticmethod
    def forward(ctx: Any, change: torch.Tensor, matrix: torch.Tensor | None, state: _Pass) -> torch.Tensor:
        ctx.state, ctx.position, ctx.kind = state, state.changes.done, change.dtype
        dropout = state.dropouts[ctx.position]
        result, scale = _forward(change.contiguous(), *state.changes.next(), *dropout, state.eps)
        ctx.save_for_backward(result, scale)
        return result

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        state, changes, of_matrix = ctx.state, ctx.state.changes, None
        if state.gradients is None:
            state.gradients = _Sums(changes.matrix.flip(0, 1).T.contiguous(), gradient.numel(), changes.rows.dtype)
        inputs = *ctx.saved_tensors, *state.gradients.next(), *state.dropouts[ctx.position]
        result = _backward(gradient.contiguous(), *inputs, ctx.kind)
        if ctx.needs_input_grad[1]:
            with torch.autocast(gradient.device.type, enabled=False):
                of_matrix = _products(state.gradients.rows, changes.rows).flip(0)  # its upper triangle has no meaning
        if ctx.position == 0:
            state.gradients = None  # frees its memory before the graph is freed
        return result, of_matrix, None


class FusedMixing(LayerMixing):
    """Computes `LayerMixing` or residual sums, the dropout of all changes, and the normalisation of all results.

    Args:
        dropouts: each drops elements of the embedding or of the change by a sub-block.
        eps: see `Normalization`.
        mixing: the module whose weights are used; None: residual sums are computed.
    """

    kind = torch.bfloat16  # type of changes and of normalised results

    def __init__(self, dropouts: list[RowDropout], eps: float, mixing: LayerMixing | None):
        super().__init__(0)
        self.dropouts, self.eps = dropouts, eps
        if mixing is not None:
            self.alphas = mixing.alphas
        scales = torch.tensor([1 / (1 - dropout.p) for dropout in dropouts])
        self.register_buffer("_scales", scales.to(dropouts[0].place.device), persistent=False)

    def start(self, hidden: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
        """Return the normalised x_0, and a function that turns a change into the next x; all [B, T, H]."""
        scales = self.get_buffer("_scales")
        with torch.autocast(hidden.device.type, enabled=False):
            mixes = len(self.alphas) > 0
            matrix = of_changes(self.matrix(hidden.float())) if mixes else scales.new_ones(2 * scales.shape).tril()
            matrix = matrix * scales if self.training else matrix
        state = _Pass(self, matrix.detach().contiguous(), hidden)  # the solution is stored by column
        return _Mixed.apply(hidden, matrix, state), lambda _, change: _Mixed.apply(change, None, state)
