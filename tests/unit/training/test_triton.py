"""The kernels for GPUs: run in Triton's interpreter, built for GPUs that are not here, and left out where they cannot run."""

import re

import pytest

from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.runtime.processes import Processes
from babelmill.training.kernels import kernel_trial, pytorch_kernels
from babelmill.training.kernels.install import install_triton
from helpers.kernels.kernel_scripts import run
from helpers.training.tiny_trainer import ALONE

pytestmark = pytest.mark.slow

# Parts of `kernel_checks.py`, their sizes, and how often lines with these words are among what they print.
CHECKS = [
    # Rows of these lengths.
    ("attention", "16 65", {"T 16, ": 6, "T 65, ": 6}),
    pytest.param("attention", "128 129", {"T 128, ": 6, "T 129, ": 6}, marks=pytest.mark.nightly),
    # Blocks of an odd width, of one that is a power of two, and of one of parts.
    ("feed_forward", "77 128 1280", {"in 1 parts, ": 4, "in 5 parts, ": 2}),
    # What is between sub-blocks.
    ("sums", "2 11", {"float32: ": 4, "bfloat16: ": 4}),
    ("edges", "3", {}),
    # All kernels in compiled graphs, as on a GPU, against the plain network.
    ("mixed_step", "32", {"the gradient of a step, ": 1}),
    pytest.param("rounded_step", "32", {"the gradient of a step, ": 1}, marks=pytest.mark.nightly),
    pytest.param("added_step", "32", {"the gradient of a step, ": 1}, marks=pytest.mark.nightly),
]
# Kernels for H100, A100, MI250X, MI300X.
BUILT = [{"sm_90": 17}, pytest.param({"sm_80": 10, "gfx90a": 9, "gfx942": 3}, marks=pytest.mark.nightly)]


@pytest.mark.parametrize(("part", "sizes", "wanted"), CHECKS)
def test_the_kernels_compute_the_formula_and_its_gradients(part, sizes, wanted):
    output = run("kernel_checks.py", part, *sizes.split(), TRITON_INTERPRET="1")
    assert {words: output.count(words) for words in wanted} == wanted


@pytest.mark.parametrize("wanted", BUILT)
def test_the_kernels_are_built_for_gpus_without_spills_or_atomic_additions(tmp_path, wanted):
    output = run("kernel_builds.py", *wanted, TRITON_CACHE_DIR=str(tmp_path))
    assert {gpu: len(re.findall(rf"{gpu} \d+ bytes", output)) for gpu in wanted} == wanted


ATTENTION = "attention .* more time and memory: Babelmill's kernel "
NEEDS, FAILS = "needs train.precision: bf16", "cannot be used: "
FEED_FORWARD = f"feed-forward blocks use PyTorch's operations, which are slower: Babelmill's kernel {FAILS}"
SUMS = f"PyTorch's operations, which are slower: Babelmill's kernel {FAILS}"


@pytest.mark.parametrize(
    ("precision", "shape", "wanted"),
    [
        ("fp32", {}, [ATTENTION + NEEDS]),
        ("bf16", {}, [ATTENTION + FAILS, FEED_FORWARD, f"layer mixing uses {SUMS}"]),
        ("bf16", {"hidden_size": 48}, [ATTENTION + NEEDS, FEED_FORWARD, f"layer mixing uses {SUMS}"]),
        ("bf16", {"layer_mixing": False}, [ATTENTION + FAILS, FEED_FORWARD, f"residual sums use {SUMS}"]),
    ],
)
def test_where_the_kernels_cannot_run_warnings_say_why(caplog, precision, shape, wanted):
    """No GPU is here. The model stays as it is; in fp32, it is said of attention alone."""
    sizes = {"hidden_size": 128, "intermediate_size": 48, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = GPTBert(GPTBertShape(8, **sizes | shape))
    pytorch_kernels.install(model)
    before = [type(module) for module in model.modules()]
    assert not install_triton(model, ALONE, precision)
    assert [type(module) for module in model.modules()] == before
    for pattern, message in zip(wanted, caplog.messages, strict=True):
        assert re.match(pattern, message) and "\n" not in message


def test_a_kernel_that_is_wrong_is_not_used(caplog):
    for found, right in ((0.001, True), (0.5, False), (float("nan"), False)):
        assert kernel_trial.passed(ALONE, lambda found=found: found, "something else happens") == right
    assert ["off by" in message for message in caplog.messages] == [True, True]


def test_a_kernel_that_another_process_cannot_use_is_not_used(monkeypatch, caplog):
    monkeypatch.setattr(Processes, "any", lambda self, mine: True)
    assert not kernel_trial.passed(ALONE, lambda: 0.0, "something else happens") and not caplog.messages
