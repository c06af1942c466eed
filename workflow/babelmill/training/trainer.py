"""Do one step of the plan (`plan.py`): deal its rows, add up their gradients, update the weights; and validate.

The rows of a step are dealt to all processes, and each process cuts its share into forward passes. Dropout is keyed by
row, so the number of processes and the size of the passes change only the order in which floating-point numbers are
added. On CUDA a step never waits for the device, unless a pass is recorded (`cuda_graphs.py`): whoever needs its
numbers reads them later. It does not wait for the disk either: a thread plans the next step and reads its tokens
meanwhile.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch

from babelmill.core.files import UserError
from babelmill.core.words import first_line
from babelmill.runtime.processes import Processes
from babelmill.stages import TrainStage
from babelmill.training.batches import Stream, Weights
from babelmill.training.cuda_graphs import Recorder
from babelmill.training.networks.loss import no_sums, summarize
from babelmill.training.networks.network import Network
from babelmill.training.optimization.gradients import Load
from babelmill.training.optimization.optim import FusedAdamW, MovingAverage, make_optimizer
from babelmill.training.plan import randomness
from babelmill.training.plan.plan import Plan, Step, every_row
from babelmill.training.plan.randomness import DROPOUT, VALIDATION
from babelmill.training.plan.rows import Packed, Rows, deal, passes, split, whole_rounds
from babelmill.training.plan.schedule import WHOLE_TOKENS, mean_from, whole_tokens

log = logging.getLogger(__name__)

LEAVE_EVERY = 8  # micro-batches of a validation per process between two questions whether to leave
MEASURED = "targets"  # in a validation line: how many targets it measured, in which samples differ


class TrainingState:
    """Holds weights, moving average and optimizer state."""

    def __init__(self, network: Network, average: MovingAverage, optimizer: FusedAdamW, processes: Processes):
        self._network, self._average, self._optimizer, self._processes = network, average, optimizer, processes

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return weights, moving average and optimizer state, by name; of sharded tensors, this process's rows."""
        weights, average = self._network.weights(), self._average.tensors
        named = {f"model.{name}": value for name, value in weights.items()}
        if average is not None:
            named |= {f"average.{name}": average.get(name, value) for name, value in weights.items()}
        return named | self._optimizer.tensors()

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue from what `tensors` returned; tensors with other names are ignored."""
        for name, value in self.tensors().items():
            if not name.startswith("optimizer."):
                value.copy_(tensors[name])
        self._optimizer.restore(tensors)

    # Processes that each hold some rows of each tensor.

    def whole_shape(self, name: str) -> torch.Size | None:
        """Return the whole shape of a tensor of which each process holds some rows; None for other tensors."""
        *before, parameter = name.split(".", 2 if name.startswith("optimizer.") else 1)
        return None if before[-1] == "step" else self._network.sharding.shapes.get(parameter)

    def with_whole(self, function: Callable[[dict[str, torch.Tensor], Load], object], prefix: str = "") -> None:
        """Run `function` on the main process with the whole tensors whose names begin so; see `Sharding.on_main`.

        It gets their names without the prefix.
        """
        named = {name: tensor for name, tensor in self.tensors().items() if name.startswith(prefix)}
        parts = {name.removeprefix(prefix): (each, self.whole_shape(name)) for name, each in named.items()}
        self._network.sharding.on_main(parts, function)

    def rows(self, name: str, shape: Sequence[int]) -> slice:
        """Return which rows of a checkpoint's tensor this process reads. `shape` is the tensor's whole shape."""
        return slice(None) if self.whole_shape(name) is None else self._network.sharding.mine(shape[0])

    # Processes that each hold all: replicas.

    def copy_from_main(self) -> None:
        """Give all replicas the main process's tensors."""
        if not self._network.sharded:
            for tensor in self.tensors().values():
                self._processes.from_main_(tensor)

    def compare_replicas(self) -> None:
        """Compare the tensors of all replicas bit by bit; raise a UserError that names the processes that differ."""
        if self._network.sharded:
            return
        processes = self._processes
        sums = torch.zeros(processes.size, dtype=torch.int64, device=processes.device)
        for tensor in self.tensors().values():
            sums[processes.rank] += tensor.detach().contiguous().view(torch.int32).sum()
        checksums = processes.sum_(sums).tolist()

        def refuse_others() -> None:
            usual, times = Counter(checksums).most_common(1)[0]
            if times < len(checksums):
                odd = [rank for rank, sum_ in enumerate(checksums) if sum_ != usual or 2 * times <= len(checksums)]
                raise UserError(
                    f"the weights of {' or '.join(map(processes.describe, odd))} differ from those of the others: its"
                    " GPU or its memory may be faulty, or its machine may be of another kind; run the workflow again"
                    " without this machine, and it continues from the last checkpoint"
                )

        processes.on_main(refuse_others)


