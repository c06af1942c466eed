"""Find out how large a forward pass may be, given the memory of a GPU."""

from collections.abc import Callable, Sequence

import torch

from babelmill.training.plan.rows import Rows

MOMENT_BYTES = 8  # of the optimizer's two moments in fp32, per trained element
SHARE_OF_MEMORY = 0.85  # share of a GPU's memory that forward passes and all tensors of training may take


class Fitted:
    """Holds the numbers of rows and targets of the largest forward passes that have fitted, by length of rows."""

    def __init__(self):
        self._largest: dict[int, tuple[int, int]] = {}

    def has(self, length: int, passes: Sequence[Rows]) -> bool:
        """Return whether forward passes at least as large as these have fitted before."""
        rows, targets = self._largest.get(length, (0, 0))
        return all(len(each) <= rows and each.targets.sum() <= targets for each in passes)

    def add(self, length: int, passes: Sequence[Rows]) -> None:
        """Remember forward passes that have fitted."""
        rows, targets = self._largest.get(length, (0, 0))
        rows = max([rows, *(len(each) for each in passes)])
        self._largest[length] = rows, max([targets, *(int(each.targets.sum()) for each in passes)])


def rows_that_fit(make: Callable[[int], None], first: int, later: int, device: torch.device) -> int:
    """Return how many rows fit into one forward pass. Two passes of different sizes show how much memory a row takes.

    Args:
        make: makes a pass with a given number of rows.
        first: number of rows of the first pass; it is halved until the passes fit.
        later: bytes that a step needs besides its passes, and that are not allocated yet.
        device: the GPU.
    """
    needed = torch.empty(later, dtype=torch.uint8, device=device)

    def peak(rows: int) -> int:
        torch.cuda.reset_peak_memory_stats(device)
        make(rows)
        return torch.cuda.max_memory_allocated(device)

    while True:
        try:
            peaks = peak(first), peak(2 * first)
            break
        except torch.OutOfMemoryError:
            if first == 1:
                return 1  # if one row does not fit either, the first step reports it
        first //= 2
    del needed
    per_row = max(1.0, (peaks[1] - peaks[0]) / first)
    memory = SHARE_OF_MEMORY * (torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device))
    return first + max(0, int((memory - peaks[0]) / per_row))
