"""The record of a run: `metrics.jsonl`, one JSON object per line.

The file lies in the checkpoint folder while training goes on, so that it outlives an attempt, and is a result of the
stage at the end. A resumed run first drops the lines after its checkpoint, so each logged step is there once.

Fields of a line: `step` (steps done) and `kind`. Training lines are means since the line before:
    loss, loss_masked, loss_causal  cross-entropy in nats per target; `loss` weighs the kinds of rows as the objective
                                    does, which has a name of its own for each (these are those of hybrid models)
    perplexity, accuracy            exp(loss); share of targets predicted right
    z_loss                          mean of logsumexp^2
    grad_norm                       before clipping
    learning_rate, mask_rate, sequence_length, rows, tokens (of the run so far), epoch
    tokens_per_second, mfu          over all processes; share of the GPUs' peak (null where that is not known)
    data_share                      share of the time spent on making micro-batches
    memory                          peak of the main process in MiB, of the GPU where there is one
    skipped                         steps left out because of a non-finite gradient
and, where NVIDIA's driver says so:
    gpu_utilization, gpu_memory, gpu_power, gpu_temperature
                                    of the main process's machine: mean of its GPUs in percent, most in MiB, sum in W,
                                    highest in degrees Celsius
    energy                          of all GPUs since the line before, with validations and checkpoints, in J
Validation lines have loss, loss_masked, loss_causal, perplexity and accuracy of the last weights, and the same with
`ema_` before. Models of several languages have `languages`: the same losses for each.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

from babelmill.core.files import atomic_write, writing


class Record:
    """`metrics.jsonl` of a run that has done `step` steps.

    Attributes:
        path: of the file.
        validated: whether the file has the validation after `step` steps.
    """

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
        self.path, self._file = path, open(path, "a", encoding="utf-8")  # noqa: SIM115  for as long as the run

    def append(self, line: dict[str, Any]) -> None:
        """Add a line; numbers that are not finite become null."""
        with writing(self.path, self.path):
            self._file.write(json.dumps(finite(line), allow_nan=False) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Flush to disk: a checkpoint must not be older than what its run has recorded."""
        with writing(self.path, self.path):
            os.fsync(self._file.fileno())


def energy_kwh(path: Path) -> float | None:
    """Return the energy of a whole run, by its record; None if it is not known of every part of it.

    As with the hours, work that was lost to a kill and done again counts once.
    """
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    joules = [line.get("energy") for line in lines if line["kind"] == "train"]
    return sum(joules) / 3.6e6 if joules and None not in joules else None


def finite(value: Any) -> Any:
    """Replace what JSON does not have, NaN and infinity, by None, in nested dictionaries too."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
