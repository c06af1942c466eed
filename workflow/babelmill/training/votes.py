"""What processes want at the end of a step: to leave the run, to save a checkpoint, or smaller forward passes.

Clocks and signals differ between processes, but all must decide alike. So each process votes at the end of each step,
one vote is enough, and all read the same result together with the numbers of the step.
"""

from typing import NamedTuple

import torch

from babelmill.runtime.processes import Processes


class Votes(NamedTuple):
    """The votes of a process, or the decisions of all.

    Attributes:
        leave: end the run after this step.
        save: save a checkpoint after this step.
        smaller: let all make smaller forward passes, since one ran out of memory.
    """

    leave: bool = False
    save: bool = False
    smaller: bool = False

    def of_all(self, processes: Processes) -> torch.Tensor:
        """Return the decisions as [3] int32 on the device: 1 for what at least one process votes for.

        On CUDA the host waits for nothing: the votes are sent from pinned memory, the decisions are read later.
        """
        votes = torch.tensor(self, dtype=torch.int32, pin_memory=processes.device.type == "cuda")
        return processes.max_(votes.to(processes.device, non_blocking=True))

    @classmethod
    def read(cls, decisions: torch.Tensor) -> "Votes":
        """Read the tensor of `of_all`, once it is on the host."""
        return cls(*(decision > 0 for decision in decisions.tolist()))
