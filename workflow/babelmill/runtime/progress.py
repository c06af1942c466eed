"""How far a run is, for people; speed and memory."""

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
    """Return the peak memory so far, in MiB: of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def shown(value: float | None) -> str:
    """Format a mean for people; it is not known if there was no target, or none with a finite loss."""
    return "unknown" if value is None else f"{value:.4f}"


class Progress:
    """How far training is. Steps grow, so time left goes by tokens."""

    def __init__(self, tokens: int, steps: int, all_tokens: int):
        """`tokens` of the run are done, of `all_tokens` in `steps` steps."""
        self._steps, self._bar = steps, Bar(all_tokens, tokens, at_once=True)

    def show(self, line: dict[str, Any]) -> None:
        """Say how far the run is, given the newest training line."""
        speed = f"{line['tokens_per_second']:,.0f} tokens/s"
        text = f"step {line['step']:,}/{self._steps:,}  loss {shown(line['loss'])}  {speed}"
        self._bar.show(line["tokens"], text)
