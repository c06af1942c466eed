"""What the driver says of the GPUs: NVIDIA's own Python package on a small library in place of theirs."""

import pytest
import torch

from babelmill.runtime.processes import Processes
from babelmill.runtime.watching import GpuFigures, gpus_of
from helpers.programs.prepared import run_python
from helpers.training.nvml import FIGURES, UUIDS

pytestmark = pytest.mark.slow


def test_figures_and_energy_of_two_gpus(driver):
    """One of them is a part of a GPU, by its other kind of UUID."""
    gpus = GpuFigures(UUIDS)
    assert gpus.joules() == 0 and gpus.figures == FIGURES
    driver(energy=[5_002_400, 7_001_000])
    assert gpus.joules() == 3, "3.4 J"
    driver(energy=[5_002_400, 7_001_600])
    assert gpus.joules() == 1, "what was left counts"
    driver(energy=[100, 100])
    assert gpus.joules() == 0, "the driver was loaded again"
    driver(energy=[4100, 100])
    assert gpus.joules() == 4
    (one := GpuFigures(UUIDS[:1])).joules()
    assert one.figures["gpu_utilization"] == 90


@pytest.mark.parametrize("code", [3, 4], ids=["not supported", "no permission"])
def test_what_a_driver_does_not_say_is_left_out(driver, code):
    driver(result=code)
    gpus = GpuFigures(UUIDS)
    assert gpus.joules() is None and set(gpus.figures) == {"gpu_power", "gpu_temperature"}


def test_where_there_is_no_driver(driver):
    """None of its GPUs, and in a process without the library; on a CPU nobody asks."""
    unknown = GpuFigures(["cccccccc-0000-0000-0000-000000000000"])
    code = (
        "from babelmill.runtime.watching import GpuFigures\n"
        f"gpus = GpuFigures({UUIDS})\n"
        "print(gpus.joules(), gpus.figures)"
    )
    done = run_python("-c", code)
    assert done.stdout == "None {}\n" and done.stderr == ""
    assert unknown.joules() is None and unknown.figures == {}
    assert gpus_of(Processes(0, 1, 1, torch.device("cpu"))) == []
