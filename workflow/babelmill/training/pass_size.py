"""Decide how large forward passes are: as a setting says, or as many tokens as fit into the memory of a process.

On a GPU, two trial passes show how much memory a row takes. If memory runs out nevertheless, passes are halved. Their
size changes nothing but the order in which floating-point numbers are added, unless dropout depends on it
(`Network.sharded`).
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from babelmill.config import schema
from babelmill.core.files import UserError
from babelmill.runtime.processes import Processes
from babelmill.runtime.progress import device_name
from babelmill.training.networks.network import Network
from babelmill.training.plan.rows import Rows
from babelmill.training.plan.schedule import CPU_TOKENS, whole_tokens

log = logging.getLogger(__name__)

FIRST_TOKENS = 4096  # tokens of the first forward passes, which test what this machine can do
MOMENT_BYTES = 8  # of the optimizer's two moments in fp32, per element
SHARE_OF_MEMORY = 0.85  # share of a GPU's memory that forward passes and all tensors of training may take


class PassSize:
    """Holds the size of a process's forward passes: at most `tokens`, or as many as fit (None; see `find`)."""

    def __init__(self, tokens: int | None, network: Network, train: schema.Train, processes: Processes):
        self._network, self._train, self._processes = network, train, processes
        self.auto = tokens is None and not network.sharded  # whether a checkpoint keeps what was found
        self.unknown = self.auto
        # largest number of tokens of a pass
        self.tokens = whole_tokens(train) if network.sharded else tokens or CPU_TOKENS
        self.ran_out_of_memory = False  # whether this happened since the last vote
        self.fitted = Fitted()  # the largest passes that have fitted

    def rows(self, length: int) -> int:
        """Return how many rows of `length` tokens a pass has at most."""
        return max(1, self.tokens // length)

    def halve(self, length: int, largest: int, refused: str) -> None:
        """Halve the size of passes after one of `largest` rows did not fit into memory; `refused`: PyTorch's words.

        A UserError says that their size is part of the result, a single row does not fit, or a part of the gradient has
        been sent to the other processes.
        """
        gradients = self._network.gradients
        advice = "train.activation_checkpointing: true saves memory"
        if self._network.sharded:
            raise UserError(
                f"train.micro_batch_tokens = {self.tokens} does not fit into memory; lower it; {advice}: {refused}"
            )
        if largest < 2:
            raise UserError(
                f"a row of {length} tokens does not fit into memory; choose a smaller model; {advice}: {refused}"
            )
        self.tokens = largest // 2 * length
        self.ran_out_of_memory = True
        if gradients.sending:
            raise UserError(
                f"a forward pass did not fit into memory; set run.micro_batch_tokens: {self.tokens} and run the"
                f" workflow again: it continues from the last checkpoint: {refused}"
            )
        gradients.abandon()
        log.warning("a forward pass did not fit into memory: passes of %d tokens from now on", self.tokens)

    def agree(self) -> None:
        """Set the size to the smallest one of all processes."""
        self.tokens = -int(self._processes.max_(torch.tensor([-self.tokens], device=self._processes.device)))

    def find(self, make: Callable[[int], None], moments: int) -> None:
        """Find the size, by trying the longest rows with the most targets: `make` makes a pass of so many rows.

        `moments`: how many elements the first step of the optimizer makes two moments of.
        """
        length = max(self._train.sequence_lengths)
        fitting = rows_that_fit(make, max(1, FIRST_TOKENS // length), MOMENT_BYTES * moments, self._processes.device)
        self.tokens = min(fitting * length, self._train.global_batch_tokens)
        log.info("forward passes of %d tokens fit into memory", self.tokens)

    def state(self) -> dict[str, Any] | None:
        """Return the size that was found on this device, for a checkpoint; None if it is a setting."""
        return {"device": device_name(self._processes.device), "tokens": self.tokens} if self.auto else None

    def restore(self, state: dict[str, Any] | None) -> None:
        """Take the size of an earlier part of the run, if it was found on such a device."""
        if self.unknown and state and state["device"] == device_name(self._processes.device):
            self.tokens, self.unknown = state["tokens"], False


class Fitted:
    """Holds the numbers of rows and targets of the largest forward passes that have fitted, by length of rows."""

    def __init__(self):
        self._largest: dict[int, tuple[int, int]] = {}

    def has(self, length: int, passes: Sequence[Rows]) -> bool:
        """Return whether forward passes at least as large as these have fitted before."""
        rows, targets = self._largest.get(length, (0, 0))
        return all(len(each) <= rows and each.targets.sum() <= targets for each in passes)

    def add(self, length: int, passes: Sequence[Rows]) -> None:
        rows, targets = self._largest.get(length, (0, 0))
        rows = max([rows, *(len(each) for each in passes)])
        self._largest[length] = rows, max([targets, *(int(each.targets.sum()) for each in passes)])


def rows_that_fit(make: Callable[[int], None], first: int, later: int, device: torch.device) -> int:
    """Return how many rows fit into one forward pass. Two passes of different sizes show how much memory a row takes.

    The first pass has `first` rows, which are halved until it fits. A step needs `later` bytes besides its passes that
    are not allocated yet.
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
