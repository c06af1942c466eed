"""Let processes vote at the end of a step: leave the run, save a checkpoint, or make smaller forward passes.

Clocks and signals differ between processes, but all processes must make the same decision. So each process votes at the
end of each step. One vote is enough. All processes read the same result together with the numbers of the step.
"""

from typing import NamedTuple

import torch

from babelmill.runtime.processes import Processes


class Votes(NamedTuple):
    """Holds the votes of a process, or the decisions of all.

    They also carry the energy that the GPUs used, which only the first process of each machine knows.

    Attributes:
        leave: end the run after this step.
        save: save a checkpoint after this step.
        smaller: let all processes make smaller forward passes, since one ran out of memory.
        joules: energy that the GPUs of this machine used, or None if it is not known. In decisions: energy of the GPUs
            of all machines, or None if one machine does not know its own.
    """

    leave: bool = False
    save: bool = False
    smaller: bool = False
    joules: int | None = None

    def of_all(self, processes: Processes) -> torch.Tensor:
        """Return the decisions as [3 + machines] int32 on the device.

        The first three numbers are 1 if at least one process votes for `leave`, `save` or `smaller`. Each machine's
        energy plus 1 follows, or 0 if it is unknown. On CUDA the host does not wait: the votes are sent from pinned
        memory, and the decisions are read later.
        """
        energy = [0] * -(-processes.size // processes.local_size)
        energy[processes.rank // processes.local_size] = 0 if self.joules is None else self.joules + 1
        values = [self.leave, self.save, self.smaller, *energy]
        votes = torch.tensor(values, dtype=torch.int32, pin_memory=processes.device.type == "cuda")
        return processes.max_(votes.to(processes.device, non_blocking=True))

    @classmethod
    def read(cls, decisions: torch.Tensor) -> "Votes":
        """Return the decisions from the tensor of `of_all`, which must be on the host."""
        leave, save, smaller, *energy = decisions.tolist()
        return cls(leave > 0, save > 0, smaller > 0, sum(energy) - len(energy) if all(energy) else None)
