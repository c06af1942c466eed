"""Build a stand-in for NVIDIA's library, `data/nvml_stub.c`, under the name that their Python package loads."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

from helpers import DATA

UUIDS = ["aaaaaaaa-0000-0000-0000-000000000000", "bbbbbbbb-0000-0000-0000-000000000000"]  # as PyTorch has them
FIGURES = {"gpu_utilization": 92.5, "gpu_memory": 71 * 1024, "gpu_power": 1300.001, "gpu_temperature": 61}
ENERGY = [5_000_000, 7_000_000]
NAME = "libnvidia-ml.so.1"


def build(folder: Path) -> None:
    """Compile it into a folder."""
    folder.mkdir()
    stub = DATA / "nvml_stub.c"
    subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{NAME}", "-o", folder / NAME, stub], check=True)


def load(folder: Path) -> Callable[..., None]:
    """Load it by the name that the package asks for. Return a function that sets its answers."""
    library = ctypes.CDLL(str(folder / NAME), ctypes.RTLD_GLOBAL)

    def answers(result: int = 0, energy: list[int] = ENERGY) -> None:
        ctypes.c_int.in_dll(library, "result").value = result
        (ctypes.c_ulonglong * 2).in_dll(library, "energy")[:] = energy

    return answers
