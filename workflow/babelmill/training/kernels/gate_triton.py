"""Multiply the values of attention by their gate, and normalise the result, on GPUs with Triton kernels.

The backward kernel writes the gate's gradient beside those of queries, keys and values (see `attention_triton.py`). It
reads the values and their gradient anyway, so it also computes what attention's backward pass needs of both: `delta`,
for each head the sum of their products.

The kernels have not run on a GPU yet: tests run them in Triton's interpreter and compile them for sm_80 and sm_90.
"""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false
# (a type checker does not know what Triton makes of a function)

import torch
import triton
import triton.language as tl

from babelmill.training.kernels.normalization_triton import gradient_of_input, normalize, sizes

TOKENS = 16  # per program of the backward kernel, which sums over them
NUMBERS = 16  # of a thread of this kernel, so that they fit into its registers


@triton.jit
def _gelu(x):
    """Return gelu(x) = x P(x) (Hendrycks and Gimpel, 2016, arXiv:1606.08415) and its derivative P(x) + x p(x).

    P is the normal distribution's cumulative function, and p its density. For x < 0, P(x) is p(x) times a polynomial in
    t = 1 / (1 + 0.23 |x|), and P(-x) is 1 - P(x) (Abramowitz and Stegun, 1964, formula 26.2.17; the error is below
    7.5e-8). So both need only one exponential.
    """
    density = tl.exp2(x * x * (-0.5 * 1.4426950408889634)) * 0.3989422804014327
    root = tl.rsqrt(1.0 + 0.2316419 * tl.abs(x))
    t = root * root  # a division needs five instructions
    tail = ((((1.330274429 * t - 1.821255978) * t + 1.781477937) * t - 0.356563782) * t + 0.319381530) * t
    share = tl.where(x < 0.0, density * tail, 1.0 - density * tail)
    return x * share, share + x * density


@triton.jit
def _gate_forward(
    VALUES, JOINT, ALIVE, RESULT, width, H, eps, GATES: tl.constexpr, B: tl.constexpr
):  # fmt: skip
    """Compute one token: its values times `alive` times the gelu of the gate, normalised."""
    token, n = tl.program_id(0).to(tl.int64), tl.arange(0, B)
    inside = n < H
    x = tl.load(VALUES + token * H + n, mask=inside, other=0.0).to(tl.float32) * tl.load(ALIVE + token).to(tl.float32)
    if GATES:
        x *= _gelu(tl.load(JOINT + token * width + 3 * H + n, mask=inside, other=0.0).to(tl.float32))[0]
    tl.store(RESULT + token * H + n, normalize(x, inside, H, eps)[0].to(RESULT.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tokens"])
def _gate_backward(
    GRADIENT, VALUES, JOINT, ALIVE, DVALUES, INTO, DELTA, SUMS, width, H, T, tokens, eps,
    GATES: tl.constexpr, B: tl.constexpr, D: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of TOKENS tokens' values and gates, their DELTA, and the sum of the gates' gradients."""
    n, head = tl.arange(0, B), tl.arange(0, B // D)
    sums = tl.zeros([B], tl.float32)
    for s in range(TOKENS):
        token = tl.program_id(0).to(tl.int64) * TOKENS + s
        exists = token < tokens
        inside = (n < H) & exists
        gradient = tl.load(GRADIENT + token * H + n, mask=inside, other=0.0).to(tl.float32)
        alive = tl.load(ALIVE + token, mask=exists, other=0.0).to(tl.float32)
        values = tl.load(VALUES + token * H + n, mask=inside, other=0.0).to(tl.float32) * alive
        x = values
        if GATES:
            gelu, slope = _gelu(tl.load(JOINT + token * width + 3 * H + n, mask=inside, other=0.0).to(tl.float32))
            x = values * gelu
        y, scale = normalize(x, inside, H, eps)
        dx = gradient_of_input(gradient, y, scale, H)
        dvalues = dx * alive
        if GATES:
            dvalues *= gelu
            dgate = dx * values * slope
            tl.store(INTO + token * width + 3 * H + n, dgate.to(INTO.dtype.element_ty), mask=inside)
            sums += tl.where(inside, dgate, 0.0)
        rounded = dvalues.to(DVALUES.dtype.element_ty)  # as attention's backward pass reads it
        tl.store(DVALUES + token * H + n, rounded, mask=inside)
        delta = tl.sum(tl.reshape(tl.where(inside, rounded.to(tl.float32) * values, 0.0), [B // D, D]), 1)
        place = (token // T * (H // D) + head) * T + token % T
        tl.store(DELTA + place, delta, mask=(head < H // D) & exists)
    if GATES:
        tl.store(SUMS + tl.program_id(0) * H + n, sums, mask=n < H)


def forward(values: torch.Tensor, joint: torch.Tensor, alive: torch.Tensor, eps: float) -> torch.Tensor:
    """Return values times the gelu of their gates, normalised, [B, T, H].

    Args:
        values: [B, T, H].
        joint: [B, T, 4 H], whose last H columns are the gates; or [B, T, 3 H]: there are no gates.
        alive: [B, 1, T, 1], by which values are multiplied; see `model.attention.Visible`.
        eps: see `model.gpt_bert.Normalization`.
    """
    (rows, length, size), width = values.shape, joint.size(-1)
    result = torch.empty_like(values)
    tensors = values, joint, alive, result
    _gate_forward[(rows * length,)](*tensors, width, size, eps, GATES=width > 3 * size, **sizes(size))
    return result


def backward(
    into: torch.Tensor,
    gradient: torch.Tensor,
    values: torch.Tensor,
    joint: torch.Tensor,
    alive: torch.Tensor,
    heads: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Write the gradient of the gates. Return that of the values, and sums.

    Args:
        into: as `joint`, for the gradients.
        gradient: [B, T, H], of what `forward` returned.
        heads: n.
        others: see `forward`.

    Returns:
        The gradient of the values, [B, T, H]; `delta` [B, n, T] float32, for each head the sum of the values times this
        gradient; the sum over all positions of the gates' gradient, [H] float32, or [0] without gates.
    """
    (rows, length, size), width = values.shape, joint.size(-1)
    programs, gates = -(-rows * length // TOKENS), width > 3 * size
    of_values, delta = torch.empty_like(values), values.new_empty(rows, heads, length, dtype=torch.float32)
    sums = delta.new_empty(programs, size if gates else 0)
    tensors = gradient, values, joint, alive, of_values, into, delta, sums
    numbers, switches = (width, size, length, rows * length, eps), {"GATES": gates, "D": size // heads}
    _gate_backward[(programs,)](*tensors, *numbers, **switches, TOKENS=TOKENS, **sizes(size, NUMBERS))
    return of_values, delta, sums.sum(0)
