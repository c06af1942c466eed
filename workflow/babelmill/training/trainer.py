"""Do one step of the plan (`plan.py`): deal its rows, add up their gradients, and update the weights.

The rows of a step are dealt to all processes, and each process cuts its share into forward passes. Dropout is keyed by
row, so the number of processes and the size of the passes change only the order in which floating-point numbers are
added. On CUDA a step never waits for the device, unless a pass is recorded (`cuda_graphs.py`): its numbers are read
while the next step is running. It does not wait for the disk either: a thread plans the next step and reads its tokens
meanwhile.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from babelmill.core.words import first_line
from babelmill.runtime.processes import Processes, may_lose_process
from babelmill.stages import TrainStage
from babelmill.training.batches.token_batches import Stream, Weights
from babelmill.training.cuda_graphs import Recorder
from babelmill.training.kernels.compilation import LEAST_ROWS
from babelmill.training.networks.loss import no_sums
from babelmill.training.networks.network import Network
from babelmill.training.optimization.optim import MovingAverage, make_optimizer
from babelmill.training.pass_size import FIRST_TOKENS, PassSize
from babelmill.training.pending import Pending, Stopwatch, Votes, to_host
from babelmill.training.plan import randomness
from babelmill.training.plan.layouts import Layout
from babelmill.training.plan.plan import Plan, Step, every_row
from babelmill.training.plan.randomness import DROPOUT
from babelmill.training.plan.rows import Rows, deal, passes, split, whole_rounds
from babelmill.training.plan.schedule import mean_from
from babelmill.training.state import TrainingState
from babelmill.training.validation import Validation

log = logging.getLogger(__name__)

DOCUMENTS_TO_FIT = 4096  # documents per language whose rows are searched for the largest ones, which must fit


class Trainer:
    """Holds a run in progress on one process, and does its steps.

    A pass has at most `micro_batch_tokens` (None: as many as fit, see `PassSize`). A validation measures at most
    `validation_documents` documents of each language, and at most `validation_tokens` tokens (None: all).
    """

    def __init__(
        self,
        settings: TrainStage,
        network: Network,
        plan: Plan,
        stream: Stream,
        validation: tuple[Sequence[Layout], Stream],
        processes: Processes,
        micro_batch_tokens: int | None = None,
        validation_documents: int | None = None,
        validation_tokens: int | None = None,
    ):
        train = settings.train
        self.settings, self.train, self.network, self.plan = settings, train, network, plan
        self.processes, self.device = processes, processes.device
        self.model, self._gradients = network.model, network.gradients
        self._stream = stream
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._coming: dict[int, Future[Step]] = {}  # the step that the thread prepares, by number
        trained = network.trained()
        matrices = network.matrices() if train.optimizer == "muon" else ()
        self._optimizer = make_optimizer(trained, train, network.decays, network.sharding, matrices)
        # the moving average of the weights
        self.average = MovingAverage(trained, train.ema_decay, mean_from(train, plan.steps))
        self._recorder = Recorder(network, stream, plan.groups, self.device)
        self.size = PassSize(micro_batch_tokens, network, train, processes)  # the size of forward passes
        # what a checkpoint holds
        self.state = TrainingState(network, self.average, self._optimizer, self.size, processes)
        layouts, validation_stream = validation
        # measures the validation split
        self.validation = Validation(
            network=network,
            average=self.average,
            plan=plan,
            languages=settings.languages,
            layouts=layouts,
            stream=validation_stream,
            size=self.size,
            processes=processes,
            documents=validation_documents,
            tokens=validation_tokens,
        )

    def begin_alike(self, leave: Callable[[], bool] = lambda: False) -> None:
        """Give all processes the main one's weights, moving average and optimizer state, and passes of the same size.

        If functions are compiled, all graphs that will be needed are made, too; see `Graphs.warm_up`.
        """
        self.state.copy_from_main()
        if self.network.compiled is not None:
            lengths = self.train.sequence_lengths
            shapes = [*((length, True) for length in sorted({*lengths})), (lengths[0], False)]
            self.network.compiled.warm_up(self._make_graph, shapes, self.processes, leave)
        if self.size.unknown and self.device.type == "cuda":
            self.find_size()
        self.size.agree()

    def find_size(self) -> None:
        """Find how large forward passes may be."""
        length = max(self.train.sequence_lengths)
        with_moments = sum(part.numel() for group in self._optimizer.param_groups for part in group["params"])
        self.size.find(lambda rows: self._try_pass(length, rows, training=True), with_moments)

    def _make_graph(self, length: int, training: bool) -> None:
        self._try_pass(length, max(LEAST_ROWS, min(self.size.tokens, FIRST_TOKENS) // length), training)

    def _try_pass(self, length: int, count: int, training: bool) -> None:
        """Make a forward pass of the `count` rows with the most targets; in training, also a backward pass."""
        objective, layouts = self.plan.objective, self.plan.layouts if training else self.validation.layouts
        rows = every_row(layouts, length, objective, objective.occurring[-1], DOCUMENTS_TO_FIT)
        rows = rows[np.argsort(-rows.targets, kind="stable")[np.arange(count) % len(rows)]]
        self.model.train(training)
        if training:
            self._learn(rows, length, objective.no_weights)
            self._gradients.abandon()
            return
        with torch.no_grad(), may_lose_process():
            batch = self.network.micro_batch(self.validation.stream, rows, length, objective.no_weights)
            self.network.forward(batch, self.plan.groups)

    def run_step(self, number: int, votes: Callable[[], Votes] = Votes) -> Pending:
        """Do step `number`, counted from 0. `votes` is called at its end and returns what this process wants."""
        whole, planning = Stopwatch(self.device), Stopwatch(self.device)
        step = self._take(number)
        data = [planning.end()]
        if not self.model.training:  # after a validation
            self.model.train()
        self.network.begin_step(number)
        sums = self._learn_share(step, data)
        self._gradients.reduce()
        self.processes.sum_(sums)
        decided = votes().of_all(self.processes)
        norm, finite = self._gradients.clip(self.train.clip_norm)
        self._optimizer.update(step.learning_rate, finite)
        self.average.update(number)
        sums, decided, norm = to_host(sums), to_host(decided), to_host(norm)
        return Pending(step, sums, decided, norm, whole.end(), data)

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
        rank, size, most = self.processes.rank, self.processes.size, self.size.rows(step.length)
        if self.network.sharded:
            parts = list(enumerate(whole_rounds(split(step.rows, most), size)))[rank::size]
        else:
            costs = self.network.flops(step.length, step.length, step.rows.targets)
            mine = np.flatnonzero(deal(costs, size) == rank)
            parts = enumerate(passes(step.rows[mine], most))
        return [(randomness.key(self.train.seed, DROPOUT, step.step, i), rows) for i, rows in parts]

    def _learn_share(self, step: Step, data: list[Stopwatch]) -> torch.Tensor:
        """Compute the gradients of this process's rows, in smaller passes if memory runs out; return the rows' sums."""
        while True:
            sums, mine = no_sums(self.plan.groups, self.device), self._share(step)
            parts = [rows for _, rows in mine]
            self._gradients.zero()
            try:
                for i, (seed, rows) in enumerate(mine):
                    if self.network.sharded:  # dropout is PyTorch's
                        torch.manual_seed(seed)
                    # Send gradients early only if passes of this size fitted before: a step that fails must send none.
                    last = i == len(mine) - 1 and self.size.fitted.has(step.length, parts)
                    recorded = self._recorder.takes(rows, step.length)
                    learn = self._recorder.learn if recorded else functools.partial(self._learn, last=last)
                    part, building = learn(rows, step.length, step.weights)
                    sums += part
                    data.append(building)
                self.size.fitted.add(step.length, parts)
                return sums
            except torch.OutOfMemoryError as error:
                refused = first_line(error)
            # This is outside of the handler, so that the step's tensors are free again.
            if not self._gradients.sending and self._recorder.stop():
                log.warning("passes are not recorded any more, since memory ran out: %s", refused)
                continue
            self.size.halve(step.length, max(map(len, parts)), refused)

    def _learn(self, rows: Rows, length: int, weights: Weights, last: bool = False) -> tuple[torch.Tensor, Stopwatch]:
        """Add a micro-batch's gradient; return its sums by group of targets, and the time of building it."""
        building = Stopwatch(self.device)
        batch = self.network.micro_batch(self._stream, rows, length, weights)
        building.end()
        with may_lose_process():
            loss, sums = self.network.forward(batch, self.plan.groups)
            self._gradients.backward(loss, last)
        return sums, building
