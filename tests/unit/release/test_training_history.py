"""The history of a run: lists of losses and a picture, while it trains and in the folder of the model."""

import json
import time
from functools import partial

import pytest
from PIL import Image

from babelmill.core.files import read_json
from babelmill.release.card import training_history
from babelmill.release.card.training_history import history, read_record, training_curves
from babelmill.runtime.watching import History

KINDS = ("masked", "causal")


@pytest.fixture
def record(finished):
    """The lines of a run of more than four passes, with a line of each step and three validations."""
    return read_record(finished.folder / "model/metrics.jsonl")


def test_lists_by_pass_and_by_validation(record):
    """Against what one gets by hand from the lines."""
    found = history(record)
    train = [line for line in record if line["kind"] == "train"]
    validations = [line for line in record if line["kind"] == "validation"]
    assert found["kinds"] == list(KINDS) and found["unit"] == "nats per target"
    assert (found["step"], found["epoch"]) == (60, train[-1]["epoch"])
    began = [0.0, *(line["epoch"] for line in train)]
    of_pass = {n: [line for line, at in zip(train, began, strict=False) if int(at) + 1 == n] for n in found["epochs"]}
    assert found["epochs"] == list(range(1, int(began[-2]) + 2)) and sum(map(len, of_pass.values())) == 60
    for name, lists in (("loss", found), *((f"loss_{kind}", found[kind]) for kind in KINDS)):
        losses = [line[name] for line in of_pass[1] if line[name] is not None]
        assert min(losses) < lists["train_losses"][0] < max(losses)
        steps = {line["step"]: n for n, lines in of_pass.items() for line in lines}
        last = {steps[line["step"]]: line for line in validations}  # a later one replaces an earlier one
        assert lists["val_losses"] == [last[n][name] if n in last else None for n in found["epochs"]]
        assert lists["ema_val_losses"][-1] == validations[-1][f"ema_{name}"]
        assert lists["gaps"][-1] == abs(lists["train_losses"][-1] - lists["val_losses"][-1])
        by_validation = found["validations"] if name == "loss" else found["validations"][name.removeprefix("loss_")]
        assert by_validation["val_losses"] == [line[name] for line in validations]
        second = [line[name] for line in train if 20 < line["step"] <= 40 and line[name] is not None]
        assert min(second) < by_validation["train_losses"][1] < max(second)
    assert found["validations"]["steps"] == [20, 40, 60]
    assert found["validations"]["epochs"] == [train[i]["epoch"] for i in (19, 39, 59)]


def test_the_curves_keep_kinds_and_weights_apart(record):
    """Over tokens; a validation lies where the training had come to."""
    curves, tokens = (
        training_curves(record),
        {line["step"]: line["tokens"] for line in record if line["kind"] == "train"},
    )
    validations = [line for line in record if line["kind"] == "validation"]
    for kind in KINDS:
        for name, prefix in (("raw", ""), ("averaged", "ema_")):
            found = curves["kinds"][kind][name]
            assert found == [(tokens[line["step"]], line[f"{prefix}loss_{kind}"]) for line in validations]
    assert curves["kinds"]["masked"]["raw"] != curves["kinds"]["causal"]["raw"]
    assert (curves["steps"], curves["tokens"]) == (60, tokens[60])
    assert (
        [at for at, _ in curves["learning_rate"]] == [at for at, _ in curves["sequence_length"]] == [*tokens.values()]
    )


def test_means_weigh_by_tokens_and_leave_out_what_is_not_finite():
    lines = [
        {"step": 1, "kind": "train", "tokens": 100, "epoch": 0.5, "loss": 4.0, "loss_causal": 4.0},
        {"step": 2, "kind": "train", "tokens": 400, "epoch": 1.001, "loss": 2.0, "loss_causal": 2.0},
        {"step": 3, "kind": "train", "tokens": 900, "epoch": 1.5, "loss": None, "loss_causal": None},
        {"step": 3, "kind": "validation", "loss": 3.0, "loss_causal": 3.0, "ema_loss": 3.0, "ema_loss_causal": 3.0},
    ]
    found = history([{"step": 0, **lines[3] | {"step": 0}}, *lines])
    assert found["epochs"] == [1, 2] and found["train_losses"] == [2.5, None]
    assert found["val_losses"] == [None, 3.0] and found["gaps"] == [None, None]
    assert found["validations"]["steps"] == [0, 3] and found["validations"]["train_losses"] == [None, 2.5]
    assert "ema_val_losses" not in found, "there is no average"
    assert history([])["train_losses"] == []


def test_a_run_leaves_its_history_beside_its_record(finished):
    assert read_json(finished.runs[0] / training_history.JSON) == history(
        read_record(finished.runs[0] / "metrics.jsonl")
    )


def test_while_a_run_goes_on(finished, tmp_path, monkeypatch, record, caplog):
    """With half a line at the end of its record; both files are the same whenever they are made."""
    monkeypatch.setattr(History, "EVERY", 0.0)
    text, path = (finished.folder / "model/metrics.jsonl").read_text(), tmp_path / "metrics.jsonl"
    path.write_text("".join(text.splitlines(keepends=True)[:45]) + '{"step": 4')
    going_on = History(partial(training_history.update, tmp_path, "eng"))
    going_on.update()
    while not (tmp_path / "training_history.png").exists():
        time.sleep(0.05)
    assert json.loads((tmp_path / "training_history.json").read_text())["step"] < record[-1]["step"]
    path.write_text(text)
    going_on.update()
    going_on.close()  # not before the newest is there
    assert json.loads((tmp_path / "training_history.json").read_text()) == history(record)
    assert "no training history" not in caplog.text
    with Image.open(tmp_path / "training_history.png") as image:
        image.verify()
        assert image.format == "PNG" and image.size == (1320, 660)
    again = tmp_path / "again"
    assert training_history.write(again, record, "eng") == ["training_history.json", "training_history.png"]
    for name in ("training_history.json", "training_history.png"):
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_what_cannot_be_written_does_not_stop_a_run(tmp_path, caplog):
    broken = History(partial(training_history.update, tmp_path / "gone", "eng"))
    broken.update()
    broken.close()
    assert "no training history: " in caplog.text and "gone" in caplog.text
