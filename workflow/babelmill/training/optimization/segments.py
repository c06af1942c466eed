"""Put many tensors into one buffer: one kernel works on all of them, and each begins where a GPU reads fastest."""

from collections.abc import Sequence

import torch


def segments(tensors: Sequence[torch.Tensor], multiple: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return a buffer of zeros, [elements], with a segment for each tensor, and the views of the segments.

    The tensors have one type and one device. Each view has the shape of its tensor. The number of elements of each
    segment is a multiple of `multiple`, so each view begins at such a multiple. The rest of a segment stays unused.
    """
    sizes = [-(-tensor.numel() // multiple) * multiple for tensor in tensors]
    flat = torch.zeros(sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)
    pairs = zip(flat.split(sizes), tensors, strict=True)
    return flat, [segment[: tensor.numel()].view(tensor.shape) for segment, tensor in pairs]
