"""The kernel of layer mixing for GPUs: run in Triton's interpreter, built for GPUs that are not here, and left out."""

import re

import torch

from babelmill.runtime.processes import Processes
from babelmill.training import kernel_trial, mixing_kernel
from kernel_scripts import run

ALONE = Processes(rank=0, size=1, local_size=1, device=torch.device("cpu"))


def test_the_kernel_computes_the_formula_and_its_gradients():
    said = run("mixing_checks.py", "2", "9", "25", TRITON_INTERPRET="1")
    assert said.count("float32: ") == said.count("bfloat16: ") == 3
    assert (
        "not a number: found" in said
        and "identity: equal" in said
        and "the end: kept" in said
        and "again False" in said
        and "again True" in said
    )


def test_the_kernel_is_built_for_gpus_without_spills_or_atomic_additions(tmp_path):
    said = run("mixing_builds.py", TRITON_CACHE_DIR=str(tmp_path))
    assert len(re.findall(r"sm_90 .* 0 bytes of stack", said)) == 3 and "sm_80" in said and said.count("gfx90a: ") == 2


def test_where_the_kernel_cannot_run_a_warning_says_why(caplog):
    assert mixing_kernel.fused(ALONE, "fp32") is mixing_kernel.WeightedSums and not caplog.records
    assert mixing_kernel.fused(ALONE, "bf16") is mixing_kernel.WeightedSums  # no GPU
    (record,) = caplog.records
    assert re.match("layer mixing is PyTorch's.*: the kernel of Babelmill cannot be used: ", record.getMessage())


def test_a_kernel_that_is_wrong_is_not_used(caplog):
    for found, right in ((0.001, True), (0.5, False), (float("nan"), False)):
        assert kernel_trial.passed(ALONE, lambda found=found: found, "something else happens") == right
    assert ["off by" in record.getMessage() for record in caplog.records] == [True, True]


def test_a_kernel_that_another_process_cannot_use_is_not_used(monkeypatch, caplog):
    monkeypatch.setattr(Processes, "any", lambda self, mine: True)
    assert not kernel_trial.passed(ALONE, lambda: 0.0, "something else happens") and not caplog.records
