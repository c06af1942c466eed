"""The kernels of feed-forward blocks for GPUs: run in Triton's interpreter, and left out where they cannot run.

`test_attention_triton.py` builds them.
"""

import pytest
import torch

from babelmill.model.gpt_bert import GEGLU, GPTBert, GPTBertShape
from babelmill.runtime.processes import Processes
from babelmill.training.kernels.install import install_feed_forward
from helpers.kernels.kernel_scripts import run

ALONE = Processes(rank=0, size=1, local_size=1, device=torch.device("cpu"))


def test_the_kernels_compute_the_formula_and_its_gradient():
    """For an odd width, one that is a power of two, and one of parts."""
    output = run("kernel_checks.py", "feed_forward", "77", "128", "1280", TRITON_INTERPRET="1")
    assert output.count("in 1 parts, ") == 4 and output.count("in 5 parts, ") == 2


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_where_the_kernels_cannot_run_a_warning_says_why(caplog, precision):
    model = GPTBert(GPTBertShape(60, 32, 48, 2, 1))
    assert not install_feed_forward(model, ALONE, precision)  # no GPU
    assert [type(module) for module in model.modules()].count(GEGLU) == 1
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (precision == "bf16")
    assert all("which are slower: Babelmill's kernel cannot be used: " in message for message in said)
