"""Compute the gradients of attention's tables of relative positions on GPUs with a Triton kernel.

The gradient of a head's table is one matrix product over all positions of a forward pass: [R, B T] x [B T, d].
Computed as such, it would keep few of a GPU's processors busy. So each program computes a part of the sum.

The kernel has not run on a GPU yet: tests run it in Triton's interpreter and compile it for GPUs of NVIDIA and AMD.
"""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# (a type checker does not know what Triton makes of a function)

import torch
import triton
import triton.language as tl

from babelmill.training.kernels.tiles_triton import WARPS, dot, load, store

TILE, POSITIONS = 64, 2048  # positions per tile, and per program


@triton.jit(do_not_specialize=["positions"])
def _backward_of_tables(
    JOINT, DCONTENT, DPOSITION, PARTS, width, heads, positions,
    COUNT: tl.constexpr, B: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the part of COUNT positions in the gradients of one head's tables: PARTS [parts, 2, n, R, D] float32."""
    part, h = tl.program_id(0) // heads, tl.program_id(0) % heads
    r, products = tl.arange(0, R), h * positions.to(tl.int64) * R
    of_queries, of_keys = tl.zeros([R, D], tl.float32), tl.zeros([R, D], tl.float32)
    for start in range(0, COUNT, B):
        i = part.to(tl.int64) * COUNT + start + tl.arange(0, B)
        q, k = load(JOINT, h * D, i, width, positions, D), load(JOINT, (heads + h) * D, i, width, positions, D)
        of_queries += dot(tl.trans(load(DPOSITION, products, i, R, positions, R)), k)
        of_keys += dot(tl.trans(load(DCONTENT, products, i, R, positions, R)), q)
    place = part * 2 * heads + h
    store(PARTS, of_queries, place * R * D, r, D, R, D)
    store(PARTS, of_keys, (place + heads) * R * D, r, D, R, D)


def gradient(
    joint: torch.Tensor, dcontent: torch.Tensor, dposition: torch.Tensor, tables: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of the tables, [2, n, R, d].

    Args:
        joint: [B, T, W], whose first 2 H columns are queries and keys.
        dcontent, dposition: [n, B T, R], the gradients of queries times the table of keys, and keys times that of
            queries.
        tables: [2, n, R, d], those of queries and of keys.
    """
    (_, positions, _), (_, heads, buckets, size) = dcontent.shape, tables.shape
    count = -(-positions // POSITIONS)
    parts = torch.empty(count, *tables.shape, dtype=torch.float32, device=tables.device)
    sizes = {"COUNT": POSITIONS, "B": TILE, "D": size, "R": buckets, "num_warps": WARPS}
    _backward_of_tables[(count * heads,)](joint, dcontent, dposition, parts, joint.size(-1), heads, positions, **sizes)
    return parts.sum(0).to(tables.dtype)
