"""The training stage with a model that is spread over processes: interrupted, killed, continued on others."""

import random
import shutil
import signal
import subprocess
import time

import psutil
import pytest
import torch
from safetensors.torch import load_file

from training_data import Data, wait_for_step

STEPS = 24
LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2}
MODEL = {"architecture": "transformers", "config": LLAMA | {"intermediate_size": 96}, "max_position_embeddings": 32}
EXPECTED = sorted([(step, "train") for step in range(1, STEPS + 1)] + [(step, "validation") for step in (12, STEPS)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Data:
    """A run of two processes that nothing disturbed."""
    data = Data(tmp_path_factory.mktemp("sharded") / "finished")
    # Of 160 tokens: micro-batches of 96 and 64, so that two processes have one each, and a third one none.
    train = {"objective": "causal", "optimizer": "adamw", "learning_rate": 0.004, "eps": 1e-6, "micro_batch_tokens": 96}
    data.settings(MODEL, max_steps=STEPS, **train)
    data.run_settings(checkpoint_every=1, keep=3, validate_every=12)
    data.train("model", 2)
    return data


@pytest.fixture
def data(finished, tmp_path) -> Data:
    """The same data and settings in a folder of its own, nothing trained yet."""
    copy = object.__new__(Data)
    copy.folder, copy.languages = tmp_path / "data", finished.languages
    shutil.copytree(finished.folder, copy.folder, ignore=shutil.ignore_patterns("checkpoints", "model*"))
    return copy


def wait_for_writing(data: Data, process: subprocess.Popen) -> None:
    """Wait until a checkpoint is being written."""
    while process.poll() is None:
        if any(path.stat().st_size for run in data.runs for path in run.glob(".step-*.safetensors.*")):
            return
    raise AssertionError(process.communicate()[1])


def test_the_number_of_processes_changes_along_a_run(data, finished):
    """Three are asked to leave; of two, one dies while a checkpoint is gathered; one goes on alone."""
    process = data.start("model", 3)
    wait_for_step(data, 5, process)
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]
    assert process.returncode == 75 and "Traceback" not in said, said
    process = data.start("model", 2)
    wait_for_writing(data, process)
    (second,) = (w for w in psutil.Process(process.pid).children() if w.environ()["RANK"] == "1")
    second.kill()
    said = process.communicate()[1]
    assert process.returncode == 1 and "lost contact with another process of this run" in said, said
    assert "Traceback" not in said and said.count("error: ") == 1, said
    assert "going on after step" in data.train()
    for name in ("model.safetensors", "ema.safetensors"):
        ours, theirs = (load_file(folder / "model" / name) for folder in (data.folder, finished.folder))
        assert list(ours) == list(theirs)
        for key, value in theirs.items():
            torch.testing.assert_close(ours[key], value, atol=2e-5, rtol=2e-5, msg=key)
    assert sorted((line["step"], line["kind"]) for line in data.metrics()) == EXPECTED


@pytest.mark.parametrize(("seed", "kills"), [(0, 2), pytest.param(1, 12, marks=pytest.mark.slow)])
def test_killed_at_random_moments(data, finished, seed, kills):
    """Every other time while a checkpoint is gathered. On as many processes, the weights are the same to the last bit."""
    choose = random.Random(seed)
    for kill in range(kills):
        process = data.start("model", 2)
        if kill % 2:
            time.sleep(choose.random() * 0.05)
            wait_for_step(data, (STEPS - 5) * kill // kills + choose.randrange(2), process)
        else:
            wait_for_writing(data, process)
        process.kill()
        process.communicate()
    data.train("model", 2)
    assert data.weights("model") == finished.weights("model")
    assert sorted((line["step"], line["kind"]) for line in data.metrics("model")) == EXPECTED
