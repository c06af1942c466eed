"""Show how a training run goes: the figures of GPUs, and W&B.

A thread sends the record of the run to W&B, and can neither stop nor delay the run. Weights & Biases reads its own
variables, such as `WANDB_API_KEY`, `WANDB_NAME`, `WANDB_PROJECT` and `WANDB_MODE`. If it cannot be online, for instance
without a key, it records offline. The run's id stays the same after a resume. W&B adds to an online run. But an offline
recording cannot be continued, so a resumed run's recording begins with the first line of the record, and takes the
place of the one before.
"""

import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import torch

from babelmill.config.layers import flatten
from babelmill.core.words import first_line
from babelmill.runtime.slurm import signals

log = logging.getLogger(__name__)
PATIENCE = 10.0  # seconds to wait for W&B after the end of the training
END = 15.0  # seconds after the end of the training when W&B's own process is killed, for which Python's exit waits
FIXED = {"WANDB_INIT_TIMEOUT": "8", "WANDB_FINISH_TIMEOUT": "6"}  # seconds
# W&B must not ask for a key on the terminal, and says nothing there: our log has what matters.
FIXED |= {"WANDB_RESUME": "allow", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "WANDB_X_DISABLE_STATS": "true"}


def device_name(device: torch.device) -> str:
    """Return the name of a GPU's model, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


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


class GpuFigures:
    """Reads the figures of a process's GPU (not run on a GPU yet).

    Those that cannot be read are left out: on a CPU, without the permission to read them, or if a part of a GPU (MIG)
    does not have them.

    Attributes:
        figures: those of the last reading, for the record.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._counted: float | None = None  # mJ that the GPU has used since its driver was loaded
        self.joules()

    def joules(self) -> float | None:
        """Read the GPU. Return its energy since the last call (or since the beginning), in J; None if not known.

        It includes the work of other jobs on the same GPU.
        """
        self.figures: dict[str, float] = {}
        questions: dict[str, Callable[[torch.device], float]] = {
            "gpu_utilization": torch.cuda.utilization,
            "gpu_memory": lambda gpu: torch.cuda.device_memory_used(gpu) / 2**20,
            "gpu_power": lambda gpu: torch.cuda.power_draw(gpu) / 1000,
            "gpu_temperature": torch.cuda.temperature,
            "energy": energy,
        }
        for name, question in questions.items() if self._device.type == "cuda" else ():
            with contextlib.suppress(Exception):  # each driver has its own
                self.figures[name] = question(self._device)
        before, self._counted = self._counted, self.figures.pop("energy", None)
        if before is None or self._counted is None:
            return None
        return max(0, self._counted - before) / 1000  # less: the driver was loaded again


def energy(gpu: torch.device) -> float:
    """Return what a GPU of NVIDIA has used since its driver was loaded, in mJ."""
    import pynvml

    return pynvml.nvmlDeviceGetTotalEnergyConsumption(torch.cuda._get_pynvml_handler(gpu))


@contextlib.contextmanager
def mirror(name: str, folder: Path) -> Iterator[None]:
    """Send all lines of the record of the run in `folder` to W&B, and those that are added; `name`: its model."""
    os.environ |= {"WANDB_NAME": name, "WANDB_PROJECT": "babelmill"} | os.environ | FIXED
    os.environ |= {"WANDB_RUN_ID": f"{name}-{folder.name}", "WANDB_DIR": str(folder)}
    ended, given_up = threading.Event(), threading.Event()

    def follow() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signals())  # W&B's process inherits this: they are for the training
        try:
            send(folder, ended, given_up)
        except Exception as error:
            if not given_up.is_set():
                log.warning("W&B: turned off for the rest of this run: %s", first_line(error))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(PATIENCE)
        if thread.is_alive():
            given_up.set()
            log.warning("W&B did not finish in %d s; metrics.jsonl is complete", PATIENCE)
            killer = threading.Timer(END - PATIENCE, kill_service)
            killer.daemon = True
            killer.start()


def kill_service() -> None:
    """Kill W&B's own process, for which Python's exit would wait."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "wandb" in child.name():
                child.kill()


def send(folder: Path, ended: threading.Event, given_up: threading.Event) -> None:
    """Send the lines of the record that W&B does not have, until the run has ended, or nobody waits any more."""
    import wandb

    config = json.loads((folder / "identity.json").read_text(encoding="utf-8"))["settings"]
    try:
        run = wandb.init(config=config)
    except Exception as error:
        if given_up.is_set():  # its process was killed
            return
        log.warning(
            "W&B: not online (%s), see WANDB_API_KEY and the network; recording in %s", first_line(error), folder
        )
        wandb.teardown()  # forgets that the run's id was used
        run = wandb.init(config=config, mode="offline")
        if given_up.is_set():  # meanwhile
            return kill_service()
    if run.offline:
        for older in (folder / "wandb").glob(f"offline-run-*-{run.id}"):  # the new recording will contain it
            if older.resolve() != Path(run.dir).parent.resolve():
                shutil.rmtree(older, ignore_errors=True)
    first = run.starting_step  # of a run that goes on, W&B has the steps before it
    with open(folder / "metrics.jsonl", encoding="utf-8") as record:
        rest, all_there = "", False
        while not all_there:
            all_there = ended.wait(0.5)
            *lines, rest = (rest + record.read()).split("\n")
            for line in map(json.loads, lines):
                if line["step"] < first:
                    continue
                values = {key.replace(".", "/"): value for key, value in flatten(line, f"{line['kind']}.").items()}
                run.log({k: value for k, value in values.items() if isinstance(value, int | float)}, step=line["step"])
    run.finish()
    wandb.teardown()  # waits until all is written
