"""Record small passes of training on a GPU, so that the host starts all kernels of a pass at once.

The host needs longer to start the kernels of a pass, about a thousand, than a GPU needs to compute a small pass. A
recording (a CUDA graph) starts them all in one call, with the addresses that they had. So a pass copies what the host
sends into the tensors of the recording. Everything else that it reads or writes (weights, gradients, keys) must stay
where it is.

A recording is made for one shape. So that few shapes occur, rows without tokens and targets without weight are added.
A shape is recorded when it occurs for the second time. If a pass cannot be recorded, a warning says so, and nothing is
recorded any more.

On an H200 with a slow host, a step of the preset `small` takes 15.6 ms with recordings and 61.0 ms without (PyTorch
2.11). Tests record on a CPU, with a stand-in for CUDA graphs. (Since then, a recording is no longer compared with the
same pass without it when it is made: not run on a GPU yet.)
"""

import functools
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Self

import torch

from babelmill.core.words import first_line
from babelmill.runtime.cost import peak_of
from babelmill.runtime.watching import device_name
from babelmill.training.batches import Sent, Weights
from babelmill.training.kernels.compilation import LEAST_ROWS
from babelmill.training.networks.network import Network
from babelmill.training.plan.rows import Rows

log = logging.getLogger(__name__)

Shape = tuple[int, ...]  # rows, length and targets

SECONDS = 0.03  # that a GPU at its peak needs for a pass, at most; a larger pass takes it longer than the host
PEAK = 1e15  # FLOP/s of a GPU whose peak is not known
SHAPES = 16  # that are remembered


def rounded(number: int) -> int:
    """Return the next number of which only the first four binary digits are not 0; it is at most an eighth larger."""
    unit = 2 ** max(0, number.bit_length() - 4)
    return -(-number // unit) * unit


@functools.cache
def _side_stream() -> torch.cuda.Stream:
    """Return a stream for all recordings, since cuBLAS takes memory for each stream."""
    return torch.cuda.Stream()


class CUDAGraph:
    """Records a function, and repeats what it did on the device."""

    def record(self, function: Callable[[], torch.Tensor], beside: Self | None) -> torch.Tensor:
        """Record a function, without doing what it does. Return its result, which each `repeat` writes.

        It uses the memory of the recording `beside`, too, if there is one: a result must be read before that is
        repeated.
        """
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self._graph = torch.cuda.CUDAGraph()
        self._pool = torch.cuda.graph_pool_handle() if beside is None else beside._pool
        with torch.cuda.stream(_side_stream()):
            # Other threads may go on: those of NCCL ask meanwhile whether a sum has arrived.
            self._graph.capture_begin(self._pool, capture_error_mode="thread_local")
            try:
                return function()
            finally:
                try:
                    self._graph.capture_end()
                except RuntimeError:  # the function did what cannot be recorded
                    torch._C._cuda_releasePool(torch.cuda.current_device(), self._pool)  # PyTorch 2.13 would keep it
                    raise

    def repeat(self) -> None:
        self._graph.replay()


class Recorder:
    """Learns from rows by repeating recordings. A network that is `recordable` has `FlatGradients`."""

    def __init__(self, network: Network, stream: Any, learn: Callable[[Any], torch.Tensor], device: torch.device):
        """`stream`: a `TokenStream`, if the network is recordable; `learn`: see `Trainer._learn`."""
        self._network, self._stream, self._learn, self._device = network, stream, learn, device
        self._works, self._most = network.recordable, SECONDS * (peak_of(device_name(device)) or PEAK)
        self._given: OrderedDict[Shape, Sent] = OrderedDict()  # inputs of each shape
        self._recorded: dict[Shape, tuple[CUDAGraph, torch.Tensor]] = {}  # with the result

    def takes(self, rows: Rows, length: int) -> bool:
        """Return whether `learn` should be used for rows of `length` tokens."""
        if not self._works or len(rows) < LEAST_ROWS:
            return False
        return self._network.flops(length, len(rows) * length, int(rows.targets.sum())) <= self._most

    def forget(self, *shapes: Shape) -> None:
        """Free the memory of the recordings of these shapes (default: of all), as soon as they do not run any more."""
        for shape in shapes or [*self._given]:
            if shape in self._recorded and self._device.type == "cuda":
                torch.cuda.synchronize()
            self._recorded.pop(shape, None)
            del self._given[shape]

    def learn(self, rows: Rows, length: int, weights: Weights) -> torch.Tensor:
        """Add the gradient of rows, which `takes` allows.

        Return their sums by group of targets, to be read before the next call.
        """
        sent, targets = self._stream.send(rows, length, weights, rounded(len(rows))), rounded(int(rows.targets.sum()))
        shape = *sent.tokens.shape, targets
        if shape not in self._given:
            self._given[shape] = sent
            if len(self._given) > SHAPES:
                self.forget(next(iter(self._given)))
            return self._network.attempt(lambda: self._compute(sent, targets))
        self._given.move_to_end(shape)
        if shape not in self._recorded and not self._record(shape):
            return self._compute(sent, targets)
        for given, new in zip(self._given[shape], sent, strict=True):
            if given is not None and new is not None:
                given.copy_(new)
        recording, result = self._recorded[shape]
        recording.repeat()
        return result

    def _compute(self, sent: Sent, targets: int) -> torch.Tensor:
        """Add the gradient of rows without a recording; return their sums."""
        return self._learn(self._stream.build(sent, targets, important=True))

    def _record(self, shape: Shape) -> bool:
        """Record the pass of a shape. Return whether this works; if it does not, record nothing any more."""
        beside, _ = next(iter(self._recorded.values()), (None, None))
        try:
            recording = CUDAGraph()
            result = recording.record(lambda: self._compute(self._given[shape], shape[-1]), beside)
        except RuntimeError as error:  # from CUDA, or no memory is left; the cause comes before that it could not end
            log.warning(
                "passes are not recorded, so small steps take longer: %s", first_line(error.__context__ or error)
            )
            self.forget()
            self._works = False
            return False
        self._recorded[shape] = recording, result
        return True
