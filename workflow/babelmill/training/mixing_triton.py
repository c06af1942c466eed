"""Compute layer mixing on GPUs with a Triton kernel that adds, stores and sums in one pass for each sub-block.

It computes h_t = x + change, stores it as row t of a bf16 buffer, and returns sum_{i <= t} M[t, i] h_i. The sum
is in fp32, and its newest term is h_t before rounding. So rounding errors do not build up from layer to layer where M
is near the identity, as it is at first. The backward pass is the same recurrence (`mixing_kernel.py`), so the same
kernel computes it; it also returns its result in the type of the change.

Before every eighth row, a second kernel begins the next eight sums with all rows so far, and reads each of them once.
The first kernel adds only the rows after them.

There are no atomic additions, and every run computes the same numbers. The number of rows has no limit. The kernels get
it at run time, so they are built only once.

The kernels have not run on a GPU yet: tests run them in Triton's interpreter and build them for GPUs of NVIDIA and AMD.
"""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false
# (a type checker does not know what Triton makes of a function)

import torch
import triton
import triton.language as tl

from babelmill.model.mixing import LayerMixing
from babelmill.training.mixing_kernel import LayerMixingByHand, WeightedSums

BLOCK, WARPS = 1024, 4  # numbers of a row per program: a thread of the first kernel loads 16 bytes of each row
SUMS = 8  # sums to which the second kernel adds a row at once; a power of 2
COLUMNS = 2**14  # numbers of two rows that are multiplied and added at once
ROWS = SUMS + 3  # of a trial: three sums are begun by the second kernel
# Numbers per row of the trials. Triton builds a kernel of its own for multiples of 16, and the second number is large
# enough for the products of `COLUMNS` numbers.
SIZES = 3 * BLOCK + 5, 2 * COLUMNS + 3 * BLOCK


