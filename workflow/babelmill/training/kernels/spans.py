"""Find the part of each row that attention computes on GPUs, tile by tile.

A tile is `TILE` neighbouring positions. In causal rows no query sees a later key, and no query sees another document.
So many tiles of queries see few tiles of keys, and the kernels of attention leave out the others.
"""

import torch
from torch.nn import functional as F

TILE = 64


def tiles(length: int) -> int:
    """Return how many tiles a row of `length` tokens has."""
    return -(-length // TILE)


def of_mask(seen: torch.Tensor) -> torch.Tensor:
    """Return from where to where the queries of each tile see keys, and the keys of each tile are seen by queries.

    Args:
        seen: [B, 1, T, T] bool, see `training_mask`. The keys that a tile sees must be neighbours, and so must be the
            queries that see a tile.

    Returns:
        [B, 2, tiles, 2] int32: of queries and of keys; the first position, and the last one plus 1 (T and 0 if there is
        none).
    """
    length, found = seen.size(-1), []
    seen = F.pad(seen[:, 0], (0, -length % TILE) * 2)
    position = torch.arange(seen.size(-1), dtype=torch.int32, device=seen.device)
    for of_tiles in (seen.unflatten(1, (-1, TILE)).any(2), seen.unflatten(2, (-1, TILE)).any(3).mT):  # [B, tiles, T]
        first, last = (torch.where(of_tiles, position, otherwise) for otherwise in (length, -1))
        found.append(torch.stack([first.amin(-1), last.amax(-1) + 1], -1))
    return torch.stack(found, 1)


def whole(rows: int, length: int, device: torch.device) -> torch.Tensor:
    """Return the spans of rows in which every tile sees the whole row."""
    ends = torch.arange(2, dtype=torch.int32, device=device) * length
    return ends.repeat(rows, 2, tiles(length), 1)
