"""The training stage with a model that is spread over processes: interrupted, killed, continued on others.

Without `nightly`, a Llama changes its number of processes, and adapters on a EuroBERT are killed; `nightly` does all to all.
"""

import functools
import random
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForMaskedLM

from babelmill.core import manifest
from helpers.stages import any_settings
from helpers.training.training_data import VOCABULARY, Data, wait_for_step, wait_for_writing

pytestmark = pytest.mark.slow

STEPS = 16
SIZES = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 96}
# By kind: the objective, and what adapters need. There are as many of them as weights, so that writing takes a while.
KINDS = {
    "llama": ("causal", {}),
    "eurobert": ("masked", {}),
    "eurobert, adapters": ("masked", {"lora_rank": 32, "learning_rate": 0.02}),
}
OTHERS = [pytest.param(kind, marks=pytest.mark.nightly) for kind in ("eurobert", "eurobert, adapters")]


def expected(kind: str) -> list[tuple[int, str]]:
    """The lines of a record; what goes on from another model is validated before it begins."""
    validated = [0, 8, STEPS] if "adapters" in kind else [8, STEPS]
    return sorted([(step, "train") for step in range(1, STEPS + 1)] + [(step, "validation") for step in validated])


def write_base(folder: Path, kind: str) -> None:
    """Write a trained model as the stage `base_model` does: one with random weights."""
    sizes = SIZES | {"max_position_embeddings": 32, "vocab_size": VOCABULARY.size} | VOCABULARY.ids
    torch.manual_seed(1)
    AutoModelForMaskedLM.from_config(AutoConfig.for_model(kind, **sizes)).save_pretrained(folder)
    files = ["config.json", "model.safetensors"]
    manifest.write(folder, any_settings("base_model"), files, figures={"folder": "theirs"})


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory) -> Callable[[str], Data]:
    """Runs of two processes that nothing disturbed, one of each kind that is asked for."""

    @functools.cache
    def run(kind: str) -> Data:
        data, (objective, more) = Data(tmp_path_factory.mktemp("sharded") / "finished"), KINDS[kind]
        model = {"config": SIZES | {"model_type": kind}, "max_position_embeddings": 32}
        if more:
            write_base(data.folder / "base", kind.partition(",")[0])
            model = {"source": "./theirs"}
        # Of 160 tokens: micro-batches of 96 and 64, so that two processes have one each, and a third one none.
        train = {"learning_rate": 0.004, "eps": 1e-6, "micro_batch_tokens": 96, "max_steps": STEPS} | more
        train |= {"optimizer": "lamb" if kind == "llama" else "adamw", "objective": objective}
        data.settings({"architecture": "transformers", **model}, **train)
        data.run_settings(checkpoint_every=1, validate_every=8)
        data.train("model", 2)
        lines = [line["loss"] for line in data.metrics() if line["kind"] == "validation"]
        assert lines[-1] < lines[0]
        return data

    return run


@pytest.fixture
def finished(finished_runs, kind) -> Data:
    """The run of this kind that nothing disturbed."""
    return finished_runs(kind)


@pytest.fixture
def data(finished, tmp_path) -> Data:
    """The same data and settings in a folder of its own, nothing trained yet."""
    return Data.at(tmp_path / "data", finished)


@pytest.mark.parametrize("kind", ["llama", *OTHERS])
def test_the_number_of_processes_changes_along_a_run(data, finished, kind):
    """Three are asked to leave; of two, one dies while a checkpoint is gathered; one goes on alone."""
    assert "dropout" not in data.interrupt(5, processes=3), "there is none"
    process = data.start("model", 2, hold="save +2")
    wait_for_writing(data, process, 8)
    (second,) = (w for w in psutil.Process(process.pid).children() if w.environ()["RANK"] == "1")
    second.kill()
    output = process.communicate()[1]
    assert process.returncode == 1 and "lost contact with another process of this run" in output, output
    assert "Traceback" not in output and output.count("error: ") == 1, output
    assert "going on after step" in data.train()
    for name in ("model.safetensors", "ema.safetensors"):
        ours, theirs = (load_file(folder / "model" / name) for folder in (data.folder, finished.folder))
        assert list(ours) == list(theirs)
        for key, value in theirs.items():
            torch.testing.assert_close(ours[key], value, atol=2e-5, rtol=2e-5, msg=key)
    assert sorted((line["step"], line["kind"]) for line in data.metrics()) == expected(kind)


MANY = [pytest.param(1, 12, kind, marks=pytest.mark.nightly) for kind in KINDS]


@pytest.mark.parametrize(("seed", "kills", "kind"), [(0, 2, "eurobert, adapters"), *MANY])
def test_killed_at_random_moments(data, finished, seed, kills, kind):
    """Every other time while a checkpoint is gathered. On as many processes, the weights are the same to the last bit."""
    choose = random.Random(seed)
    for kill in range(kills):
        if kill % 2:
            process = data.start("model", 2, hold=f"vote {STEPS - 1}")
            wait_for_step(data, (STEPS - 5) * kill // kills + choose.randrange(2), process)
            time.sleep(choose.random() * 0.05)
        else:
            process = data.start("model", 2, hold="save +1")
            wait_for_writing(data, process)
        process.kill()
        process.communicate()
    data.train("model", 2)
    assert data.weights("model") == finished.weights("model")
    assert sorted((line["step"], line["kind"]) for line in data.metrics("model")) == expected(kind)
