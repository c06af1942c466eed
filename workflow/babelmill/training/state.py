"""Hold what a checkpoint holds, on all processes: each has all of it (replicas), or some rows of each tensor."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from babelmill.core.files import UserError
from babelmill.runtime.processes import Processes
from babelmill.training.networks.network import Network
from babelmill.training.optimization.optim import FusedAdamW, MovingAverage
from babelmill.training.optimization.sharding import Load


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
