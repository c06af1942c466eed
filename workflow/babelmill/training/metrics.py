"""The record of a run: `metrics.jsonl`, one JSON object a line.

The file lies in the checkpoint folder while training goes on, so that it outlives an attempt, and is a result of the
stage at the end. A resumed run first drops the lines after its checkpoint, so each logged step is there once.

Fields of a line: `step` (steps done) and `kind`. Training lines are means since the line before:
    loss, loss_masked, loss_causal  cross-entropy in nats a target; `loss` weighs the two as the objective does
    perplexity, accuracy            exp(loss); share of targets predicted right
    z_loss                          mean of logsumexp^2
    grad_norm                       before clipping
    learning_rate, mask_rate, sequence_length, rows, tokens (of the run so far), epoch
    tokens_per_second, mfu          over all processes; share of the GPUs' peak (null where that is not known)
    data_share                      share of the time spent on making micro-batches
    memory                          peak of the main process in MiB, of the GPU where there is one
    skipped                         steps left out because of a non-finite gradient
Validation lines have loss, loss_masked, loss_causal, perplexity and accuracy of the last weights, and the same with
`ema_` before. Models of several languages have `languages`: the same losses for each.
"""

import json
import logging
import math
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch

from babelmill.files import atomic_write, space_left
from babelmill.training.cost import peak_of
from babelmill.training.objectives import STATISTICS, Objective

log = logging.getLogger(__name__)


def summarize(sums: np.ndarray, counts: np.ndarray, languages: list[str], objective: Objective) -> dict:
    """Means from sums by group (2 language + (0 masked, 1 causal)).

    Args:
        sums: [groups, 3], see `objectives.STATISTICS`.
        counts: [groups] numbers of targets.
        languages: their names.
        objective: how the two kinds weigh.
    """

    def means(sums: np.ndarray, counts: np.ndarray) -> dict:
        """Of [2, 3] sums and [2] counts of masked and causal targets."""
        values = {}
        for i, name in enumerate(STATISTICS):
            masked, causal = (float(s / c) if c else None for s, c in zip(sums[:, i], counts, strict=True))
            values[name] = masked, causal, objective.combine(masked, causal)
        masked, causal, both = values["cross_entropy"]
        return {
            "loss": both,
            "loss_masked": masked,
            "loss_causal": causal,
            "perplexity": None if both is None else math.exp(min(both, 700.0)),
            "accuracy": values["correct"][2],
            "z_loss": values["z"][2],
        }

    sums, counts = sums.reshape(-1, 2, len(STATISTICS)), counts.reshape(-1, 2)
    result = means(sums.sum(0), counts.sum(0))
    if len(languages) > 1:
        keys = ("loss", "loss_masked", "loss_causal")
        result["languages"] = {
            name: {key: value for key, value in means(sums[i], counts[i]).items() if key in keys}
            for i, name in enumerate(languages)
        }
    return result


def peak_flops(device: torch.device) -> float | None:
    """Peak of one device; None if it is not known."""
    if device.type != "cuda":
        return None
    return peak_of(torch.cuda.get_device_name(device))


def peak_memory(device: torch.device) -> float:
    """Peak memory so far, in MiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


class Record:
    """`metrics.jsonl` of a run that has done `step` steps; `validated`: whether it has the validation of `step`."""

    def __init__(self, path: Path, step: int):
        kept, self.validated = [], False
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                    if entry["step"] <= step:
                        kept.append(line + "\n")
                        self.validated |= entry["step"] == step and entry["kind"] == "validation"
                except ValueError:
                    break  # the process died while it wrote its last line
        with atomic_write(path, "w") as file:
            file.writelines(kept)
        self._path, self._file = path, open(path, "a", encoding="utf-8")  # noqa: SIM115  for as long as the run

    def append(self, line: dict) -> None:
        """Add a line; numbers that are not finite become null."""
        with space_left(self._path, self._path):
            self._file.write(json.dumps(finite(line), allow_nan=False) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """To disk: a checkpoint must not be older than what its run has recorded."""
        with space_left(self._path, self._path):
            os.fsync(self._file.fileno())


def finite(value):
    """JSON has no NaN and no infinity."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shown(value: float | None) -> str:
    """For people: a mean that may not be known, since there was no target, or none with a finite loss."""
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

    def show(self, line: dict) -> None:
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
            sys.stderr.write(f"\r\033[K[{'#' * done}{'.' * (24 - done)}] {text}{end}")
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
