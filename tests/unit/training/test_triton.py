"""The kernels for GPUs: run in Triton's interpreter, built for GPUs that are not here, and left out where they cannot run."""

import os
import re
import subprocess
import sys

import pytest

from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.runtime.processes import Processes
from babelmill.training.kernels import dropout, install
from babelmill.training.kernels.dropout import KeyedAttention, Keys
from babelmill.training.kernels.install import use_kernels
from helpers import SCRIPTS
from helpers.training.tiny_trainer import ALONE

pytestmark = pytest.mark.slow

# Parts of `kernel_checks.py`, their sizes, and how often lines with these words are among what they print.
CHECKS = [
    # Rows of these lengths.
    ("formula", "16 65", {"T 16, ": 4, "T 65, ": 4}),
    pytest.param("formula", "128 129", {"T 128, ": 4, "T 129, ": 4}, marks=pytest.mark.nightly),
    # Sums of so many layers.
    ("sums", "5", {"float32: ": 2, "bfloat16: ": 2}),
    # Feed-forward blocks of an odd width, of one that is a power of two, and of one of parts.
    ("feed_forward", "77 128 1280", {"in 1 parts, ": 4, "in 5 parts, ": 2}),
    # The small model that is tried before training.
    ("trial", "20", {"trials of 20 tokens: ": 1}),
    # All kernels in compiled graphs, as on a GPU, against the plain network.
    ("mixed_step", "32", {"the gradient of a step, ": 1}),
    pytest.param("rounded_step", "32", {"the gradient of a step, ": 1}, marks=pytest.mark.nightly),
    pytest.param("added_step", "32", {"the gradient of a step, ": 1}, marks=pytest.mark.nightly),
]
# Kernels for H100, A100, MI250X, MI300X.
BUILT = [{"sm_90": 15}, pytest.param({"sm_80": 10, "gfx90a": 9, "gfx942": 3}, marks=pytest.mark.nightly)]


def run(script: str, *arguments: str, **variables: str) -> str:
    """Run a script in a process that has not imported Triton before; return what it prints."""
    command = [sys.executable, SCRIPTS / script, *arguments]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("part", "sizes", "wanted"), CHECKS)
def test_the_kernels_compute_the_formula_and_its_gradients(part, sizes, wanted):
    output = run("kernel_checks.py", part, *sizes.split(), TRITON_INTERPRET="1")
    assert {words: output.count(words) for words in wanted} == wanted


@pytest.mark.parametrize("wanted", BUILT)
def test_the_kernels_are_built_for_gpus_without_spills_or_atomic_additions(tmp_path, wanted):
    output = run("kernel_builds.py", *wanted, TRITON_CACHE_DIR=str(tmp_path))
    assert {gpu: len(re.findall(rf"{gpu} \d+ bytes", output)) for gpu in wanted} == wanted


ATTENTION = "attention .* more time and memory: Babelmill's kernel needs train.precision: bf16"
FAILS = "training is slower, since Babelmill's kernels cannot be used: "


@pytest.mark.parametrize(
    ("precision", "width", "wanted"),
    [("fp32", 128, [ATTENTION]), ("bf16", 128, [FAILS]), ("bf16", 48, [ATTENTION, FAILS])],
)
def test_where_the_kernels_cannot_run_warnings_say_why(caplog, precision, width, wanted):
    """No GPU is here. The model stays as it is."""
    model = GPTBert(GPTBertShape(8, width, 48, 2, 1))
    dropout.install(model, Keys(0, ALONE.device), KeyedAttention)
    before = [type(module) for module in model.modules()]
    assert not use_kernels(model, ALONE, precision)
    assert [type(module) for module in model.modules()] == before
    for pattern, message in zip(wanted, caplog.messages, strict=True):
        assert re.match(pattern, message) and "\n" not in message


@pytest.mark.parametrize(
    ("found", "others_fail", "used"),
    [(0.01, False, True), (0.5, False, False), (float("nan"), False, False), (0.01, True, False)],
)
def test_kernels_that_are_wrong_here_or_on_another_process_are_not_used(monkeypatch, caplog, found, others_fail, used):
    put, differences = [], iter([0.0, found])
    monkeypatch.setattr(install, "difference", lambda *_: next(differences))
    monkeypatch.setattr(install, "put_kernels", lambda model, attends: put.append(attends))
    monkeypatch.setattr(Processes, "any", lambda self, mine: mine or others_fail)
    assert use_kernels(GPTBert(GPTBertShape(8, 128, 48, 2, 1)), ALONE, "bf16") == used and put == [True] * used
    assert ["off by" in message for message in caplog.messages] == [True] * (not used and not others_fail)
