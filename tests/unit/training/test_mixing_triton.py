"""The kernels between sub-blocks for GPUs: run in Triton's interpreter, and left out.

`test_attention_triton.py` builds them.
"""

import re

import pytest
import torch

from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.runtime.processes import Processes
from babelmill.training.kernels import kernel_trial, pytorch_kernels
from babelmill.training.kernels.install import install_sums
from babelmill.training.kernels.pytorch_kernels import LayerMixingByHand
from helpers.kernels.kernel_scripts import run

ALONE = Processes(rank=0, size=1, local_size=1, device=torch.device("cpu"))


def test_the_kernels_compute_the_formula_and_its_gradients():
    output = run("kernel_checks.py", "sums", "2", "11", TRITON_INTERPRET="1")
    assert output.count("float32: ") == output.count("bfloat16: ") == 4


@pytest.mark.parametrize(("precision", "layer_mixing"), [("bf16", True), ("fp32", True), ("bf16", False)])
def test_where_the_kernels_cannot_run_a_warning_says_why(caplog, precision, layer_mixing):
    model = GPTBert(GPTBertShape(60, 32, 48, 2, 1, layer_mixing=layer_mixing))
    pytorch_kernels.install(model, geglu=False)
    assert not install_sums(model, ALONE, precision)  # no GPU
    assert [type(module) for module in model.modules()].count(LayerMixingByHand) == layer_mixing
    if precision == "bf16":
        (record,) = caplog.records
        what = "layer mixing uses" if layer_mixing else "residual sums use"
        assert re.match(f"{what} PyTorch's.*: Babelmill's kernel cannot be used: ", record.getMessage())
    else:
        assert not caplog.records


def test_a_kernel_that_is_wrong_is_not_used(caplog):
    for found, right in ((0.001, True), (0.5, False), (float("nan"), False)):
        assert kernel_trial.passed(ALONE, lambda found=found: found, "something else happens") == right
    assert ["off by" in record.getMessage() for record in caplog.records] == [True, True]


def test_a_kernel_that_another_process_cannot_use_is_not_used(monkeypatch, caplog):
    monkeypatch.setattr(Processes, "any", lambda self, mine: True)
    assert not kernel_trial.passed(ALONE, lambda: 0.0, "something else happens") and not caplog.records
