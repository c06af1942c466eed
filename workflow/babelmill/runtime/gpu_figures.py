"""What the GPUs of this machine say of themselves: use, memory, power, temperature, energy. By NVIDIA's NVML.

A thread asks the driver, since a driver that hangs must not stop the training: who wants figures waits a moment for new
ones, and otherwise takes the last ones. Whatever is not there (NVML, permission, a figure that a part of a GPU does not
have, as with MIG) is left out. Energy counts all that a GPU does: another job on it, too.
"""

import importlib
import statistics
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from babelmill.runtime.processes import Processes


class Reading(NamedTuple):
    """One answer: figures as they stand in the record, and what all GPUs took since their driver was loaded, in mJ."""

    figures: dict[str, float]
    energy: int | None


def gpus_of(processes: Processes) -> list[str]:
    """Return the UUIDs of the GPUs of this process's machine, on its first process; of others, of CPUs and ROCm none.

    PyTorch says which GPUs it uses, so CUDA_VISIBLE_DEVICES has had its say.
    """
    if processes.device.type != "cuda" or torch.version.cuda is None or processes.rank % processes.local_size:
        return []
    return [str(torch.cuda.get_device_properties(i).uuid) for i in range(processes.local_size)]


class GpuFigures:
    """Asks some GPUs, given by UUID."""

    PATIENCE = 0.05  # seconds to wait for an answer

    def __init__(self, uuids: list[str]):
        self._asked, self._idle = threading.Event(), threading.Event()  # not idle before the first answer
        self._latest: Reading | None = None
        self._counted: int | None = None  # the energy that `joules` has told
        if uuids:
            threading.Thread(target=self._answer, args=(uuids,), daemon=True).start()

    def joules(self) -> int | None:
        """Return the energy since the last call, at first since the beginning, in J; None if it is not known."""
        if self._idle.is_set():
            self._idle.clear()
            self._asked.set()
            self._idle.wait(self.PATIENCE)
        energy = self._latest and self._latest.energy  # looked at once: a late answer may come at any moment
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
        """Answer each question, for as long as the process lives; not at all without NVML."""
        try:
            nvml: Any = importlib.import_module("pynvml")  # loads the driver's library, so here alone
            nvml.nvmlInit()
            handles = [_handle(nvml, uuid) for uuid in uuids]
        except Exception:  # an error of NVML's, or it is not installed
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
    """Return NVML's handle of a GPU, or of the part of one that MIG makes."""
    bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{bare}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")


def read(nvml: Any, handles: list[Any]) -> Reading:
    """Ask all GPUs: use is their mean, memory and temperature the highest, power the sum."""

    def ask(question: Callable[[Any], float]) -> list[float] | None:
        """Return the answers of all; None if one has none."""
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
    return Reading(
        {name: combine(found) for name, (found, combine) in answers.items() if found is not None},
        None if energy is None else int(sum(energy)),
    )
