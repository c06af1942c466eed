"""Show the progress of a training run, and read the figures of its devices: speed, memory, power, energy.

The figures of GPUs come from the driver, with NVIDIA's NVML. A thread asks the driver, since a driver that hangs must
not stop the training. A caller waits a moment for new figures, and otherwise gets the last ones. Figures that cannot
be read are left out: without NVML or the permission to use it, or if a part of a GPU (MIG) does not have the figure.
Energy includes the work of other jobs on the same GPU.
"""

import contextlib
import importlib
import platform
import statistics
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from babelmill.core.bars import Bar
from babelmill.core.words import plural
from babelmill.runtime.cost import peak_of
from babelmill.runtime.processes import Processes


def device_name(device: torch.device) -> str:
    """Return the name of a GPU's model, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def processors() -> str:
    """Return what trains: `4 x NVIDIA A100-SXM4-80GB`, or `AMD EPYC 7763, 8 threads`."""
    count = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    if torch.cuda.is_available():
        return f"{count} x {torch.cuda.get_device_name()}"
    name = ""
    with contextlib.suppress(OSError):  # only Linux has this file
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{name or platform.processor() or platform.machine()}, {plural(count * torch.get_num_threads(), 'thread')}"


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


class GpuReading(NamedTuple):
    """One answer: the figures for the record, and the energy of all GPUs since their driver was loaded, in mJ."""

    figures: dict[str, float]
    energy: int | None


def gpus_of(processes: Processes) -> list[str]:
    """Return the UUIDs of this machine's GPUs on the first process of the machine.

    On its other processes, and for CPUs and ROCm, return an empty list. The UUIDs come from PyTorch, so they are those
    of the GPUs in CUDA_VISIBLE_DEVICES.
    """
    if processes.device.type != "cuda" or torch.version.cuda is None or processes.rank % processes.local_size:
        return []
    return [str(torch.cuda.get_device_properties(i).uuid) for i in range(processes.local_size)]


class GpuFigures:
    """Reads the figures of some GPUs, given by UUID."""

    PATIENCE = 0.05  # seconds to wait for an answer

    def __init__(self, uuids: list[str]):
        self._asked, self._idle = threading.Event(), threading.Event()  # idle is not set before the first answer
        self._latest: GpuReading | None = None
        self._counted: int | None = None  # the energy that `joules` has returned so far, mJ
        if uuids:
            threading.Thread(target=self._answer, args=(uuids,), daemon=True).start()

    def joules(self) -> int | None:
        """Return the energy since the last call (or since the beginning), in J; None if it is not known."""
        if self._idle.is_set():
            self._idle.clear()
            self._asked.set()
            self._idle.wait(self.PATIENCE)
        energy = self._latest and self._latest.energy  # read once: a late answer may change it
        if energy is None or self._counted is None:
            return None
        taken = max(0, energy - self._counted) // 1000
        self._counted = min(self._counted + 1000 * taken, energy)
        return taken

    @property
    def figures(self) -> dict[str, float]:
        """Return the figures of the last answer, for the record."""
        latest = self._latest
        return {} if latest is None else latest.figures

    def _answer(self, uuids: list[str]) -> None:
        """Read the figures whenever they are asked for, until the process ends; return at once without NVML."""
        try:
            nvml: Any = importlib.import_module("pynvml")  # imported only here, since it loads the driver's library
            nvml.nvmlInit()
            handles = [_handle(nvml, uuid) for uuid in uuids]
        except Exception:  # NVML reports an error, or is not installed
            return
        while True:
            reading = read(nvml, handles)
            if self._counted is None:
                self._counted = reading.energy
            self._latest = reading
            self._idle.set()
            self._asked.wait()
            self._asked.clear()


def _handle(nvml: Any, uuid: str) -> Any:
    """Return NVML's handle of a GPU, or of a part of a GPU (MIG)."""
    bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{bare}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")


def read(nvml: Any, handles: list[Any]) -> GpuReading:
    """Read all GPUs: the mean of their use, the highest memory and temperature, and the sum of their power."""

    def ask(question: Callable[[Any], float]) -> list[float] | None:
        """Return the answer for each GPU; None if one GPU does not answer."""
        try:
            return [question(handle) for handle in handles]
        except nvml.NVMLError:
            return None

    answers = {
        "gpu_utilization": (ask(lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu), statistics.fmean),
        "gpu_memory": (ask(lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used / 2**20), max),
        "gpu_power": (ask(lambda gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000), sum),
        "gpu_temperature": (ask(lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)), max),
    }
    energy = ask(nvml.nvmlDeviceGetTotalEnergyConsumption)
    return GpuReading(
        {name: combine(found) for name, (found, combine) in answers.items() if found is not None},
        None if energy is None else int(sum(energy)),
    )
