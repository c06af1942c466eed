"""Let PyTorch's functions say what a GPU of NVIDIA would: as a fixture, `gpu`."""

import pytest
import torch

FIGURES = {"gpu_utilization": 92, "gpu_memory": 71 * 1024.0, "gpu_power": 650.0005, "gpu_temperature": 61}


@pytest.fixture
def gpu(monkeypatch):
    """Return a function that sets the energy that the GPU has used so far, in mJ; None: it does not say that."""
    import pynvml

    used: list[int | None] = [5_000_000]
    answers = {"utilization": 92, "device_memory_used": 71 << 30, "power_draw": 650_000.5, "temperature": 61}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, answer=answer: answer)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "_get_pynvml_handler", lambda device: device)

    def energy(_) -> int:
        if used[-1] is None:
            raise pynvml.NVMLError_NotSupported
        return used[-1]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", energy)
    return used.append
