"""Hold a run in progress (model, moving average, optimizer), and do one step of the plan (`plan.py`).

The rows of a step are dealt to all processes, and each process cuts its share into forward passes. Dropout is keyed by
row, so the number of processes and the size of the passes change only the order in which floating-point numbers are
added. On CUDA a step never waits for the device, unless a pass is recorded (`recording.py`): its numbers are read while
the next step is running. It does not wait for the disk either: a thread plans the next step and reads its tokens
meanwhile.
"""

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from babelmill.config.stage_settings import TrainSettings
from babelmill.core.files import UserError
from babelmill.runtime.processes import Processes, may_lose_process
from babelmill.runtime.progress import device_name
from babelmill.training.batches.prefetch import Ahead
from babelmill.training.batches.token_batches import Stream, Weights
from babelmill.training.cuda_graphs import Recorder
from babelmill.training.kernels.compilation import LEAST_ROWS
from babelmill.training.metrics import summarize
from babelmill.training.networks.loss import STATISTICS
from babelmill.training.networks.network import Network
from babelmill.training.optimization.optim import MovingAverage, make_optimizer
from babelmill.training.optimization.replicas import refuse_others
from babelmill.training.optimization.sharding import Load, Sharding
from babelmill.training.pending import Pending, Span, to_host
from babelmill.training.plan import dealing, randomness
from babelmill.training.plan.amounts import CPU_TOKENS, whole_tokens
from babelmill.training.plan.layouts import Layout
from babelmill.training.plan.pass_size import MOMENT_BYTES, Fitted, rows_that_fit
from babelmill.training.plan.plan import Plan, Step, every_row, split
from babelmill.training.plan.randomness import DROPOUT, VALIDATION
from babelmill.training.plan.rows import Rows
from babelmill.training.votes import Votes

log = logging.getLogger(__name__)

Returned = TypeVar("Returned")

LEAVE_EVERY = 8  # validation micro-batches per process between two votes on leaving
FORWARD = 1 / 3  # the share of a forward pass in the time of a step: the backward pass takes twice as long
FIRST_TOKENS = 4096  # tokens of the first forward passes, which test what this machine can do
MEASURED = "targets"  # in a validation line: how many targets it measured, in which samples differ
DOCUMENTS_TO_FIT = 4096  # documents per language whose rows are searched for the largest ones, which must fit


