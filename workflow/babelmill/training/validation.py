"""Measure the validation split with the present weights, and with their moving average."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from babelmill.runtime.processes import Processes
from babelmill.training.batches import Stream
from babelmill.training.networks.loss import no_sums, summarize
from babelmill.training.networks.network import Network
from babelmill.training.optimization.optim import MovingAverage
from babelmill.training.plan.plan import Plan, every_row
from babelmill.training.plan.randomness import VALIDATION
from babelmill.training.plan.rows import Layout, Rows, split, whole_rounds

LEAVE_EVERY = 8  # micro-batches per process between two questions whether to leave
FORWARD = 1 / 3  # the share of a forward pass in the time of a step: the backward pass takes twice as long
MEASURED = "targets"  # in a validation line: how many targets it measured, in which samples differ


class Validation:
    """Measures the validation split, or as much of it as the bounds allow, once for each kind of rows in training.

    Rows have the length of the first phase, so that numbers can be compared along the run. `documents` (of a language)
    and `tokens` bound what is measured; None: all.
    """

    def __init__(
        self,
        network: Network,
        average: MovingAverage,
        plan: Plan,
        languages: list[str],
        layouts: Sequence[Layout],
        stream: Stream,
        micro_batch_tokens: int,
        processes: Processes,
        documents: int | None,
        tokens: int | None,
    ):
        self._network, self._average, self._plan, self._languages = network, average, plan, languages
        self.layouts, self.stream, self._bounds = layouts, stream, (documents, tokens)
        self._processes = processes
        self._length = plan.train.sequence_lengths[0]
        self.micro_batch_tokens = micro_batch_tokens  # most tokens per pass

    def _rows(self, kind: int) -> Rows:
        return every_row(self.layouts, self._length, self._plan.objective, kind, *self._bounds)

    def cost(self) -> float:
        """Return how long a validation takes, in tokens of training that take as long."""
        kinds = self._plan.objective.validated
        measured = len(kinds) * (1 + (self._average.tensors is not None))
        return len(self._rows(kinds[0])) * self._length * measured * FORWARD

    @torch.no_grad()
    def measure(
        self, leave: Callable[[], bool] = lambda: False, show: Callable[[float], None] = lambda share: None
    ) -> dict[str, Any] | None:
        """Return the fields of a validation line of the record (see `run_folder.py`); None if a process had to `leave`.

        `show` is called with the share that is done.
        """
        if not self._average.differs:
            found = average = self._measure_weights(leave, show)
        else:
            found = self._measure_weights(leave, lambda share: show(share / 2))
            if found is None:
                return None
            with self._average.in_place():
                average = self._measure_weights(leave, lambda share: show((1 + share) / 2))
        if found is None or average is None:
            return None
        return found | {f"ema_{key}": value for key, value in average.items() if key != MEASURED}

    def _measure_weights(self, leave: Callable[[], bool], show: Callable[[float], None]) -> dict[str, Any] | None:
        """Return the fields of a validation line for the weights as they are; None if a process has to leave."""
        plan, processes = self._plan, self._processes
        self._network.model.eval()
        sums, counts = no_sums(plan.groups, processes.device), np.zeros(plan.groups, dtype=np.int64)
        kinds = plan.objective.validated
        for i, kind in enumerate(kinds):
            rows = self._rows(kind)
            together = processes.size if self._network.sharded else 1
            most = max(1, self.micro_batch_tokens // self._length)
            micro_batches = whole_rounds(split(rows, most), together)
            for first in range(0, len(micro_batches), processes.size):
                asked = first % (LEAVE_EVERY * processes.size) == 0
                if asked and processes.any(leave()):
                    return None
                if first + processes.rank < len(micro_batches):
                    sums += self._statistics(micro_batches[first + processes.rank])
                show((i + min(1.0, (first + processes.size) / len(micro_batches))) / len(kinds))
            counts += plan.group_counts(rows)
        processes.sum_(sums)
        summary = summarize(sums.cpu().numpy(), counts, self._languages, plan.objective)
        del summary["z_loss"]
        return summary | {MEASURED: int(counts.sum())}

    def _statistics(self, rows: Rows) -> torch.Tensor:
        """Return the sums of rows."""
        network, weights = self._network, self._plan.objective.no_weights

        def compute() -> torch.Tensor:
            batch = network.micro_batch(self.stream, rows, self._length, weights, VALIDATION)
            return network.forward(batch, self._plan.groups)[1]

        return network.attempt(compute)
