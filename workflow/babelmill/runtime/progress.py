"""Show the progress of a training run, and read the figures of its devices: speed, memory, power, energy.

The figures of GPUs come from the driver, with NVIDIA's NVML. Figures that cannot be read are left out: without NVML or
the permission to use it, or if a part of a GPU (MIG) does not have the figure. Energy includes the work of other jobs
on the same GPU.
"""

import contextlib
import importlib
import platform
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def gpus_of(processes: Processes) -> list[str]:
    """Return the UUIDs of this machine's GPUs on the first process of the machine.

    On its other processes, and for CPUs and ROCm, return an empty list. The UUIDs come from PyTorch, so they are those
    of the GPUs in CUDA_VISIBLE_DEVICES.
    """
    if processes.device.type != "cuda" or torch.version.cuda is None or processes.rank % processes.local_size:
        return []
    return [str(torch.cuda.get_device_properties(i).uuid) for i in range(processes.local_size)]


class GpuFigures:
    """Reads the figures of some GPUs, given by UUID.

    Attributes:
        figures: those of the last reading, for the record: the mean of their use, the highest memory and temperature,
            and the sum of their power.
    """

    def __init__(self, uuids: list[str]):
        self.figures: dict[str, float] = {}
        self._nvml: Any = None
        self._handles: list[Any] = []
        if uuids:
            with contextlib.suppress(Exception):  # NVML reports an error, or is not installed
                self._nvml = importlib.import_module("pynvml")  # only here, since it loads the driver's library
                self._nvml.nvmlInit()
                self._handles = [self._handle(uuid) for uuid in uuids]
        self._counted = self._energy()  # what `joules` has returned so far, in mJ since the driver was loaded

    def joules(self) -> int | None:
        """Read the GPUs. Return the energy since the last call (or since the beginning), in J; None if not known."""
        nvml, ask = self._nvml, self._ask
        answers = {
            "gpu_utilization": (ask(lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu), statistics.fmean),
            "gpu_memory": (ask(lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used / 2**20), max),
            "gpu_power": (ask(lambda gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000), sum),
            "gpu_temperature": (ask(lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)), max),
        }
        self.figures = {name: combine(found) for name, (found, combine) in answers.items() if found}
        energy = self._energy()
        if energy is None or self._counted is None:
            return None
        taken = max(0, energy - self._counted) // 1000
        self._counted = min(self._counted + 1000 * taken, energy)
        return taken

    def _handle(self, uuid: str) -> Any:
        """Return NVML's handle of a GPU, or of a part of a GPU (MIG)."""
        bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
        try:
            return self._nvml.nvmlDeviceGetHandleByUUID(f"GPU-{bare}")
        except self._nvml.NVMLError:
            return self._nvml.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")

    def _ask(self, question: Callable[[Any], float]) -> list[float]:
        """Return the answer for each GPU; none if one GPU does not answer."""
        if self._handles:
            with contextlib.suppress(self._nvml.NVMLError):
                return [question(gpu) for gpu in self._handles]
        return []

    def _energy(self) -> int | None:
        found = self._ask(lambda gpu: self._nvml.nvmlDeviceGetTotalEnergyConsumption(gpu))
        return int(sum(found)) if found else None
