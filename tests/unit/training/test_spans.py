"""Where tiles of a row see, and are seen: what the kernels of attention for GPUs leave out."""

import pytest
import torch

from babelmill.model.gpt_bert import training_mask
from babelmill.training.kernels import dropout

ROWS = 40


def mask(length: int) -> torch.Tensor:
    """Rows of documents of all lengths; some are padded, some are padding alone, every other one is causal."""
    generator = torch.Generator().manual_seed(length)
    ends = torch.rand(ROWS, length, generator=generator) < torch.rand(ROWS, 1, generator=generator) ** 3
    segments = ends.cumsum(1)
    room = torch.randint(2 * length, (ROWS, 1), generator=generator)
    segments[torch.arange(length) >= room] = -1
    return training_mask(segments, torch.arange(ROWS) % 2 == 0)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200, 320])
def test_spans_are_what_is_seen(length):
    seen = mask(length)
    found = dropout.spans_of_mask(seen)
    for row, of_row in zip(seen[:, 0], found, strict=True):
        for by_tile, of_tiles in zip((row, row.T), of_row, strict=True):
            for tile, span in zip(by_tile.split(dropout.TILE), of_tiles, strict=True):
                places = tile.any(0).nonzero()
                first, end = (places[0].item(), places[-1].item() + 1) if len(places) else (length, 0)
                assert span.tolist() == [first, end]
