"""What a process sets up when it starts."""

import os
import subprocess
import sys

import pytest
import torch

from babelmill.runtime import processes

NAME, OURS = "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"


@pytest.mark.parametrize("cuda", ["13.0", None])
@pytest.mark.parametrize("set_by_user", [{}, {NAME: "backend:native"}, {"PYTORCH_ALLOC_CONF": "backend:native"}])
def test_segments_grow_unless_the_user_chose(cuda, set_by_user, monkeypatch):
    """None: a build for CPUs or for ROCm."""
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(os, "environ", {**set_by_user})
    processes.prepare_gpus()
    assert os.environ == (set_by_user or ({NAME: OURS} if cuda else {}))


def test_pytorch_reads_the_variable_after_the_start():
    """Not already when it is imported, before a process starts."""
    code = "import torch; from babelmill.runtime.processes import Processes; torch.version.cuda = '13.0'"
    code += "; Processes.start(1); print(torch._C._accelerator_getAllocatorSettings())"
    environment = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{OURS}\n"
