"""Compare each of our Triton kernels with its formula: the largest difference of a result or a gradient.

Each tensor's difference is relative to the tensor. In float32, its largest number counts. In bfloat16, its norm does: where
a token's numbers are nearly equal, normalising them makes roundings large, and a narrow model has such tokens.
"""

import math

import torch
from torch import nn

from babelmill.model.attention import Visible, position_buckets, visible
from babelmill.model.gpt_bert import GEGLU, Attention, GPTBertShape, Normalization, training_mask
from babelmill.model.mixing import LayerMixing
from babelmill.training.kernels import mixing_triton
from babelmill.training.kernels.attention_block_triton import FusedAttention
from babelmill.training.kernels.dropout import KeyedAttention, Keys, NoDropout, RowDropout
from babelmill.training.kernels.geglu_triton import NormalizedGEGLU
from babelmill.training.kernels.mixing_triton import FusedMixing

CLOSE = 0.03  # largest relative difference of a kernel from its formula, in bf16
ROWS = 11  # hidden states that are mixed: their sums are begun twice


def of_attention(device: torch.device, shape: GPTBertShape, length: int, dropout: float, kind: torch.dtype) -> float:
    """Return the largest difference between an attention block with the kernels and the formula in float64.

    The result and all gradients are compared. There is a causal row of three documents, a bidirectional one whose
    second half is padding, and one that is a single document.

    Args:
        device: where to compute.
        shape: the model's, of which width, heads, gate and position buckets count.
        length: tokens per row.
        dropout: probability of dropping an attention weight.
        kind: float32, or bfloat16 for autocast.
    """
    generator = torch.Generator().manual_seed(length)
    segments = torch.arange(length).repeat(3, 1) * 3 // length
    segments[1, length // 2 :], segments[2] = -1, 0
    keys = Keys(7, device)
    allowed = training_mask(segments, torch.tensor([True, False, False])).to(device)
    none = torch.zeros(1, dtype=torch.int64, device=device)
    keys.begin_pass(torch.tensor([11, 2**31 + 5, 12], device=device), none, length, allowed)
    seen = visible(allowed, kind)
    buckets = position_buckets(length, length, shape.position_bucket_size, shape.max_position_embeddings, device)
    block, width = Attention(shape), shape.hidden_size
    with torch.no_grad():
        for parameter in block.parameters():  # numbers that bf16 can store, so that both compute with the same ones
            drawn = torch.randn(parameter.shape, generator=generator) / parameter.size(-1) ** 0.5
            parameter.copy_(drawn.bfloat16())
    sizes = (3, length, width), (2 * shape.position_bucket_size - 1, width)
    given = [torch.randn(size, generator=generator).bfloat16() for size in sizes]
    gradient, found = torch.randn(given[0].shape, generator=generator).bfloat16(), []
    block.attend, block.dropout = KeyedAttention(3, keys), NoDropout(dropout)
    block.relative_dropout = nn.Dropout(0.0)
    for fused, wide in ((False, torch.float64), (True, torch.float32)):
        module = FusedAttention(block) if fused else block
        module.to(device, wide).zero_grad()
        leaves = [x.to(device, wide).requires_grad_() for x in given]
        mask = Visible(*(part.to(kind if fused else wide) for part in seen))
        with torch.autocast(device.type, torch.bfloat16, enabled=fused and kind == torch.bfloat16):
            result, _ = module(*leaves, buckets, mask)
        result.backward(gradient.to(device, result.dtype))
        gradients = (leaf.grad for leaf in (*leaves, *module.parameters()))
        tensors = [tensor for tensor in (result.detach(), *gradients) if tensor is not None]
        # Copies: without them, the next `module.to` would change the gradients in place.
        found.append([tensor.to(torch.float64, copy=True) for tensor in tensors])
    return _largest_difference(found, kind)


def of_geglu(device: torch.device, width: int, kind: torch.dtype = torch.bfloat16) -> float:
    """Return the largest difference between `NormalizedGEGLU` and the formula in float64.

    The result and the gradient are compared.

    Args:
        device: where to compute.
        width: numbers of a token in the result; the input has twice as many.
        kind: type of the input.
    """
    generator, eps = torch.Generator().manual_seed(width), 1e-5
    joint, gradient = (torch.randn(2, 3, size, generator=generator).to(device, kind) for size in (2 * width, width))
    joint[0, 0, width:] *= 20  # gates so large that their gelu is 0 or the gate itself
    formula, found = nn.Sequential(GEGLU(), Normalization(width, eps)), []
    for module, wide in ((formula, torch.float64), (NormalizedGEGLU(eps), kind)):
        given = joint.to(wide, copy=True).requires_grad_()
        result = module(given)
        (of_joint,) = torch.autograd.grad(result, given, gradient.to(wide))
        found.append([result.detach().double(), of_joint.double()])
    return _largest_difference(found, kind)


def _largest_difference(tensors: list[list[torch.Tensor]], kind: torch.dtype) -> float:
    """Return the largest relative difference of the wanted tensors and those found in `kind`; nan if one is."""
    order = 2 if kind == torch.bfloat16 else math.inf
    norms = [torch.stack([a - b, a]).flatten(1).norm(order, dim=1) for a, b in zip(*tensors, strict=True)]
    return torch.stack([difference / size for difference, size in norms]).max().item()


def of_sums(
    device: torch.device,
    width: int,
    mixes: bool,
    kind: torch.dtype = torch.bfloat16,
    rows: int = ROWS,
    p: float = 0.1,
) -> float:
    """Return the largest difference between the kernels between sub-blocks and the formula in float64.

    All results and all gradients are compared; the gradients of all weights count as one tensor.

    Args:
        device: where to compute.
        width: width of the hidden states.
        mixes: whether layers are mixed.
        kind: type of the outputs of sub-blocks, and of the kernels' results.
        rows: number of hidden states that are summed.
        p: probability of dropping an element.
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
    share = 1.0 if mixes else 0.25  # without mixing, large changes make the last gradients depend on roundings alone
    gates = [(share * torch.randn(shape, generator=generator)).to(kind) for _ in range(rows - 1)]
    found = []
    for fused, wide, narrow in ((False, torch.float64, torch.float64), (True, torch.float32, kind)):
        mixing.to(device, wide)
        leaves = [hidden.to(device, wide), *(gate.to(device, narrow) for gate in gates)]
        leaves = [leaf.detach().requires_grad_() for leaf in leaves] + list(mixing.alphas) * mixes
        if fused:
            module = FusedMixing(dropouts, eps, mixing if mixes else None)
            module.kind = kind
            x, add = module.start(leaves[0])
        else:
            dropped = dropouts[0](leaves[0])
            x, add = mixing.start(dropped) if mixes else (dropped, torch.add)
        results = [x if fused else normalize(x)]
        for gate, drop in zip(leaves[1:rows], dropouts[1:], strict=True):
            change = results[-1] * gate
            x = add(x, change if fused else drop(change))
            results.append(x if fused else normalize(x))
        gradients = torch.autograd.grad(results[-1], leaves, gradient.to(device, results[-1].dtype))
        weights = [torch.cat(gradients[rows:])] if mixes else []
        found.append([result.detach().double() for result in (*results, *gradients[:rows], *weights)])
    return _largest_difference(found, kind)
