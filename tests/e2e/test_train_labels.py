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
    """The largest difference of weights, but for biases of keys: their gradient is rounding, which Adam blows up."""
    ours, theirs = (load_file(data.folder / "model/model.safetensors") for data in (one, other))
    assert ours.keys() == theirs.keys()
    differences = {name: (ours[name] - theirs[name]).abs() for name in ours if not name.endswith("key.bias")}
    for name in [name for name in differences if name.endswith("in_proj_bias")]:
        query, _, value = differences.pop(name).chunk(3)
        differences |= {f"{name} of queries": query, f"{name} of values": value}
    return max(float(difference.max()) for difference in differences.values())


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
    """Whole micro-batches are dealt, in which attention drops alike."""
    one, several = (LabelledData.at(tmp_path / name, whole) for name in ("one", "several"))
    for data in (one, several):
        data.settings(micro_batch_tokens=32, optimizer="adamw")
    one.train()
    several.train("model", processes)
    assert difference(one, several) < 1e-5


def test_a_killed_run_goes_on_to_the_same_weights(whole, tmp_path):
    data = LabelledData.at(tmp_path / "killed", whole)
    data.run_settings(checkpoint_every=2)
    process = data.start()
    wait_for_step(data, 5, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "going on after step" in data.train()
    assert data.weights() == whole.weights()
