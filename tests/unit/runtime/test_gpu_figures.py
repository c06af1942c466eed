"""What the driver says of a GPU, as PyTorch has it."""

import torch

from babelmill.runtime.watching import GpuFigures
from helpers.training.nvml import FIGURES, gpu  # noqa: F401  a fixture

GPU = torch.device("cuda", 0)


def test_figures_and_energy(gpu, monkeypatch):  # noqa: F811
    figures = GpuFigures(GPU)
    gpu(5_003_400)
    assert figures.joules() == 3.4 and figures.figures == FIGURES
    gpu(100)
    assert figures.joules() == 0, "the driver was loaded again"
    gpu(4100)
    assert figures.joules() == 4
    monkeypatch.undo()
    assert figures.joules() is None and figures.figures == {}, "nobody answers"
