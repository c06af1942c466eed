"""How large a forward pass may be in the memory of a GPU."""

from collections.abc import Callable, Sequence

import torch

from babelmill.training.batches import Rows

SHARE_OF_MEMORY = 0.85  # of a GPU's that forward passes may take, with all that training keeps there


class Fitted:
    """The rows and targets of the largest forward passes that have fitted so far, by length of their rows."""

    def __init__(self):
        self._largest: dict[int, tuple[int, int]] = {}

    def has(self, length: int, passes: Sequence[Rows]) -> bool:
        """Return whether forward passes as large as these have fitted before."""
        rows, targets = self._largest.get(length, (0, 0))
        return all(len(each) <= rows and each.targets.sum() <= targets for each in passes)

    def add(self, length: int, passes: Sequence[Rows]) -> None:
        """Note forward passes that have fitted."""
        rows, targets = self._largest.get(length, (0, 0))
        rows = max([rows, *(len(each) for each in passes)])
        self._largest[length] = rows, max([targets, *(int(each.targets.sum()) for each in passes)])


def rows_that_fit(peak: Callable[[int], int], first: int, device: torch.device) -> int:
    """Return how many rows fit into one forward pass. Two passes of different size tell how much memory a row takes.

    Args:
        peak: makes a pass of so many rows, and returns the most memory in bytes that was taken.
        first: rows of the first pass; fewer where they do not fit.
        device: the GPU.
    """
    while True:
        try:
            peaks = peak(first), peak(2 * first)
            break
        except torch.OutOfMemoryError:
            if first == 1:
                return 1  # where this does not fit either, the first step says so
        first //= 2
    per_row = max(1.0, (peaks[1] - peaks[0]) / first)
    memory = SHARE_OF_MEMORY * (torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device))
    return first + max(0, int((memory - peaks[0]) / per_row))
