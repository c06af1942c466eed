"""Write the record of a run: `metrics.jsonl`, one JSON object per line.

During training, the file is in the checkpoint folder, so that it stays after a failed attempt. At the end it becomes a
result of the stage. A resumed run first drops the lines after its checkpoint, so the record has each logged step once.

The fields of a line are `step` (steps done), `kind` and those below. In training lines, they are means since the last
training line:
    loss, loss_masked, loss_causal  cross-entropy in nats per target; `loss` weighs the kinds of rows as the objective
                                    does; each objective names its kinds (here: masked and causal, of hybrid models)
    perplexity, accuracy            exp(loss); share of targets predicted right
    z_loss                          mean of logsumexp^2
    grad_norm                       before clipping
    learning_rate, mask_rate, sequence_length, rows, tokens (of the run so far), epoch
    tokens_per_second, mfu          over all processes; share of the GPUs' peak (null if the peak is not known)
    data_share                      share of the time spent on making micro-batches
    memory                          peak of the main process in MiB: the GPU's, or the process's without a GPU
    skipped                         steps skipped because of a non-finite gradient
and, if NVIDIA's driver reports them:
    gpu_utilization, gpu_memory, gpu_power, gpu_temperature
                                    of the main process's machine: mean of its GPUs in percent, highest in MiB, sum in
                                    W, highest in degrees Celsius
    energy                          of all GPUs since the last training line, with validations and checkpoints, in J
Validation lines have loss, loss_masked, loss_causal, perplexity and accuracy of the last weights, and the same for the
averaged weights, with the prefix `ema_`; and `targets`, the number of targets measured, in which samples of the
validation text differ (`run.validation_tokens`; earlier versions do not say it). Models of several languages also have
`languages`: the same losses for each.
"""

import json
import math
from pathlib import Path
from typing import Any

from babelmill.core.files import atomic_write, flush, writing


class Record:
    """The file `metrics.jsonl` of a run that has done `step` steps.

    Attributes:
        path: the path of the file.
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
        self.path, self._file = path, open(path, "a", encoding="utf-8")  # noqa: SIM115  it stays open during the run

    def append(self, line: dict[str, Any]) -> None:
        """Add a line; numbers that are not finite become null."""
        with writing(self.path, self.path):
            self._file.write(json.dumps(finite(line), allow_nan=False) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Flush the file to disk: at each checkpoint, all lines before it must be on disk."""
        with writing(self.path, self.path):
            flush(self._file.fileno())


def energy_kwh(path: Path) -> float | None:
    """Return the energy of a whole run in kWh, from its record; None if a part of the run has no energy.

    Work counts once if it was lost when the run was killed, and then done again. The same is true for the hours.
    """
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    joules = [line.get("energy") for line in lines if line["kind"] == "train"]
    return sum(joules) / 3.6e6 if joules and None not in joules else None


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, with None, also in nested dictionaries."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
