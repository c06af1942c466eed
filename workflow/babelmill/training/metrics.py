"""The record of a run: `metrics.jsonl`, one JSON object a line, mirrored to W&B where asked for.

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
import queue
import re
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch

from babelmill.files import atomic_write
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
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115  for as long as the run

    def append(self, line: dict) -> None:
        """Add a line; numbers that are not finite become null."""
        self._file.write(json.dumps(finite(line), allow_nan=False) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """To disk: a checkpoint must not be older than what its run has recorded."""
        self._file.flush()
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

    def __init__(self, start: int, steps: int):
        self._start, self._steps = start, steps
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
        left = (now - self._begin) / max(1, step - self._start) * (self._steps - step)
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


class Mirror:
    """W&B as a mirror of the record. It runs in a thread of its own and can neither stop nor delay the run.

    Online with a key, offline without one or when the server does not answer. The run's id is made of the model's name
    and the fingerprint, so that it is the same after a resume. Keys come from the environment alone.
    """

    PATIENCE = 10.0  # seconds for the server's first answer, and at the end for what is still to be sent

    def __init__(self, name: str, fingerprint: str, folder: Path, settings: dict):
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._arguments = {
            "id": f"{re.sub(r'[^A-Za-z0-9_-]', '-', name)}-{fingerprint}",
            "name": name,
            "project": os.environ.get("WANDB_PROJECT", "babelmill"),
            "dir": str(folder),
            "config": settings,
            "resume": "allow",
        }
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def log(self, line: dict) -> None:
        """Send a line of the record."""
        self._queue.put(line)

    def close(self) -> None:
        """Send what is left, for at most `PATIENCE` seconds."""
        self._queue.put(None)
        self._thread.join(self.PATIENCE + 2)
        if self._thread.is_alive():
            log.warning("W&B did not finish in %d s; metrics.jsonl is complete", self.PATIENCE + 2)

    def _run(self) -> None:
        try:
            run = self._begin()
            while (line := self._queue.get()) is not None:
                values = {f"{line['kind']}/{key}": value for key, value in flat(line) if isinstance(value, int | float)}
                run.log(values, step=line["step"])
            run.finish()
        except Exception as error:  # whatever happens here must not harm the training
            log.warning("W&B is off for the rest of this run: %s", error)

    def _begin(self):
        import wandb

        settings = wandb.Settings(
            init_timeout=self.PATIENCE,
            finish_timeout=self.PATIENCE,
            console="off",
            silent=True,
            x_disable_stats=True,
        )
        mode = os.environ.get("WANDB_MODE")
        if mode is None and not (os.environ.get("WANDB_API_KEY") or has_netrc_key()):
            mode = "offline"
        try:
            return wandb.init(mode=mode, settings=settings, **self._arguments)
        except Exception as error:
            log.warning("W&B is not reachable (%s); recording offline in %s", error, self._arguments["dir"])
            wandb.teardown()  # forgets that the run's id was used
            return wandb.init(mode="offline", settings=settings, **self._arguments)


def has_netrc_key() -> bool:
    """Whether `wandb login` was done on this machine."""
    import netrc

    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def flat(line: dict, prefix: str = ""):
    """Nested entries as (`languages/deu/loss`, value)."""
    for key, value in line.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value