class Trainer:
    """Holds a run in progress: network, moving average, optimizer and data of one process.

    Args:
        settings: the stage's settings.
        network: the model, and how it computes.
        plan: the plan of all steps.
        stream: the training tokens.
        validation: the rows of the validation shards, and their tokens.
        processes: this process among the others.
        micro_batch_tokens: largest number of tokens of a forward pass; None: as many as fit, see `find_size`.
        validation_documents: largest number of documents per language that a validation measures; None: all.
        validation_tokens: largest number of tokens that a validation measures; None: all.
    """

    def __init__(
        self,
        settings: TrainSettings,
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
        self._stream, self._ahead = stream, Ahead(self._prepare, plan.steps)
        self._validated = validation_documents, validation_tokens
        self._validation_layouts, self._validation_stream = validation
        self.groups = len(plan.objective.kinds) * len(settings.languages)
        self.model, self._gradients = network.model, network.gradients
        self._auto = self._finds_size = micro_batch_tokens is None
        self.micro_batch_tokens = micro_batch_tokens or CPU_TOKENS
        if network.whole_micro_batches:
            self._auto = self._finds_size = False
            self.micro_batch_tokens = whole_tokens(train)
        self.ran_out_of_memory = False  # whether this happened since the last vote
        self._fitted = Fitted()
        self._validated_at_once: int | None = None  # rows per pass; None: as many as in training
        trained = network.trained()
        self._optimizer = make_optimizer(trained, train, network.decays, network.sharding)
        self.average = MovingAverage(trained, train.ema_decay)
        self._recorder = Recorder(network, stream, self.groups, self.device)

    # One step.

    def run_step(self, number: int, votes: Callable[[], Votes] = Votes) -> Pending:
        """Do step `number`, counted from 0. `votes` is called at its end and returns what this process wants."""
        whole, planning = Span(self.device), Span(self.device)
        step = self._ahead.take(number)
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

    def _prepare(self, number: int) -> Step:
        """Plan a step, and read the tokens of this process's rows from the disk."""
        step = self.plan.step(number)
        for _, rows in self._share(step):
            self._stream.read_ahead(rows)
        return step

    def _learn_share(self, step: Step, data: list[Span]) -> torch.Tensor:
        """Compute the gradients of this process's rows, in smaller passes if memory runs out; return the rows' sums."""
        while True:
            sums, mine = self._no_sums(), self._share(step)
            passes = [rows for _, rows in mine]
            self._gradients.zero()
            try:
                for i, (seed, rows) in enumerate(mine):
                    if self.network.whole_micro_batches:  # their dropout is PyTorch's
                        torch.manual_seed(seed)
                    # Send gradients early only if passes of this size fitted before: a step that fails must send none.
                    last = i == len(mine) - 1 and self._fitted.has(step.length, passes)
                    recorded = self._recorder.takes(rows, step.length)
                    learn = self._recorder.learn if recorded else functools.partial(self._learn, last=last)
                    part, building = learn(rows, step.length, step.weights)
                    sums += part
                    data.append(building)
                self._fitted.add(step.length, passes)
                return sums
            except torch.OutOfMemoryError as error:
                refused = str(error).splitlines()[0]
            # This is outside of the handler, so that the step's tensors are free again.
            if not self._gradients.sending and self._recorder.stop():
                log.warning("passes are not recorded any more, since memory ran out: %s", refused)
                continue
            self._halve(step.length, max(map(len, passes)), refused)

    def _halve(self, length: int, largest: int, refused: str) -> None:
        """Halve the size of forward passes after one did not fit into memory.

        Raises:
            UserError: their size is part of the result, a single row does not fit, or a part of the gradient has been
                sent to the other processes.
        """
        advice = "train.activation_checkpointing: true saves memory"
        if self.network.whole_micro_batches:
            size = self.micro_batch_tokens
            raise UserError(
                f"train.micro_batch_tokens = {size} does not fit into memory; lower it; {advice}: {refused}"
            )
        if largest < 2:
            raise UserError(
                f"a row of {length} tokens does not fit into memory; choose a smaller model; {advice}: {refused}"
            )
        self.micro_batch_tokens = largest // 2 * length
        self.ran_out_of_memory = True
        if self._gradients.sending:
            raise UserError(
                f"a forward pass did not fit into memory; set run.micro_batch_tokens: {self.micro_batch_tokens} and run"
                f" the workflow again, it goes on from the last checkpoint: {refused}"
            )
        self._gradients.abandon()
        log.warning("a forward pass did not fit into memory: passes of %d tokens from now on", self.micro_batch_tokens)

    def agree_on_size(self) -> None:
        """Set the size of forward passes to the smallest one of all processes."""
        size = torch.tensor([-self.micro_batch_tokens], device=self.device)
        self.micro_batch_tokens = -int(self.processes.max_(size))

    def _share(self, step: Step) -> list[tuple[int, Rows]]:
        """Return the forward passes of this process: for each, the seed of PyTorch's generator, and its rows.

        The generator is used if dropout is not keyed by row; then whole micro-batches are dealt.
        """
        rank, size, most = self.processes.rank, self.processes.size, max(1, self.micro_batch_tokens // step.length)
        if self.network.whole_micro_batches:
            parts = list(enumerate(self._dealt(split(step.rows, most))))[rank::size]
        else:
            costs = self.network.flops(step.length, step.length, step.rows.targets)
            mine = np.flatnonzero(dealing.deal(costs, size) == rank)
            parts = enumerate(dealing.passes(step.rows[mine], most))
        return [(randomness.key(self.train.seed, DROPOUT, step.step, i), rows) for i, rows in parts]

    def group_counts(self, rows: Rows) -> np.ndarray:
        """Return how many targets the targets of rows stand for, by group, [groups] int64."""
        counts = np.zeros((len(self.settings.languages), len(self.plan.objective.kinds)), dtype=np.int64)
        np.add.at(counts, rows.language, self.plan.objective.counts(rows.kind, rows.stands_for))
        return counts.reshape(-1)

    def _dealt(self, whole: list[Rows]) -> list[Rows]:
        """Return whole micro-batches in the order of dealing; empty ones are added if all must make as many passes."""
        missing = -len(whole) % self.processes.size if self.network.sharded else 0
        return whole + [dealing.without_targets(whole[0][:1])] * missing

    def _no_sums(self) -> torch.Tensor:
        return torch.zeros(self.groups, len(STATISTICS), dtype=torch.float64, device=self.device)

    def _learn(self, rows: Rows, length: int, weights: Weights, last: bool = False) -> tuple[torch.Tensor, Span]:
        """Add a micro-batch's gradient; return its sums by group of targets, and the time of building it."""
        building = Span(self.device)
        batch = self._build(self._stream, rows, length, weights)
        building.end()
        with may_lose_process():
            loss, sums = self.network.forward(batch, self.groups)
            self._gradients.backward(loss, last)
        return sums, building

    def _build(self, stream: Stream, rows: Rows, length: int, weights: Weights, use: int = 0) -> Any:
        alone = self.network.compiled is not None and len(rows) < LEAST_ROWS
        return stream.micro_batch(rows, length, weights, use, LEAST_ROWS if alone else 1)

    # Validation.

    @torch.no_grad()
    def validate(
        self, leave: Callable[[], bool] = lambda: False, show: Callable[[float], None] = lambda share: None
    ) -> dict[str, Any] | None:
        """Measure the validation split, or as much of it as the bounds allow, once for each kind of rows in training.

        Rows have the length of the first phase, so that numbers can be compared along the run. `show` is called with
        the share that is done.

        Returns:
            the fields of a validation line of the record (see `record.py`); None if a process had to `leave` meanwhile.
        """
        both = self.average.tensors is not None
        found = self._scores(leave, lambda share: show(share / (1 + both)))
        if found is None or not both:
            return found and found | _averaged(found)
        with self.average.in_place():
            average = self._scores(leave, lambda share: show((1 + share) / 2))
        return average and found | _averaged(average)

    def validation_cost(self) -> float:
        """Return how long a validation takes, in tokens of training that take as long."""
        length, objective = self.train.sequence_lengths[0], self.plan.objective
        rows = len(every_row(self._validation_layouts, length, objective, objective.validated[0], *self._validated))
        passes = len(objective.validated) * (1 + (self.average.tensors is not None))
        return rows * length * passes * FORWARD

    def _scores(self, leave: Callable[[], bool], show: Callable[[float], None]) -> dict[str, Any] | None:
        """Return the fields of a validation line for the weights as they are; see `validate`."""
        length, objective = self.train.sequence_lengths[0], self.plan.objective
        self.model.eval()
        sums, counts = self._no_sums(), np.zeros(self.groups, dtype=np.int64)
        kinds = objective.validated
        for i, kind in enumerate(kinds):
            rows = every_row(self._validation_layouts, length, objective, kind, *self._validated)
            if not self._measure(rows, length, sums, leave, lambda share, i=i: show((i + share) / len(kinds))):
                return None
            counts += self.group_counts(rows)
        self.processes.sum_(sums)
        summary = summarize(sums.cpu().numpy(), counts, self.settings.languages, objective)
        del summary["z_loss"]
        return summary | {MEASURED: int(counts.sum())}

    def _measure(
        self, rows: Rows, length: int, sums: torch.Tensor, leave: Callable[[], bool], show: Callable[[float], None]
    ) -> bool:
        """Add this process's share of the statistics of rows to `sums`; return False if a process has to leave."""
        size = self.processes.size
        micro_batches = self._dealt(split(rows, max(1, self.micro_batch_tokens // length)))
        for first in range(0, len(micro_batches), size):
            asked = first % (LEAVE_EVERY * size) == 0
            if asked and Votes.read(Votes(leave=leave()).of_all(self.processes)).leave:
                return False
            if first + self.processes.rank < len(micro_batches):
                sums += self._statistics(micro_batches[first + self.processes.rank], length)
            show(min(1.0, (first + size) / len(micro_batches)))
        return True

    def _statistics(self, rows: Rows, length: int) -> torch.Tensor:
        """Return the sums of validation rows, computed in smaller passes if memory runs out."""
        while True:
            sums, parts = self._no_sums(), dealing.passes(rows, self._validated_at_once or len(rows))
            try:
                for part in parts:
                    batch = self._build(
                        self._validation_stream, part, length, self.plan.objective.no_weights, VALIDATION
                    )
                    with may_lose_process():
                        sums += self.network.forward(batch, self.groups)[1]
                return sums
            except torch.OutOfMemoryError as error:
                refused, largest = str(error).splitlines()[0], max(map(len, parts))
                if self.network.sharded or largest < 2:  # the others would wait for this process's passes
                    raise
            self._validated_at_once = largest // 2
            log.warning("%d rows are validated at once from now on, more do not fit: %s", largest // 2, refused)

    # State.

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return weights, moving average and optimizer state, by name; of sharded tensors, this process's rows."""
        weights, average = self.network.weights(), self.average.tensors
        named = {f"model.{name}": value for name, value in weights.items()}
        if average is not None:
            named |= {f"average.{name}": average.get(name, value) for name, value in weights.items()}
        return named | self._optimizer.tensors()

    def whole_shape(self, name: str) -> torch.Size | None:
        """Return the whole shape of a tensor of which each process holds some rows; None for other tensors."""
        sharding, (kind, _, rest) = self.network.sharding, name.partition(".")
        if sharding is None:
            return None
        parameter = self._optimizer.parameter(name) if kind == "optimizer" else rest
        return None if parameter is None else sharding.shapes.get(parameter)

    def with_whole(
        self, names: Iterable[str], function: Callable[[dict[str, torch.Tensor], Load], Returned]
    ) -> Returned:
        """Run `function` on the main process with the whole tensors of these names; see `Sharding.on_main`."""
        tensors = self.tensors()
        sharding = self.network.sharding or Sharding({}, self.processes)
        return sharding.on_main({name: (tensors[name], self.whole_shape(name)) for name in names}, function)

    def rows(self, name: str, shape: Sequence[int]) -> slice:
        """Return which rows of a checkpoint's tensor this process reads. `shape` is the tensor's whole shape."""
        sharding = self.network.sharding
        return slice(None) if sharding is None or self.whole_shape(name) is None else sharding.mine(shape[0])

    def state(self) -> dict[str, Any]:
        """Return the state besides tensors: the optimizer's groups, and the size of forward passes on this device."""
        size = {"device": device_name(self.device), "tokens": self.micro_batch_tokens} if self._auto else None
        return {"optimizers": [self._optimizer.state_dict()["param_groups"]], "micro_batch": size}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Continue from what `tensors` and `state` returned; tensors with other names are ignored."""
        for name, value in self.tensors().items():
            if not name.startswith("optimizer."):
                value.copy_(tensors[name])
        self._optimizer.restore(tensors, state["optimizers"][0])
        size = state["micro_batch"]
        if self._finds_size and size and size["device"] == device_name(self.device):
            self.micro_batch_tokens, self._finds_size = size["tokens"], False

    def begin_alike(self, leave: Callable[[], bool] = lambda: False) -> None:
        """Give all processes the main one's weights, moving average and optimizer state, and passes of the same size.

        If functions are compiled, all graphs that will be needed are made, too; see `Graphs.warm_up`.
        """
        if not self.network.sharded:
            for tensor in self.tensors().values():
                self.processes.from_main_(tensor)
        if self.network.compiled is not None:
            lengths = self.train.sequence_lengths
            shapes = [*((length, True) for length in sorted({*lengths})), (lengths[0], False)]
            self.network.compiled.warm_up(self._make_graph, shapes, self.processes, leave)
        if self._finds_size and self.device.type == "cuda":
            self.find_size()
        self.agree_on_size()

    def _make_graph(self, length: int, training: bool) -> None:
        self._try_pass(length, max(LEAST_ROWS, min(self.micro_batch_tokens, FIRST_TOKENS) // length), training)

    def _try_pass(self, length: int, count: int, training: bool) -> None:
        """Make a forward pass of the `count` rows with the most targets; in training, also a backward pass."""
        objective, layouts = self.plan.objective, self.plan.layouts if training else self._validation_layouts
        rows = every_row(layouts, length, objective, objective.occurring[-1], DOCUMENTS_TO_FIT)
        rows = rows[np.argsort(-rows.targets, kind="stable")[np.arange(count) % len(rows)]]
        self.model.train(training)
        if training:
            self._learn(rows, length, objective.no_weights)
            self._gradients.abandon()
            return
        with torch.no_grad(), may_lose_process():
            batch = self._build(self._validation_stream, rows, length, objective.no_weights)
            self.network.forward(batch, self.groups)

    def find_size(self) -> None:
        """Find how large forward passes may be, by trying the longest rows with the most targets."""
        length = max(self.train.sequence_lengths)
        later = MOMENT_BYTES * sum(part.numel() for part in self.network.trained().values())
        first = max(1, FIRST_TOKENS // length)
        fitting = rows_that_fit(lambda size: self._try_pass(length, size, training=True), first, later, self.device)
        self.micro_batch_tokens = min(fitting * length, self.train.global_batch_tokens)
        log.info("forward passes of %d tokens fit into memory", self.micro_batch_tokens)

    def compare_replicas(self) -> None:
        """Compare the state of all processes: if each has all weights, it should be the same to the last bit.

        Raises:
            UserError: the processes do not all have the same state.
        """
        if self.network.sharded:
            return
        checksums = torch.zeros(self.processes.size, dtype=torch.int64, device=self.device)
        for tensor in self.tensors().values():
            checksums[self.processes.rank] += tensor.detach().contiguous().view(torch.int32).sum()
        found = self.processes.sum_(checksums).tolist()
        self.processes.on_main(lambda: refuse_others(self.processes, found))


def _averaged(scores: dict[str, Any]) -> dict[str, Any]:
    return {f"ema_{key}": value for key, value in scores.items() if key != MEASURED}
