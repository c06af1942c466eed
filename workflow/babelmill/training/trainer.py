"""Do one step of the plan (`plan.py`): deal its rows, add up their gradients, and update the weights.

The rows of a step are dealt to all processes, and each process cuts its share into forward passes. Dropout is keyed by
row, so the number of processes and the size of the passes change only the order in which floating-point numbers are
added. On CUDA a step never waits for the device, unless a pass is recorded (`cuda_graphs.py`): whoever needs its
numbers reads them later. It does not wait for the disk either: a thread plans the next step and reads its tokens
meanwhile.
"
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from babelmill.training.networks.loss import no_sums
from babelmill.training.networks.network import Network
from babelmill.training.optimization.gradients import Load
from babelmill.training.optimization.optim import FusedAdamW, MovingAverage, make_optimizer
from babelmill.training.plan import randomness
from babelmill.training.plan.plan import Plan, Step
from babelmill.training.plan.randomness import DROPOUT
from babelmill.training.plan.rows import Layout, Rows, deal, passes, split, whole_rounds
from babelmill.training.plan.schedule import WHOLE_TOKENS, mean_from, whole_tokens
from babelmill.training.validation import Validation


class TrainingState:
    """Holds weights, moving average and optimizer state."""

    def __init__(
        self,
        network: Network,
        average: MovingAverage,
        optimizer: FusedAdamW,
        processes: Processes,
    ):
        self._network, self._average, self._optimizer, self._processes = network, average, optimizer, processes

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return weights, moving average and optimizer state, by name; of sharded tensors, this process's rows."""
        weights, average = self._network.weights(), self._average.tensors
        named = {f"model.{name}": value for name, value in weights.items()}
        if average is not None:
            named |= {f"average.{name}": average.get(name, value) for name, value in weights.items()}
        return named | self._optimizer.tensors()

    def numbers(self) -> dict[str, Any]:
        """Return the state besides tensors: the optimizer's groups."""
        return {"optimizers": [self._optimizer.state_dict()["param_groups"]]}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, torch.Tensor], numbers: dict[str, Any]) -> None:
        """Continue from what `tensors` and `numbers` returned; tensors with other names are ignored."""
        for name, value in self.tensors().items():
            if not name.startswith("optimizer."):
                value.copy_(tensors[name])
        self._optimizer.restore(tensors, numbers["optimizers"][0])

    # Processes that each hold some rows of each tensor.

    def whole_shape(self, name: str) -> torch.Size | None:
        """Return the whole shape of a tensor of which each process holds some rows; None for other tensors."""
        kind, _, rest = name.partition(".")
        parameter = self._optimizer.parameter(name) if kind == "optimizer" else rest
        return None if parameter is None else self._network.sharding.shapes.get(parameter)

    def with_whole(self, names: Iterable[str], function: Callable[[dict[str, torch.Tensor], Load], None]) -> None:
        """Run `function` on the main process with the whole tensors of these names; see `Sharding.on_main`."""
        tensors = self.tensors()
        parts = {name: (tensors[name], self.whole_shape(name)) for name in names}
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
            odd = [rank for rank, checksum in enumerate(checksums) if checksum != usual or 2 * times <= len(checksums)]
            if len(set(checksums)) > 1:
                raise UserError(
                    f"the weights of {' or '.join(map(processes.describe, odd))} differ from those of the others: its"
                    " GPU or its memory may be faulty, or its machine may be of another kind; run the workflow again"
                    " without this machine, and it continues from the last checkpoint"
                )

        processes.on_main(refuse_others)


log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """Holds the numbers of a step, over all processes, on the device."""

    step: Step
    sums: torch.Tensor  # [groups, 3] float64, see `loss.STATISTICS`
    norm: torch.Tensor  # of the gradient before clipping, a scalar


