"""Training on labels by the real command: any number of processes, kills, and what a frozen encoder leaves."""

import signal

import pytest
from safetensors.torch import load_file

from babelmill.core.files import read_json
from training_data import TRADES, LabelledData, wait_for_step


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> LabelledData:
    """A run that nothing disturbed."""
    data = LabelledData(tmp_path_factory.mktemp("labels"))
    data.train()
    return data


def difference(one: LabelledData, other: LabelledData) -> float:
    """The largest difference of weights."""
    found = (load_file(data.folder / "model/model.safetensors") for data in (one, other))
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def test_what_is_written(whole):
    config = read_json(whole.folder / "model/config.json")
    assert config["auto_class"] == "AutoModelForSequenceClassification" and config["class"].startswith("Bert")
    labels = config["labels"]
    assert sorted(labels["codes"]) == labels["codes"] == sorted(TRADES) and labels["blocks"] == 2
    weights = load_file(whole.folder / "model/model.safetensors")
    assert weights["encoder.classifier.weight"].shape == (6, 32) and "decoder.head.weight" in weights
    last = whole.metrics()[-1]
    assert last["kind"] == "validation" and {"loss_blocks", "loss_classes", "ema_loss"} <= last.keys()
    assert set(last["languages"]) == {"eng", "deu"}


@pytest.mark.parametrize("processes", [2, 3])
def test_any_number_of_processes_gives_the_same_model(whole, tmp_path, processes):
    """Whole micro-batches are dealt. (`eps`: a key's bias has no gradient but rounding, which Adam would blow up.)"""
    one, several = (LabelledData.at(tmp_path / name, whole) for name in ("one", "several"))
    for data in (one, several):
        data.settings(micro_batch_tokens=32, optimizer="adamw", eps=1e-6)
    one.train()
    several.train("model", processes)
    assert difference(one, several) < 1e-6


def test_a_killed_run_goes_on_to_the_same_weights(whole, tmp_path):
    data = LabelledData.at(tmp_path / "killed", whole)
    data.run_settings(checkpoint_every=2)
    process = data.start()
    wait_for_step(data, 5, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "going on after step" in data.train()
    assert data.weights() == whole.weights()
