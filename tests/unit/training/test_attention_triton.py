"""The attention kernels for GPUs: run in Triton's interpreter, built for GPUs that are not here, and left out."""

import re

import torch

from babelmill.model.gpt_bert import Attention, GPTBert, GPTBertShape
from babelmill.runtime.processes import Processes
from babelmill.training.kernels.install import install_attention
from helpers.kernels.kernel_scripts import run

ALONE = Processes(rank=0, size=1, local_size=1, device=torch.device("cpu"))
BUILT = {"sm_80": 10, "sm_90": 17, "gfx90a": 9, "gfx942": 3}  # all kernels for A100, H100, MI250X, MI300X


def test_the_kernels_compute_the_formula_and_its_gradients():
    output = run("kernel_checks.py", "attention", "16", "128", "129", TRITON_INTERPRET="1")
    assert all(output.count(f"T {length}, ") == 6 for length in (16, 128, 129))


def test_the_kernels_are_built_for_gpus_without_atomic_additions(tmp_path):
    output = run("kernel_builds.py", TRITON_CACHE_DIR=str(tmp_path))
    assert all(len(re.findall(rf"{gpu} \d+ bytes", output)) == n for gpu, n in BUILT.items())


def test_where_the_kernels_cannot_run_a_warning_says_why(caplog):
    def remains(width: int, precision: str) -> bool:
        model = GPTBert(GPTBertShape(8, 2 * width, 8, 2, 1))
        assert not install_attention(model, ALONE, precision)
        return type(model.transformer.attention_layers[0]) is Attention

    for width, precision in ((24, "bf16"), (64, "fp32")):
        assert remains(width, precision)
        assert "takes more time and memory: Babelmill's kernel needs train.precision: bf16" in caplog.messages.pop()
    caplog.clear()
    assert remains(64, "bf16")  # no GPU
    (record,) = caplog.records
    assert "Babelmill's kernel cannot be used: " in record.getMessage() and "\n" not in record.getMessage()