class Trainer:
    """Holds a run in progress on one process, and does its steps.

    A forward pass has at most `micro_batch_tokens`. A validation measures at most `validation_documents` documents of
    each language, and at most `validation_tokens` tokens (None: all).
    """

    def __init__(
        self,
        settings: TrainStage,
        network: Network,
        plan: Plan,
        stream: Stream,
        validation: tuple[Sequence[Layout], Stream],
        processes: Processes,
        micro_batch_tokens: int = WHOLE_TOKENS,
        validation_documents: int | None = None,
        validation_tokens: int | None = None,
    ):
        train = settings.train
        self.settings, self.train, self.network, self.plan = settings, train, network, plan
        self.processes, self.device = processes, processes.device
        self.model, self._gradients = network.model, network.gradients
        self.micro_batch_tokens = whole_tokens(train) if network.sharded else micro_batch_tokens
        self._stream = stream
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._coming: dict[int, Future[Step]] = {}  # the step that the thread prepares, by number
        trained = network.trained()
        matrices = network.matrices() if train.optimizer == "muon" else ()
        self._optimizer = make_optimizer(trained, train, network.decays, network.sharding, matrices)
        # the moving average of the weights
        self.average = MovingAverage(trained, train.ema_decay, mean_from(train, plan.steps))
        self._recorder = Recorder(network, stream, plan.groups, self.device)
        self.state = TrainingState(network, self.average, self._optimizer, processes)  # what a checkpoint holds
        layouts, validation_stream = validation
        # measures the validation split
        self.validation = Validation(
            network=network,
            average=self.average,
            plan=plan,
            languages=settings.languages,
            layouts=layouts,
            stream=validation_stream,
            micro_batch_tokens=self.micro_batch_tokens,
            processes=processes,
            documents=validation_documents,
            tokens=validation_tokens,
        )

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
        step = (self._coming.pop(number, None) or self._thread.submit(self._prepare, number)).result()
        self._coming = {}
        if number + 1 < self.plan.steps:
            self._coming[number + 1] = self._thread.submit(self._prepare, number + 1)
        return step

    def _prepare(self, number: int) -> Step:
        """Plan a step."""
        return self.plan.step(number)

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
        """Compute the gradients of this process's rows, in smaller passes if memory runs out; return the rows' sums."""
        while True:
            sums, mine = no_sums(self.plan.groups, self.device), self._share(step)
            self._gradients.zero()
            try:
                for seed, rows in mine:
                    if self.network.sharded:  # dropout is PyTorch's
                        torch.manual_seed(seed)
                    learn = self._recorder.learn if self._recorder.takes(rows, step.length) else self._learn
                    sums += learn(rows, step.length, step.weights)
                return sums
            except torch.OutOfMemoryError as error:
                refused = first_line(error)
            # This is outside of the handler, so that the step's tensors are free again.
            self._recorder.forget()
            self._halve(step.length, max(len(rows) for _, rows in mine), refused)

    def _halve(self, length: int, largest: int, refused: str) -> None:
        """Make smaller passes after one of up to `largest` rows did not fit into memory; `refused`: PyTorch's words.

        Other processes need not do the same. A UserError says that the size of passes is part of the result, or that a
        single row does not fit.
        """
        advice = "train.activation_checkpointing: true saves memory"
        if self.network.sharded:
            raise UserError(
                f"train.micro_batch_tokens = {self.micro_batch_tokens} does not fit into memory; lower it; {advice}:"
                f" {refused}"
            )
        if largest < 2:
            raise UserError(
                f"a row of {length} tokens does not fit into memory; choose a smaller model; {advice}: {refused}"
            )
        self.micro_batch_tokens = self.validation.micro_batch_tokens = largest // 2 * length
        log.warning("memory ran out: forward passes of %d tokens from now on: %s", self.micro_batch_tokens, refused)

    def _learn(self, rows: Rows, length: int, weights: Weights) -> torch.Tensor:
        """Add a micro-batch's gradient; return its sums by group of targets."""

        def compute() -> torch.Tensor:
            batch = self.network.micro_batch(self._stream, rows, length, weights)
            loss, sums = self.network.forward(batch, self.plan.groups)
            self._gradients.backward(loss)
            return sums

        return self.network.attempt(compute)
