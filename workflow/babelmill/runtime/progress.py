"""Show the progress of a training run, and find the speed and the memory of its device."""

import sys
from typing import Any

import torch

from babelmill.core.bars import Bar
from babelmill.runtime.cost import peak_of


def device_name(device: torch.device) -> str:
    """Return the name of a GPU's model, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def peak_flops(device: torch.device) -> float | None:
    """Return the peak of one device in FLOP/s; None if it is not known."""
    if device.type != "cuda":
        return None
    return peak_of(torch.cuda.get_device_name(device))


def peak_memory(device: torch.device) -> float:
    """Return the peak memory so far, in MiB: the GPU's, or this process's on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def shown(value: float | None) -> str:
    """Return a mean as text: "unknown" if it is None, since no target had a finite loss."""
    return "unknown" if value is None else f"{value:.4f}"


class Progress:
    """Shows how far training is. The time left is estimated from tokens, since steps get longer during training.

    Args:
        tokens: the number of tokens that are done.
        steps, all_tokens: the numbers of the run's steps and tokens.
        validations: how many validations are done, and how many the run has.
        each: how long one takes, in tokens that are trained on in this time.
    """

    def __init__(
        self, tokens: int, steps: int, all_tokens: int, validations: tuple[int, int] = (0, 0), each: float = 0.0
    ):
        (self._validated, count), self._each = validations, each
        self._tokens, self._steps = tokens, steps
        self._bar = Bar(all_tokens + count * each, tokens + self._validated * each, at_once=True)

    def show(self, line: dict[str, Any]) -> None:
        """Show how far the run is; `line`: the newest training line of its record."""
        speed = f"{line['tokens_per_second']:,.0f} tokens/s"
        text = f"step {line['step']:,}/{self._steps:,}  loss {shown(line['loss'])}  {speed}"
        self._tokens = line["tokens"]
        self._bar.show(self._tokens + self._validated * self._each, text)

    def validate(self, step: int, share: float) -> None:
        """Show how far a validation after a step is: the `share` that is done."""
        done = self._tokens + (self._validated + share) * self._each
        self._bar.show(done, f"step {step:,}/{self._steps:,}  validation {share:.0%}")
        self._validated += share == 1
