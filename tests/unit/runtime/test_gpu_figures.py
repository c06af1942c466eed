"""What the driver says of the GPUs: NVIDIA's own Python package on a small library in place of theirs."""

import pytest
import torch

from babelmill.runtime.processes import Processes
from babelmill.runtime.progress import GpuFigures, gpus_of
from helpers.programs.prepared import run_python
from helpers.training.nvml import FIGURES, UUIDS, answered

pytestmark = pytest.mark.slow


def test_figures_and_energy_of_two_gpus(driver):
    """One of them is a part of a GPU, by its other kind of UUID."""
    gpus = answered(GpuFigures(UUIDS))
    gpus.PATIENCE = 60.0
    assert gpus.figures == FIGURES
    assert gpus.joules() == 0
    driver(energy=[5_002_400, 7_001_000])
    assert gpus.joules() == 3, "3.4 J"
    driver(energy=[5_002_400, 7_001_600])
    assert gpus.joules() == 1, "what was left counts"
    driver(energy=[100, 100])
    assert gpus.joules() == 0, "the driver was loaded again"
    driver(energy=[4100, 100])
    assert gpus.joules() == 4
    assert answered(GpuFigures(UUIDS[:1])).figures["gpu_utilization"] == 90


@pytest.mark.parametrize("code", [3, 4], ids=["not supported", "no permission"])
def test_what_a_driver_does_not_say_is_left_out(driver, code):
    driver(result=code)
    gpus = answered(GpuFigures(UUIDS))
    assert set(gpus.figures) == {"gpu_power", "gpu_temperature"} and gpus.joules() is None


def test_a_driver_that_hangs_is_not_waited_for(driver):
    gpus = answered(GpuFigures(UUIDS))
    driver(sleep=3600)
    assert gpus.joules() == 0  # the first to notice waits a moment
    gpus.PATIENCE = 600.0  # none after it
    assert [gpus.joules() for _ in range(100)] == [0] * 100 and gpus.figures == FIGURES


def test_where_there_is_no_driver(driver):
    """None of its GPUs, and in a process without the library; on a CPU nobody asks."""
    unknown = GpuFigures(["cccccccc-0000-0000-0000-000000000000"])
    code = (
        "import threading; from babelmill.runtime.progress import GpuFigures\n"
        f"gpus = GpuFigures({UUIDS})\n"
        "[thread.join() for thread in threading.enumerate() if thread.daemon]\n"
        "print(gpus.figures, gpus.joules())"
    )
    done = run_python("-c", code)
    assert done.stdout == "{} None\n" and done.stderr == ""
    assert unknown.figures == {} and unknown.joules() is None
    assert gpus_of(Processes(0, 1, 1, torch.device("cpu"))) == []
