"""How far a run is, for people: a bar on a terminal, plain lines elsewhere; speed and memory."""

import logging
import math
import sys
import time
from typing import Any

import torch

from babelmill.core import stage_entry
from babelmill.runtime.cost import peak_of

log = logging.getLogger(__name__)


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
    """A bar on a terminal; elsewhere, and in the log, a plain line every so often, never a carriage return."""

    EVERY = 30.0  # seconds between plain lines

    def __init__(self, tokens: int, steps: int, all_tokens: int):
        """`tokens` of the run are done, of `all_tokens` in `steps` steps. (Steps grow, so time left goes by tokens.)"""
        self._start, self._steps, self._tokens = tokens, steps, all_tokens
        self._begin = time.monotonic()
        self._said = -math.inf
        self._terminal = sys.stderr.isatty()
        if self._terminal:
            for handler in logging.getLogger().handlers:
                if type(handler) is logging.StreamHandler:
                    handler.addFilter(self._beside_the_bar)

    def show(self, line: dict[str, Any]) -> None:
        """Say how far the run is, given the newest training line."""
        now, step = time.monotonic(), line["step"]
        left = (now - self._begin) / (line["tokens"] - self._start) * (self._tokens - line["tokens"])
        clock = f"{int(left) // 3600}:{int(left) // 60 % 60:02}:{int(left) % 60:02}"
        text = (
            f"step {step:,}/{self._steps:,}  loss {shown(line['loss'])}  {line['tokens_per_second']:,.0f} tokens/s"
            f"  {clock} left"
        )
        if self._terminal:
            done = 24 * step // self._steps
            end = "\n" if step == self._steps else ""
            sys.stderr.write(f"\r\033[K[{'#' * done}{'.' * (24 - done)}] {stage_entry.shown_name}{text}{end}")
            sys.stderr.flush()
        if now - self._said >= self.EVERY or step == self._steps:
            self._said = now
            log.info(text, extra={"bar": True})

    @staticmethod
    def _beside_the_bar(record: logging.LogRecord) -> bool:
        """On a terminal the bar stands for progress lines, which go to the log file, and makes room for others."""
        if hasattr(record, "bar"):
            return False
        sys.stderr.write("\r\033[K")
        return True
