"""A run in progress: model, moving average, optimizer, and one step of what `plan.py` says.

The rows of a step are dealt to all processes; how many there are, and into which forward passes each cuts its share,
changes nothing but the order in which floating-point numbers are added, since dropout is keyed by row. On CUDA nothing
in a step waits for the device: the numbers of a step are read while the next one is running. Nor does it wait for the
disk: a thread plans the next step and reads its tokens meanwhile.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from babelmill.core.files import UserError
from babelmill.runtime.processes import Processes, may_lose_process
from babelmill.runtime.progress import device_name
from babelmill.stages import TrainSettings
from babelmill.training import randomness, work
from babelmill.training.ahead import Ahead
from babelmill.training.amounts import CPU_TOKENS, whole_tokens
from babelmill.training.batches import MicroBatch, Rows, TokenStream
from babelmill.training.fitting import Fitted, rows_that_fit
from babelmill.training.layouts import Layout
from babelmill.training.loss import STATISTICS
from babelmill.training.metrics import summarize
from babelmill.training.network import Network
from babelmill.training.optim import MovingAverage, Optimizers
from babelmill.training.pending import Pending, Span, to_host
from babelmill.training.plan import Plan, Step, every_row, split
from babelmill.training.randomness import DROPOUT, VALIDATION
from babelmill.training.sharding import Load, Sharding
from babelmill.training.votes import Votes

log = logging.getLogger(__name__)

Returned = TypeVar("Returned")

LEAVE_EVERY = 8  # validation micro-batches of each process
DOCUMENTS_TO_FIT = 4096  # of each language, among whose rows the largest are sought that a forward pass must hold
COMPILED_SHAPES = 4  # a short micro-batch is padded to a quarter of a full one, so that few shapes are compiled


class Trainer:
    """A run in progress: network, moving average, optimizer and data of one process.

    Args:
        settings: the stage's settings.
        network: the model, and how it computes.
        plan: of the training rows.
        stream: the training tokens.
        validation: the rows of the validation shards, and their tokens.
        processes: this process among the others.
        micro_batch_tokens: of one forward pass at most; None: what fits into the device, see `find_size`.
        validation_documents: of each language that a validation measures at most; None: all.
    """

    def __init__(
        self,
        settings: TrainSettings,
        network: Network,
        plan: Plan,
        stream: TokenStream,
        validation: tuple[Sequence[Layout], TokenStream],
        processes: Processes,
        micro_batch_tokens: int | None = None,
        validation_documents: int | None = None,
    ):
        train = settings.train
        self.settings, self.train, self.network, self.plan = settings, train, network, plan
        self.processes, self.device = processes, processes.device
        self._stream, self._ahead = stream, Ahead(self._prepare, plan.steps)
        self._validation_documents = validation_documents
        self._validation_layouts, self._validation_stream = validation
        self.groups = len(plan.objective.kinds) * len(settings.languages)
        self.model, self._gradients = network.model, network.gradients
        self._auto = self._finds_size = micro_batch_tokens is None
        self.micro_batch_tokens = micro_batch_tokens or CPU_TOKENS
        if network.whole_micro_batches:
            self._auto = self._finds_size = False
            self.micro_batch_tokens = whole_tokens(train)
        self.ran_out_of_memory = False  # since the last vote
        self._fitted = Fitted()
        trained = network.trained()
        self._optimizers = Optimizers(trained, train, network.decays, network.sharding)
        self.average = MovingAverage(trained, train.ema_decay)
        self._compiled = self.device.type == "cuda" and network.compiles
        if self._compiled:
            network.compile()

    # One step.

    def run_step(self, number: int, votes: Callable[[], Votes] = Votes) -> Pending:
        """Do step `number`, counted from 0. At its end, `votes` says what this process wants (by default nothing)."""
        planning = Span(self.device)
        step = self._ahead.take(number)
        data = [planning.end()]
        self.model.train()
        self.network.begin_step(number)
        sums = self._learn_share(step, data)
        self._gradients.reduce()
        self.processes.sum_(sums)
        decided = votes().of_all(self.processes)
        norm, finite = self._gradients.clip(self.train.clip_norm)
        self._optimizers.step(step.learning_rate, finite)
        self.average.update(number)
        sums, decided, norm = to_host(sums), to_host(decided), to_host(norm)
        ready = None
        if self.device.type == "cuda":
            ready = torch.cuda.Event()
            ready.record()
        return Pending(step, sums, decided, norm, ready, data)

    def _prepare(self, number: int) -> Step:
        """Plan a step, and read the tokens of this process's rows from the disk."""
        step = self.plan.step(number)
        for _, rows in self._share(step):
            self._stream.read_ahead(rows)
        return step

    def _learn_share(self, step: Step, data: list[Span]) -> torch.Tensor:
        """Make the gradients of this process's rows, in smaller passes where memory runs out; return their sums."""
        while True:
            sums, mine = self._no_sums(), self._share(step)
            passes = [rows for _, rows in mine]
            self._gradients.zero()
            try:
                for i, (seed, rows) in enumerate(mine):
                    torch.manual_seed(seed)
                    # Gradients leave early where such a pass has fitted before: a failing step must not have sent any.
                    if i == len(mine) - 1 and self._fitted.has(step.length, passes):
                        self._gradients.last_backward()
                    part, building = self._learn(rows, step.length, step.weights)
                    sums += part
                    data.append(building)
                self._fitted.add(step.length, passes)
                return sums
            except torch.OutOfMemoryError as error:
                refused = str(error).splitlines()[0]
            # Outside of the handler, where the step's tensors are free again.
            self._halve(step.length, max(map(len, passes)), refused)

    def _halve(self, length: int, largest: int, refused: str) -> None:
        """Halve the forward passes, after one that did not fit.

        Raises:
            UserError: their size is part of the result, one row is too much, or a part of the gradient has been sent
                to the other processes.
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
        """Take the smallest forward passes of all processes."""
        size = torch.tensor([-self.micro_batch_tokens], device=self.device)
        self.micro_batch_tokens = -int(self.processes.max_(size))

    def _share(self, step: Step) -> list[tuple[int, Rows]]:
        """Return the forward passes of this process: for each, what PyTorch's generator begins with, and its rows.

        The generator is used where dropout is not keyed by row; then whole micro-batches are dealt.
        """
        rank, size, most = self.processes.rank, self.processes.size, max(1, self.micro_batch_tokens // step.length)
        if self.network.whole_micro_batches:
            parts = list(enumerate(self._dealt(split(step.rows, most))))[rank::size]
        else:
            costs = self.network.flops(step.length, step.length, step.rows.targets)
            mine = np.flatnonzero(work.deal(costs, size) == rank)
            parts = enumerate(work.passes(step.rows[mine], most))
        return [(randomness.key(self.train.seed, DROPOUT, step.step, i), rows) for i, rows in parts]

    def group_counts(self, rows: Rows) -> np.ndarray:
        """Return the numbers of targets that rows stand for, by group, [groups] int64."""
        counts = np.zeros(self.groups, dtype=np.int64)
        np.add.at(counts, len(self.plan.objective.kinds) * rows.language + rows.kind, rows.stands_for)
        return counts

    def _dealt(self, whole: list[Rows]) -> list[Rows]:
        """Return whole micro-batches as they are dealt in turn: with empty ones where all must make as many passes."""
        missing = -len(whole) % self.processes.size if self.network.sharded else 0
        return whole + [work.without_targets(whole[0][:1])] * missing

    def _no_sums(self) -> torch.Tensor:
        return torch.zeros(self.groups, len(STATISTICS), dtype=torch.float64, device=self.device)

    def _learn(self, rows: Rows, length: int, weights: tuple[float, ...]) -> tuple[torch.Tensor, Span]:
        """Add a micro-batch's gradient; return its sums by group of targets, and the time that building it took."""
        building = Span(self.device)
        batch = self._build(self._stream, rows, length, weights)
        building.end()
        with may_lose_process():
            loss, sums = self.network.forward(batch, self.groups)
            loss.backward()
        return sums, building

    def _build(
        self, stream: TokenStream, rows: Rows, length: int, weights: tuple[float, ...], use: int = 0
    ) -> MicroBatch:
        return stream.micro_batch(rows, length, weights, use, self._padding(length) if self._compiled else 1)

    def _padding(self, length: int) -> int:
        """Return the number whose multiples rows are padded to: a quarter of the largest passes that occur."""
        largest = self.micro_batch_tokens
        if not self.network.whole_micro_batches:  # padding whole ones by the number of processes would change dropout
            largest = min(largest, self.train.global_batch_tokens // self.processes.size)
        return -(-max(1, largest // length) // COMPILED_SHAPES)

    # Validation.

    @torch.no_grad()
    def validate(self, leave: Callable[[], bool] = lambda: False) -> dict[str, Any] | None:
        """Measure the validation split (`validation_documents` of it), once in each kind of rows of the training.

        The length is that of the first phase, so that numbers compare along the run.

        Returns:
            the fields of a validation line of the record (see `record.py`); None if a process had to `leave` meanwhile.
        """
        found = self._scores(leave)
        if found is None or self.average.tensors is None:
            return found and found | _averaged(found)
        with self.average.in_place():
            average = self._scores(leave)
        return average and found | _averaged(average)

    def _scores(self, leave: Callable[[], bool]) -> dict[str, Any] | None:
        """Return the fields of a validation line for the weights as they are; see `validate`."""
        length, objective = self.train.sequence_lengths[0], self.plan.objective
        self.model.eval()
        sums, counts = self._no_sums(), np.zeros(self.groups, dtype=np.int64)
        for kind in objective.occurring:
            rows = every_row(self._validation_layouts, length, objective, kind, self._validation_documents)
            if not self._measure(rows, length, sums, leave):
                return None
            counts += self.group_counts(rows)
        self.processes.sum_(sums)
        summary = summarize(sums.cpu().numpy(), counts, self.settings.languages, objective)
        del summary["z_loss"]
        return summary

    def _measure(self, rows: Rows, length: int, sums: torch.Tensor, leave: Callable[[], bool]) -> bool:
        """Add this process's share of the statistics of validation rows to `sums`; False if a process has to leave."""
        size = self.processes.size
        micro_batches = self._dealt(split(rows, max(1, self.micro_batch_tokens // length)))
        weights = (0.0,) * len(self.plan.objective.kinds)
        for first in range(0, len(micro_batches), size):
            if first % (LEAVE_EVERY * size) == 0:
                votes = Votes(leave=leave()).of_all(self.processes)
                if Votes.read(votes).leave:
                    return False
            if first + self.processes.rank < len(micro_batches):
                mine = micro_batches[first + self.processes.rank]
                batch = self._build(self._validation_stream, mine, length, weights, VALIDATION)
                with may_lose_process():
                    sums += self.network.forward(batch, self.groups)[1]
        return True

    # State.

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return weights, moving average and optimizer state, by name; of what is sharded, this process's rows."""
        weights, average = self.network.weights(), self.average.tensors
        named = {f"model.{name}": value for name, value in weights.items()}
        if average is not None:
            named |= {f"average.{name}": average.get(name, value) for name, value in weights.items()}
        for i, state in enumerate(self._optimizers.state_dict()):
            for j, values in state["state"].items():
                named |= {f"optimizer.{i}.{j}.{name}": value for name, value in values.items()}
        return named

    def whole_shape(self, name: str) -> torch.Size | None:
        """Return the shape of the whole tensor, of a tensor of which each process holds some rows; None for others."""
        sharding, (kind, _, rest) = self.network.sharding, name.partition(".")
        if sharding is None:
            return None
        if kind != "optimizer":
            return sharding.shapes.get(rest)
        part, number, key = rest.split(".")
        return None if key == "step" else sharding.shapes[self._optimizers.name(int(part), int(number))]

    def with_whole(
        self, names: Iterable[str], function: Callable[[dict[str, torch.Tensor], Load], Returned]
    ) -> Returned:
        """Let the main process work with whole tensors of these names, one at a time; see `Sharding.on_main`."""
        tensors = self.tensors()
        sharding = self.network.sharding or Sharding({}, self.processes)
        return sharding.on_main({name: (tensors[name], self.whole_shape(name)) for name in names}, function)

    def rows(self, name: str, shape: Sequence[int]) -> slice:
        """Return which rows of a tensor of a checkpoint this process reads."""
        sharding = self.network.sharding
        return slice(None) if sharding is None or self.whole_shape(name) is None else sharding.mine(shape[0])

    def state(self) -> dict[str, Any]:
        """Return what is no tensor: the optimizers' groups, and the size of forward passes on this device."""
        size = {"device": device_name(self.device), "tokens": self.micro_batch_tokens} if self._auto else None
        return {"optimizers": [state["param_groups"] for state in self._optimizers.state_dict()], "micro_batch": size}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Go on from what `tensors` and `state` returned; what else is among the tensors does not count."""
        for name, value in self.tensors().items():
            if not name.startswith("optimizer."):
                value.copy_(tensors[name])
        states = [{"state": {}, "param_groups": groups} for groups in state["optimizers"]]
        for name in tensors:
            if name.startswith("optimizer."):
                _, i, j, key = name.split(".")
                states[int(i)]["state"].setdefault(int(j), {})[key] = tensors[name].clone()
        self._optimizers.load_state_dict(states)
        size = state["micro_batch"]
        if self._finds_size and size and size["device"] == device_name(self.device):
            self.micro_batch_tokens, self._finds_size = size["tokens"], False

    def begin_alike(self) -> None:
        """Give all processes the main one's weights, moving average and optimizer state, and passes of one size."""
        if not self.network.sharded:
            for tensor in self.tensors().values():
                self.processes.from_main_(tensor)
        if self._finds_size and self.device.type == "cuda":
            self.find_size()
        self.agree_on_size()

    def find_size(self) -> None:
        """Find the largest forward passes that fit, of the longest rows with the most targets."""
        length, objective = max(self.train.sequence_lengths), self.plan.objective
        rows = every_row(self.plan.layouts, length, objective, objective.occurring[-1], DOCUMENTS_TO_FIT)
        rows = rows[np.argsort(-rows.targets, kind="stable")]
        trained = sum(parameter.numel() for parameter in self.network.trained().values())
        state = torch.zeros(2 * trained, device=self.device)  # an optimizer's, made later

        def peak(size: int) -> int:
            torch.cuda.reset_peak_memory_stats(self.device)
            self._learn(rows[np.arange(size) % len(rows)], length, (0.0,) * len(objective.kinds))
            return torch.cuda.max_memory_allocated(self.device)

        fitting = rows_that_fit(peak, max(1, 4096 // length), self.device)
        del state
        self.micro_batch_tokens = min(fitting * length, self.train.global_batch_tokens)
        self._gradients.abandon()
        log.info("forward passes of %d tokens fit into memory", self.micro_batch_tokens)

    def compare_replicas(self) -> None:
        """Compare the state of all processes, which should be the same to the last bit where each has all weights.

        Raises:
            UserError: a process has another state than the main one.
        """
        if self.network.sharded:
            return
        checksums = torch.zeros(self.processes.size, dtype=torch.int64, device=self.device)
        for tensor in self.tensors().values():
            checksums[self.processes.rank] += tensor.detach().contiguous().view(torch.int32).sum()
        found = self.processes.sum_(checksums).tolist()
        self.processes.on_main(lambda: self._refuse_other_replicas(found))

    def _refuse_other_replicas(self, checksums: list[int]) -> None:
        usual, times = Counter(checksums).most_common(1)[0]
        odd = [rank for rank, checksum in enumerate(checksums) if checksum != usual or 2 * times <= len(checksums)]
        if len(set(checksums)) > 1:
            raise UserError(
                f"the weights of {' or '.join(map(self.processes.describe, odd))} are no longer those of the others:"
                " its GPU or its memory may be faulty, or its machine is of another kind; leave it out and run the"
                " workflow again, which goes on from the last checkpoint"
            )


def _averaged(scores: dict[str, Any]) -> dict[str, Any]:
    return {f"ema_{key}": value for key, value in scores.items()}
