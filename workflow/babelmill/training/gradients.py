"""The sum of all processes' gradients, for models of which each process has a whole copy (for others see `fsdp.py`).

Gradients are summed, never averaged and scaled: to undo a mean by multiplying the loss by the number of processes
changes how bf16 backward passes round, by 0.7 % of the gradient for three processes. All gradients live in one flat
buffer. It is cut into buckets; the sum of a bucket starts during the backward pass, as soon as its gradients are ready.
"""

import re
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from babelmill.runtime.processes import Processes, lost_process
from babelmill.training.optim import clip

BUCKET_ELEMENTS = 8 * 2**20  # 32 MiB of fp32: large enough for bandwidth, small enough to overlap


def in_order_of_arrival(model: nn.Module) -> list[nn.Parameter]:
    """Return a GPTBert's parameters in the order in which a backward pass finishes their gradients.

    These are the parameters of the classifier, of the layers from the last to the first, and those that all layers
    share.
    """

    def key(name: str) -> tuple[int, int, bool]:
        layer = re.match(r"transformer\.(attention|mlp)_layers\.(\d+)\.", name)
        if layer:
            return 1, -int(layer[2]), layer[1] == "attention"
        return (0 if name.startswith("classifier.") else 2), 0, False

    named = [(name, parameter) for name, parameter in reversed(list(model.named_parameters()))]
    return [parameter for _, parameter in sorted(named, key=lambda pair: key(pair[0]))]


class FlatGradients:
    """All gradients of a model as one flat fp32 buffer, summed in buckets while the backward pass still runs.

    See `network.Gradients`. A process without a micro-batch sends zeros.
    """

    def __init__(self, model: nn.Module, processes: Processes):
        self._processes = processes
        parameters = in_order_of_arrival(model)
        self.flat = torch.zeros(sum(p.numel() for p in parameters), device=processes.device)
        self._parameters = parameters
        self._buckets: list[torch.Tensor] = []
        self._sizes: list[int] = []
        bucket_of, begin, end, members = [], 0, 0, 0
        for parameter in parameters:
            parameter.grad = self.flat[end : end + parameter.numel()].view_as(parameter)
            end += parameter.numel()
            members += 1
            bucket_of.append(len(self._buckets))
            if end - begin >= BUCKET_ELEMENTS or parameter is parameters[-1]:
                self._buckets.append(self.flat[begin:end])
                self._sizes.append(members)
                begin, members = end, 0
        self._waiting: list[int] | None = None
        self._handles: list[Any] = []  # handles of the sums that are not finished yet
        if processes.size > 1:
            for parameter, bucket in zip(parameters, bucket_of, strict=True):
                parameter.register_post_accumulate_grad_hook(lambda _, bucket=bucket: self._arrived(bucket))

    def zero(self) -> None:
        """Forget the gradients."""
        self.flat.zero_()

    def last_backward(self) -> None:
        """Prepare for a step's last backward pass: from now on, full buckets are sent."""
        self._waiting = list(self._sizes)

    @property
    def sending(self) -> bool:
        """Whether a part of this step's gradient has been sent to other processes."""
        return bool(self._handles)

    def abandon(self) -> None:
        """Give the step up: send no more gradients."""
        self._waiting, self._handles = None, []

    def _arrived(self, bucket: int) -> None:
        if self._waiting is None:
            return
        self._waiting[bucket] -= 1
        while len(self._handles) < len(self._buckets) and self._waiting[len(self._handles)] == 0:
            self._send()

    def _send(self) -> None:
        """Send the next bucket. Every process sends the buckets in the same order."""
        self._handles.append(dist.all_reduce(self._buckets[len(self._handles)], async_op=True))

    def reduce(self) -> None:
        """Send the remaining buckets and wait for all sums (on CUDA: let the stream wait)."""
        if self._processes.size > 1:
            with lost_process():
                while len(self._handles) < len(self._buckets):
                    self._send()
                for handle in self._handles:
                    handle.wait()
        self._waiting, self._handles = None, []

    def clip(self, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
        """See `optim.clip`."""
        return clip(self.flat, limit)
