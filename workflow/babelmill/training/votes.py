"""What processes want at the end of a step: to leave the run, to save a checkpoint, or smaller forward passes.

Clocks and signals differ between processes, but all must decide alike. So each process votes at the end of each step,
one vote is enough, and all read the same result together with the numbers of the step.
"""

from typing import NamedTuple

import torch

from babelmill.runtime.processes import Processes


class Votes(NamedTuple):
    """The votes of a process, or the decisions of all.

    With them goes the energy that the GPUs took, which the first process of each machine knows.

    Attributes:
        leave: end the run after this step.
        save: save a checkpoint after this step.
        smaller: let all make smaller forward passes, since one ran out of memory.
        joules: that the GPUs of this machine took, or of all; None if it is not known, of all if one does not know.
    """

    leave: bool = False
    save: bool = False
    smaller: bool = False
    joules: int | None = None

    def of_all(self, processes: Processes) -> torch.Tensor:
        """Return the decisions as [3 + machines] int32 on the device.

        The first three are 1 for what at least one process votes for; then each machine's energy plus 1, 0 if unknown.

        On CUDA the host waits for nothing: the votes are sent from pinned memory, the decisions are read later.
        """
        energy = [0] * -(-processes.size // processes.local_size)
        energy[processes.rank // processes.local_size] = 0 if self.joules is None else self.joules + 1
        values = [self.leave, self.save, self.smaller, *energy]
        votes = torch.tensor(values, dtype=torch.int32, pin_memory=processes.device.type == "cuda")
        return processes.max_(votes.to(processes.device, non_blocking=True))

    @classmethod
    def read(cls, decisions: torch.Tensor) -> "Votes":
        """Read the tensor of `of_all`, once it is on the host."""
        leave, save, smaller, *energy = decisions.tolist()
        return cls(leave > 0, save > 0, smaller > 0, sum(energy) - len(energy) if all(energy) else None)
