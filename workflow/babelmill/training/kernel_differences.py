"""Measure how far the numbers of our GPU kernels are from the formulas, on the machine that will use them."""

import torch

from babelmill.model.attention import Visible, position_buckets, visible
from babelmill.model.gpt_bert import Normalization, training_mask
from babelmill.model.mixing import LayerMixing
from babelmill.training import mixing_triton
from babelmill.training.attention_triton import TritonAttention
from babelmill.training.dropout import KeyedAttention, Keys, RowDropout
from babelmill.training.mixing_triton import FusedMixing

ROWS = 11  # hidden states that are mixed: their sums are begun twice


def of_attention(device: torch.device, width: int, length: int, dropout: float, dtype: torch.dtype) -> float:
    """Return the largest difference between the kernels and the formula in float64.

    Values and gradients are compared, each relative to its largest number, for a causal and a bidirectional row of
    three documents. The second row has padding.
    """
    generator = torch.Generator().manual_seed(length)
    segments = torch.arange(length).repeat(2, 1) * 3 // length
    segments[1, -3:] = -1
    seen = visible(training_mask(segments, torch.tensor([True, False])), dtype)
    keys = Keys(7, device)
    keys.begin_pass(
        torch.tensor([11, 2**31 + 5], device=device), torch.zeros(1, dtype=torch.int64, device=device), length
    )
    buckets = position_buckets(length, length, 32, 512, device)
    drawn = [
        torch.randn(size, generator=generator).to(dtype) for size in ((2, length, 6 * width), *[(2, 63, width)] * 2)
    ]
    gradient = torch.randn(2, 2, length, width, generator=generator).to(dtype)
    found = []
    for attention, kind in ((KeyedAttention(3, keys), torch.float64), (TritonAttention(3, keys), dtype)):
        leaves = [x.to(device, kind).requires_grad_() for x in drawn]
        query, key, value = (part.unflatten(2, (2, width)).transpose(1, 2) for part in leaves[0].chunk(3, 2))
        mask = Visible(*(part.to(device, kind) for part in seen))
        values, _ = attention(query, key, value, leaves[1], leaves[2], buckets, mask, dropout)
        values.backward(gradient.to(device, kind))
        found.append([values.detach(), *(leaf.grad for leaf in leaves)])
    pairs = [(ours.double(), theirs) for theirs, ours in zip(*found, strict=True)]
    return torch.stack([(ours - theirs).abs().max() / theirs.abs().max() for ours, theirs in pairs]).max().item()


def of_mixing(
    device: torch.device, width: int, rows: int = ROWS, p: float = 0.1, kind: type[FusedMixing] = FusedMixing
) -> float:
    """Return the largest difference between the kernels and the formula in float64.

    All results and all gradients are compared, each relative to its largest number; the gradients of all weights count
    as one tensor.

    Args:
        device: where to compute.
        width: width of the hidden states.
        rows: number of hidden states that are mixed.
        p: probability of dropping an element.
        kind: the class to compare.
    """
    generator, eps = torch.Generator().manual_seed(rows), 1e-5
    shape = 2, mixing_triton.COLUMNS // width + 3, width
    mixing, normalize, keys = LayerMixing(rows - 1), Normalization(width, eps), Keys(7, device)
    with torch.no_grad():
        for alpha in mixing.alphas:
            alpha.copy_(torch.randn(len(alpha), generator=generator) / len(alpha))
            alpha[-1] += 1.0
    keys.begin_pass(torch.tensor([11, 2**31 + 5], device=device), torch.zeros(1, dtype=torch.int64, device=device), 1)
    dropouts = [RowDropout(p, place, keys, "rows") for place in range(rows)]
    hidden, gradient = (torch.randn(shape, generator=generator) for _ in range(2))
    gates = [torch.randn(shape, generator=generator).to(kind.kind) for _ in range(rows - 1)]
    found = []
    for fused, wide, narrow in ((False, torch.float64, torch.float64), (True, torch.float32, kind.kind)):
        mixing.to(device, wide).zero_grad()
        leaves = [hidden.to(device, wide), *(gate.to(device, narrow) for gate in gates)]
        leaves = [leaf.detach().requires_grad_() for leaf in leaves] + list(mixing.alphas)
        mixed = kind(mixing, dropouts, eps).start(leaves[0]) if fused else mixing.start(dropouts[0](leaves[0]))
        (x, add), results = mixed, []
        for gate, drop in zip(leaves[1:rows], dropouts[1:], strict=True):
            results.append(x if fused else normalize(x))
            change = results[-1] * gate
            x = add(x, change if fused else drop(change))
        gradients = torch.autograd.grad(x, leaves, gradient.to(device, wide))
        weights = torch.cat(gradients[rows:])
        found.append([result.detach().double() for result in (*results, x, *gradients[:rows], weights)])
    pairs = zip(*found, strict=True)
    return torch.stack([(ours - theirs).abs().max() / theirs.abs().max() for theirs, ours in pairs]).max().item()
