"""A run in progress: model, moving average, optimizer, and one step of what `plan.py` says.

Process r of W takes micro-batches r, r + W, ...; how many processes there are changes nothing but the order in which
floating-point numbers are added. Dropout is seeded by (seed, step, micro-batch). On CUDA nothing in a step waits for
the device: the numbers of a step are read while the next one is running.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from babelmill.core.files import UserError
from babelmill.model.gpt_bert import GPTBert, GPTBertShape, training_mask
from babelmill.runtime.processes import LOST_PROCESS, Processes
from babelmill.runtime.stopping import Stop
from babelmill.stages import TrainSettings
from babelmill.training import cpu_kernels, mixing_kernel, objectives, randomness
from babelmill.training.batches import MicroBatch, Rows, TokenCounts, TokenStream
from babelmill.training.gradients import Gradients
from babelmill.training.metrics import summarize
from babelmill.training.optim import MovingAverage, Optimizers, clip
from babelmill.training.plan import Plan, Step, every_row, split
from babelmill.training.randomness import DROPOUT, INITIALIZATION, VALIDATION
from babelmill.training.votes import Votes

LEAVE_EVERY = 8  # validation micro-batches of each process
COMPILED_SHAPES = 4  # a short micro-batch is padded to a quarter of a full one, so that few shapes are compiled


class Outcome(NamedTuple):
    """The numbers of a step, over all processes.

    Attributes:
        sums: [groups, 3] float64, see `objectives.STATISTICS`.
        decided: what at least one process votes for.
        norm: of the gradient, before clipping.
    """

    sums: np.ndarray
    decided: Votes
    norm: float


@dataclasses.dataclass
class Pending:
    """A step whose numbers are still on the way from the device.

    Attributes:
        step: what was done.
        sums, votes, norm: tensors on the host, with the numbers of `Outcome`.
        ready: when the numbers are there; None if they are.
        data: beginning and end of each time that making micro-batches took on this process's device.
    """

    LOST = 300.0  # seconds to wait for a step after SIGTERM, which the launcher sends when another process has died

    step: Step
    sums: torch.Tensor
    votes: torch.Tensor
    norm: torch.Tensor
    ready: torch.cuda.Event | None
    data: list["Span"]

    def read(self, stop: Stop | None = None) -> Outcome:
        """Wait for the numbers and return them.

        Raises:
            UserError: they do not come, since another process is gone and NCCL waits for it.
        """
        began = time.monotonic()
        while self.ready is not None and not self.ready.query():
            signalled = None if stop is None else stop.signalled
            if signalled is not None and time.monotonic() - max(began, signalled) > self.LOST:
                raise UserError(LOST_PROCESS)
            time.sleep(0.0005)
        return Outcome(self.sums.numpy(), Votes.read(self.votes), self.norm.item())

    def data_seconds(self) -> float:
        """Return the seconds that making micro-batches took, once the step has been read."""
        return sum(span.seconds() for span in self.data)


class Span:
    """A time from its creation to `end()`: on CUDA the device's, since the host is ahead of it."""

    def __init__(self, device: torch.device):
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device.type == "cuda" else None
        self._began = self._ended = time.perf_counter()
        if self._events:
            self._events[0].record()

    def end(self) -> "Span":
        """Note the end."""
        self._ended = time.perf_counter()
        if self._events:
            self._events[1].record()
        return self

    def seconds(self) -> float:
        """Return how long it was, once the device has come to its end."""
        if self._events:
            return self._events[0].elapsed_time(self._events[1]) / 1000
        return self._ended - self._began


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Start to copy a tensor to the host, and return the copy, in which the values appear when the device gets there.

    A tensor of the CPU is returned as it is.
    """
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


class Trainer:
    """A run in progress: model, moving average, optimizer and data of one process.

    Args:
        settings: the stage's settings.
        config: shape of the model.
        plan: of the training rows.
        stream: the training tokens.
        validation: token counts of the validation shards, and their tokens.
        processes: this process among the others.
        by_hand: use `mixing_kernel` and, on a CPU, `cpu_kernels`; without them all is what is shipped, and slower.
    """

    def __init__(
        self,
        settings: TrainSettings,
        config: GPTBertShape,
        plan: Plan,
        stream: TokenStream,
        validation: tuple[list[TokenCounts], TokenStream],
        processes: Processes,
        by_hand: bool = True,
    ):
        train = settings.train
        self.settings, self.train, self.config, self.plan = settings, train, config, plan
        self.processes, self.device = processes, processes.device
        self._stream = stream
        self._validation_counts, self._validation_stream = validation
        self._groups = 2 * len(settings.languages)
        self._micro_batch_tokens = train.micro_batch_tokens
        torch.manual_seed(randomness.key(train.seed, INITIALIZATION))
        self.model = GPTBert(config, train.activation_checkpointing).to(self.device)
        if by_hand:
            (cpu_kernels if self.device.type == "cpu" else mixing_kernel).install(self.model)
        self.average = GPTBert(config).to(self.device).requires_grad_(False).eval()
        self.average.load_state_dict(self.model.state_dict())
        self._buckets = functools.cache(self.model.buckets)  # a hundred small kernels
        self._gradients = Gradients(self.model, processes)
        self._optimizers = Optimizers(self.model, train)
        self._moving_average = MovingAverage(self.model, self.average, train.ema_decay)
        self._compiled = self.device.type == "cuda"
        if self._compiled:
            self._compile()

    def _compile(self) -> None:
        """Compile block by block: the blocks are alike, so it costs one block's time a shape."""
        torch._dynamo.config.recompile_limit = 64
        for block in (*self.model.transformer.attention_layers, *self.model.transformer.mlp_layers):
            block.compile(dynamic=False)

    # One step.

    def run_step(self, number: int, votes: Callable[[], Votes] = Votes) -> Pending:
        """Do step `number`, counted from 0. At its end, `votes` says what this process wants (by default nothing)."""
        planning = Span(self.device)
        step = self.plan.step(number)
        micro_batches = self.plan.micro_batches(step)
        data = [planning.end()]
        mine = range(self.processes.rank, len(micro_batches), self.processes.size)
        sums = self._no_sums()
        self._gradients.zero()
        self.model.train()
        for j in mine:
            torch.manual_seed(randomness.key(self.train.seed, DROPOUT, number, j))
            if j == mine[-1]:
                self._gradients.last_backward()
            part, building = self._learn(micro_batches[j], step.length, step.weights)
            sums += part
            data.append(building)
        self._gradients.reduce()
        self.processes.sum_(sums)
        decided = votes().of_all(self.processes)
        norm, finite = clip(self._gradients.flat, self.train.clip_norm)
        self._optimizers.step(step.learning_rate, finite)
        self._moving_average.update(number)
        sums, decided, norm = to_host(sums), to_host(decided), to_host(norm)
        ready = None
        if self.device.type == "cuda":
            ready = torch.cuda.Event()
            ready.record()
        return Pending(step, sums, decided, norm, ready, data)

    def _no_sums(self) -> torch.Tensor:
        return torch.zeros(self._groups, len(objectives.STATISTICS), dtype=torch.float64, device=self.device)

    def _learn(self, rows: Rows, length: int, weights: tuple[float, float]) -> tuple[torch.Tensor, Span]:
        """Add a micro-batch's gradient; return its sums by group of targets, and the time that building it took."""
        building = Span(self.device)
        batch = self._build(self._stream, rows, length, weights)
        building.end()
        loss, sums = self._loss(self.model, batch)
        loss.backward()
        return sums, building

    def _build(
        self, stream: TokenStream, rows: Rows, length: int, weights: tuple[float, float], use: int = 0
    ) -> MicroBatch:
        full = max(1, self._micro_batch_tokens // length)
        return stream.micro_batch(rows, length, weights, use, -(-full // COMPILED_SHAPES) if self._compiled else 1)

    def _loss(self, model: GPTBert, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.train.precision == "bf16"):
            seen, length = training_mask(batch.segments, batch.causal), batch.input_ids.size(1)
            hidden = model.encode(batch.input_ids, seen, buckets=self._buckets(length, self.device))
            features = model.classifier.features(hidden.flatten(0, 1)[batch.positions])
            matrix, bias = model.embedding.word_embedding.weight, model.classifier.bias
            return objectives.loss(features, matrix, bias, batch, self.train.z_loss_weight, self._groups)

    def fitting(self) -> int | None:
        """Return the largest halving of `micro_batch_tokens` that fits into memory; None if not even one row does."""
        self._gradients.abandon()
        length = max(self.train.sequence_lengths)
        rows = every_row(self.plan.counts, length, 0.0, masked=False)
        size = self.train.micro_batch_tokens // 2
        while size >= length:
            self._micro_batch_tokens = size
            try:
                state = torch.zeros(2 * len(self._gradients.flat), device=self.device)  # an optimizer's, made later
                for _ in range(2):
                    self._learn(rows[np.arange(size // length) % len(rows)], length, (0.0, 0.0))
                del state
                return size
            except torch.OutOfMemoryError:
                size //= 2
        return None

    # Validation.

    @torch.no_grad()
    def validate(self, leave: Callable[[], bool] = lambda: False) -> dict[str, Any] | None:
        """Measure the whole validation split, each token masked or causal once in each kind of rows of the training.

        The length is that of the first phase and the mask rate that of the last step, so that numbers compare along
        the run.

        Returns:
            the fields of a validation line of the record (see `record.py`); None if a process had to `leave` meanwhile.
        """
        result: dict[str, Any] = {}
        for prefix, model in (("", self.model), ("ema_", self.average)):
            model.eval()
            sums, counts = self._no_sums(), np.zeros(self._groups, dtype=np.int64)
            for kind in self.plan.objective.kinds:
                length = self.train.sequence_lengths[0]
                rows = every_row(self._validation_counts, length, self.train.mask_rate_end, kind == "masked")
                if not self._measure(model, rows, length, sums, leave):
                    return None
                counts += group_counts(rows, self._groups)
            self.processes.sum_(sums)
            summary = summarize(sums.cpu().numpy(), counts, self.settings.languages, self.plan.objective)
            del summary["z_loss"]
            result |= {prefix + key: value for key, value in summary.items()}
        return result

    def _measure(self, model: GPTBert, rows: Rows, length: int, sums: torch.Tensor, leave: Callable[[], bool]) -> bool:
        """Add this process's share of the statistics of validation rows to `sums`; False if a process has to leave."""
        size = self.processes.size
        micro_batches = split(rows, max(1, self.train.micro_batch_tokens // length))
        for first in range(0, len(micro_batches), size):
            if first % (LEAVE_EVERY * size) == 0:
                votes = Votes(leave=leave()).of_all(self.processes)
                if Votes.read(votes).leave:
                    return False
            if first + self.processes.rank < len(micro_batches):
                mine = micro_batches[first + self.processes.rank]
                batch = self._build(self._validation_stream, mine, length, (0.0, 0.0), VALIDATION)
                sums += self._loss(model, batch)[1]
        return True

    # State.

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return weights, moving average and optimizer state, by name."""
        named = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        named |= {f"average.{name}": value for name, value in self.average.state_dict().items()}
        for i, state in enumerate(self._optimizers.state_dict()):
            for j, values in state["state"].items():
                named |= {f"optimizer.{i}.{j}.{name}": value for name, value in values.items()}
        return named

    def state(self) -> dict[str, Any]:
        """Return what is no tensor: the optimizers' groups."""
        return {"optimizers": [state["param_groups"] for state in self._optimizers.state_dict()]}

    def restore(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Go on from what `tensors` and `state` returned."""
        for prefix, model in (("model.", self.model), ("average.", self.average)):
            model.load_state_dict({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
        states = [{"state": {}, "param_groups": groups} for groups in state["optimizers"]]
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, i, j, key = name.split(".")
                states[int(i)]["state"].setdefault(int(j), {})[key] = tensor
        self._optimizers.load_state_dict(states)


def group_counts(rows: Rows, groups: int) -> np.ndarray:
    """Return the numbers of targets of each group, [groups] int64."""
    counts = np.zeros(groups, dtype=np.int64)
    np.add.at(counts, 2 * rows.language, rows.masked_targets)
    np.add.at(counts, 2 * rows.language + 1, rows.causal_targets)
    return counts
