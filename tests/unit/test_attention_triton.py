"""The attention kernels for GPUs: run in Triton's interpreter, built for GPUs that are not here, and left out."""

import re

import torch

from babelmill.runtime.processes import Processes
from babelmill.training import attention_kernel
from kernel_scripts import run

ALONE = Processes(rank=0, size=1, local_size=1, device=torch.device("cpu"))


def test_the_kernels_compute_the_formula_and_its_gradients():
    said = run("triton_checks.py", "16", "70", TRITON_INTERPRET="1")
    assert said.count("T 16, ") == said.count("T 70, ") == 2 and "compiled True" in said


def test_the_kernels_are_built_for_gpus_without_atomic_additions(tmp_path):
    said = run("triton_builds.py", TRITON_CACHE_DIR=str(tmp_path))
    assert len(re.findall(r"sm_90 \d+ bytes", said)) == 3 and "sm_80" in said


def test_where_the_kernels_cannot_run_a_warning_says_why(caplog):
    assert attention_kernel.keyed(ALONE, 24, "bf16") is None and attention_kernel.keyed(ALONE, 64, "fp32") is None
    assert not caplog.records
    assert attention_kernel.keyed(ALONE, 64, "bf16") is None  # no GPU
    (record,) = caplog.records
    assert "the kernel of Babelmill cannot be used: " in record.getMessage() and "\n" not in record.getMessage()