class Outcome(NamedTuple):
    """Holds the numbers of a step, over all processes, on the device."""

    step: Step
    sums: torch.Tensor  # [groups, 3] float64, see `loss.STATISTICS`
    norm: torch.Tensor  # of the gradient before clipping, a scalar


class Trainer:
    """Holds a run in progress on one process, and does its steps.

    A forward pass has at most `micro_batch_tokens`, and a validation measures at most `validation_tokens` (None: all).
    """

    def __init__(
        self,
        settings: TrainStage,
        network: Network,
        plan: Plan,
        stream: Stream,
        validation: tuple[Sequence[Packed], Stream],
        processes: Processes,
        micro_batch_tokens: int = WHOLE_TOKENS,
        validation_tokens: int | None = None,
    ):
        train = settings.train
        self.settings, self.train, self.network, self.plan = settings, train, network, plan
        self.processes, self.device = processes, processes.device
        self.model, self._gradients = network.model, network.gradients
        self.micro_batch_tokens = whole_tokens(train) if network.sharded else micro_batch_tokens
        self.stream = stream
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._coming: dict[int, Future[Step]] = {}  # the step that the thread prepares, by number
        trained = network.trained()
        matrices = network.matrices() if train.optimizer == "muon" else ()
        self._optimizer = make_optimizer(trained, train, network.decays, network.sharding, matrices)
        # the moving average of the weights
        self.average = MovingAverage(trained, train.ema_decay, mean_from(train, plan.steps))
        self._recorder = Recorder(network, stream, self._learn, self.device)
        self.state = TrainingState(network, self.average, self._optimizer, processes)  # what a checkpoint holds
        self.validation = Validation(self, *validation, validation_tokens)

    def run_step(self, number: int) -> Outcome:
        """Do step `number`, counted from 0."""
        step = self._take(number)
        if not self.model.training:  # after a validation
            self.model.train()
        self.network.begin_step(number)
        sums = self._learn_share(step)
        self._gradients.reduce()
        self.processes.sum_(sums)
        norm, finite = self._gradients.clip(self.train.clip_norm)
        self._optimizer.update(step.learning_rate, finite)
        self.average.update(number)
        return Outcome(step, sums, norm)

    def _take(self, number: int) -> Step:
        """Return a step that the thread has prepared, and let it prepare the next one. Its errors appear here."""
        step = (self._coming.pop(number, None) or self._thread.submit(self.plan.step, number)).result()
        self._coming = {}
        if number + 1 < self.plan.steps:
            self._coming[number + 1] = self._thread.submit(self.plan.step, number + 1)
        return step

    def _share(self, step: Step) -> list[tuple[int, Rows]]:
        """Return the forward passes of this process: for each, the seed of PyTorch's generator, and its rows.

        The generator is used if dropout is not keyed by row; then whole micro-batches are dealt.
        """
        rank, size = self.processes.rank, self.processes.size
        most = max(1, self.micro_batch_tokens // step.length)
        if self.network.sharded:
            parts = list(enumerate(whole_rounds(split(step.rows, most), size)))[rank::size]
        else:
            costs = self.network.flops(step.length, step.length, step.rows.targets)
            mine = np.flatnonzero(deal(costs, size) == rank)
            parts = enumerate(passes(step.rows[mine], most))
        return [(randomness.key(self.train.seed, DROPOUT, step.step, i), rows) for i, rows in parts]

    def _learn_share(self, step: Step) -> torch.Tensor:
        """Compute the gradients of this process's rows; return the rows' sums.

        If memory runs out, this process goes on with smaller passes; others need not do the same. The error remains
        where the size of passes is part of the result, or a single row does not fit.
        """
        sums, mine = no_sums(self.plan.groups, self.device), self._share(step)
        self._gradients.zero()
        try:
            for seed, rows in mine:
                if self.network.sharded:  # dropout is PyTorch's
                    torch.manual_seed(seed)
                if self._recorder.takes(rows, step.length):
                    sums += self._recorder.learn(rows, step.length, step.weights)
                else:
                    sums += self.run_pass(self.stream, rows, step.length, step.weights)
            return sums
        except torch.OutOfMemoryError as error:
            largest, refused = max(len(rows) for _, rows in mine), first_line(error)
            if self.network.sharded or largest < 2:
                raise
        # This is outside of the handler, so that the step's tensors are free again.
        self._recorder.forget()
        self.micro_batch_tokens = largest // 2 * step.length
        log.warning("memory ran out: forward passes of %d tokens from now on: %s", self.micro_batch_tokens, refused)
        return self._learn_share(step)

    def run_pass(self, stream: Stream, rows: Rows, length: int, weights: Weights, use: int = 0) -> torch.Tensor:
        """Do a pass with rows of a stream, and return what `_learn` does."""
        return self.network.attempt(lambda: self._learn(self.network.micro_batch(stream, rows, length, weights, use)))

    def _learn(self, batch: Any) -> torch.Tensor:
        """Return the sums of a micro-batch by group of targets; add its gradient unless gradients are off."""
        loss, sums = self.network.forward(batch, self.plan.groups)
        if torch.is_grad_enabled():
            self._gradients.backward(loss)
        return sums


class Validation:
    """Measures the validation split, or at most `tokens` of it, once for each kind of rows in training.

    Rows have the length of the first phase, so that numbers can be compared along the run.
    """

    def __init__(self, trainer: Trainer, layouts: Sequence[Packed], stream: Stream, tokens: int | None):
        self._trainer, self._length = trainer, trainer.train.sequence_lengths[0]
        self.layouts, self.stream, self._tokens = layouts, stream, tokens

    @torch.no_grad()
    def measure(self, leave: Callable[[], bool] = lambda: False) -> dict[str, Any] | None:
        """Return the fields of a validation line (see `run_folder.py`); None if a process had to `leave`."""
        average = self._trainer.average
        found = averaged = self._measure_weights(leave)
        if found is not None and average.differs:
            with average.in_place():
                averaged = self._measure_weights(leave)
        if found is None or averaged is None:
            return None
        return found | {f"ema_{key}": value for key, value in averaged.items() if key != MEASURED}

    def _measure_weights(self, leave: Callable[[], bool]) -> dict[str, Any] | None:
        """Return the fields of a validation line for the weights as they are; None if a process has to leave."""
        trainer, plan, processes = self._trainer, self._trainer.plan, self._trainer.processes
        trainer.model.eval()
        sums, counts = no_sums(plan.groups, processes.device), np.zeros(plan.groups, dtype=np.int64)
        size, weights = processes.size, plan.objective.weights([0] * len(plan.objective.kinds))  # nothing is learnt
        for kind in plan.objective.validated:
            rows = every_row(self.layouts, self._length, plan.objective, kind, self._tokens)
            most = max(1, trainer.micro_batch_tokens // self._length)
            micro_batches = whole_rounds(split(rows, most), size if trainer.network.sharded else 1)
            for first in range(0, len(micro_batches), size):
                if first % (LEAVE_EVERY * size) == 0 and processes.any(leave()):
                    return None
                if (mine := first + processes.rank) < len(micro_batches):
                    sums += trainer.run_pass(self.stream, micro_batches[mine], self._length, weights, VALIDATION)
            counts += plan.group_counts(rows)
        processes.sum_(sums)
        summary = summarize(sums.cpu().numpy(), counts, trainer.settings.languages, plan.objective)
        del summary["z_loss"]
        return summary | {MEASURED: int(counts.sum())}