@triton.jit(do_not_specialize=["t"], do_not_specialize_on_alignment=["WEIGHTS"])
def _add_store_sum(
    X, CHANGE, BEGUN, EARLIER, WEIGHTS, ROW, RESULT, NARROW, N, t,
    ADDS: tl.constexpr, GOES_ON: tl.constexpr, NARROWS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Compute B numbers of a row, and of its sum with BEGUN and with the t rows before it."""
    first = tl.program_id(0).to(tl.int64) * B
    n = tl.arange(0, B)
    inside = n < N - first
    newest = tl.load(X + first + n, mask=inside)
    if ADDS:
        newest += tl.load(CHANGE + first + n, mask=inside).to(tl.float32)
    tl.store(ROW + first + n, newest.to(ROW.dtype.element_ty), mask=inside)
    sums, place = tl.zeros([B], tl.float32), EARLIER + first
    if GOES_ON:
        sums += tl.load(BEGUN + first + n, mask=inside)
    for i in tl.range(0, t, loop_unroll_factor=4):
        sums += tl.load(WEIGHTS + i) * tl.load(place + n, mask=inside).to(tl.float32)
        place += N
    sums += tl.load(WEIGHTS + t) * newest
    tl.store(RESULT + first + n, sums, mask=inside)
    if NARROWS:
        tl.store(NARROW + first + n, sums.to(NARROW.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["t", "stride", "count"], do_not_specialize_on_alignment=["WEIGHTS"])
def _sum_rows(EARLIER, WEIGHTS, RESULT, N, t, stride, count, S: tl.constexpr, B: tl.constexpr):
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
    tl.store(places, sums, mask=exists[:, None] & inside[None, :])


@torch.library.custom_op("babelmill::add_store_sum", mutates_args=("row",))
def _next(
    x: torch.Tensor,
    change: torch.Tensor | None,
    begun: torch.Tensor | None,
    earlier: torch.Tensor,
    weights: torch.Tensor,
    row: torch.Tensor,
    narrow: torch.dtype | None,
) -> list[torch.Tensor]:
    """Write x + change into `row`. Return its weighted sum with the earlier rows, and again in type `narrow` if given.

    Args:
        x, change: [N]; x is float32, change has any type.
        begun: [N] float32, what is added to the sum.
        earlier: [t, N], rows before this one.
        weights: [t + 1] float32, of the earlier rows and of this one.
        row: [N], of the type of the earlier rows.
        narrow: a second type of the result.
    """
    results = [torch.empty_like(x)] + ([torch.empty_like(x, dtype=narrow)] if narrow else [])
    switches = {"ADDS": change is not None, "GOES_ON": begun is not None, "NARROWS": narrow is not None}
    tensors = (x, x if change is None else change, x if begun is None else begun, earlier, weights, row)
    _add_store_sum[(triton.cdiv(x.numel(), BLOCK),)](
        *tensors, results[0], results[-1], x.numel(), len(earlier), **switches, B=BLOCK, num_warps=WARPS
    )
    return results


@_next.register_fake
def _(x, change, begun, earlier, weights, row, narrow):
    return [torch.empty_like(x)] + ([torch.empty_like(x, dtype=narrow)] if narrow else [])


@torch.library.custom_op("babelmill::sum_rows", mutates_args=())
def _begin(earlier: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return weights [S, t], float32, times the rows `earlier` [t, N], as [S, N] float32; S is at most `SUMS`."""
    count, numbers = len(weights), earlier.size(1)
    sums = torch.empty(count, numbers, device=earlier.device)
    grid, shape = (triton.cdiv(numbers, BLOCK),), {"S": SUMS, "B": BLOCK, "num_warps": 2 * WARPS}
    _sum_rows[grid](earlier, weights, sums, numbers, len(earlier), weights.stride(0), count, **shape)
    return sums


@_begin.register_fake
def _(earlier, weights):
    return torch.empty(len(weights), earlier.size(1), device=earlier.device)


def _products(rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return rows [R, N] times the transpose of others [S, N], in float32.

    One matrix product of this shape would keep few of a GPU's processors busy, or would need atomic additions.
    """
    count = rows.size(1) // COLUMNS
    whole, exact = count * COLUMNS, {"out_dtype": torch.float32} if rows.is_cuda else {}
    left, right = (x[:, :whole].unflatten(1, (count, COLUMNS)).transpose(0, 1) for x in (rows, others))
    sums = torch.bmm(left, right.mT, **exact).sum(0, dtype=torch.float32)
    return torch.addmm(sums, rows[:, whole:].float(), others[:, whole:].float().T)


class TritonSums(WeightedSums):
    """Computes `WeightedSums` of float32 tensors with the kernel of this file."""

    row_type = torch.bfloat16
    _begun: torch.Tensor | None = None  # what the second kernel computed, [up to SUMS, N]

    def next(
        self, row: torch.Tensor, change: torch.Tensor | None, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `WeightedSums.next`."""
        t, rows, matrix = self.done, self.rows.flatten(1), self.matrix
        self.done += 1
        start = t - t % SUMS
        if t == start and t > 0:
            self._begun = None  # frees its memory first
            self._begun = _begin(rows[:t], matrix[t : t + SUMS, :t])
        begun = None if self._begun is None else self._begun[t - start]
        tensors = [None if x is None else x.reshape(-1) for x in (row, change)]
        narrow = None if dtype == torch.float32 else dtype
        results = _next(*tensors, begun, rows[start:t], matrix[t, start : t + 1], rows[t], narrow)
        return results[0].view(row.shape), results[-1].view(row.shape)

    def products(self, others: torch.Tensor) -> torch.Tensor:
        """See `WeightedSums.products`."""
        with torch.autocast(others.device.type, enabled=False):
            return _products(self.rows.flatten(1), others.flatten(1))


def difference(device: torch.device, sums: type[WeightedSums], rows: int = ROWS, numbers: int = SIZES[0]) -> float:
    """Return the largest difference between some sums and the formula in float64.

    All x and all gradients are compared, each relative to its largest number; the gradients of all weights count as one
    tensor. Each x is used twice, as in a model: for the next change and for the next x. Changes have the type of the
    stored rows.
    """
    generator = torch.Generator().manual_seed(rows)
    mixing = LayerMixing(rows - 1)
    with torch.no_grad():
        for alpha in mixing.alphas:
            alpha.copy_(torch.randn(len(alpha), generator=generator) / len(alpha))
            alpha[-1] += 1.0
    given = [torch.randn(numbers, generator=generator) for _ in range(2)]
    gates = [torch.randn(numbers, generator=generator) / 5 for _ in range(rows - 1)]
    found = []
    for kind, by_hand, changes in ((torch.float64, False, torch.float64), (torch.float32, True, sums.row_type)):
        mixing.to(device, kind).zero_grad()
        hidden = given[0].to(device, kind).requires_grad_()
        x, add = (LayerMixingByHand(mixing, sums) if by_hand else mixing).start(hidden)
        xs, parts = [x], []
        for gate in gates:
            parts.append((xs[-1] * gate.to(device, kind)).to(changes))
            xs.append(add(xs[-1], parts[-1]))
        leaves = [hidden, *parts, *mixing.alphas]
        gradients = torch.autograd.grad(xs[-1], leaves, given[1].to(device, kind))
        found.append([x.detach().double() for x in (*xs, *gradients[:rows], torch.cat(gradients[rows:]))])
    pairs = zip(*found, strict=True)
    return torch.stack([(ours - theirs).abs().max() / theirs.abs().max() for theirs, ours in pairs]).max().item()
