"""The record of a run and the picture of its losses."""

import pytest
from PIL import Image

from babelmill.release.card.training_history import PICTURE, draw, losses, read_record


@pytest.fixture
def record(finished):
    """The lines of a run of more than four passes, with a line of each step and three validations."""
    return read_record(finished.folder / "model/metrics.jsonl")


def test_losses_keep_kinds_and_weights_apart(record):
    """Over tokens; a validation lies where the training had come to."""
    found, tokens = losses(record), {line["step"]: line["tokens"] for line in record if line["kind"] == "train"}
    validations = [line for line in record if line["kind"] == "validation"]
    for kind in ("masked", "causal"):
        for curve, prefix in (("last", ""), ("averaged", "ema_")):
            points = found[(found["kind"] == kind) & (found["curve"] == curve)][["tokens", "loss"]]
            expected = [(tokens[line["step"]], line[f"{prefix}loss_{kind}"]) for line in validations]
            assert list(points.itertuples(index=False, name=None)) == expected
    assert found["tokens"].max() == tokens[60]


def test_unknown_losses_and_equal_averages_are_left_out(tmp_path):
    validation = {"kind": "validation", "loss": 3.0, "loss_causal": 3.0, "ema_loss": 3.0, "ema_loss_causal": 3.0}
    train = {"kind": "train", "tokens": 100, "loss": None, "loss_causal": None, "z_loss": 1.0}
    found = losses([validation, train, validation, train | {"tokens": 200, "loss_causal": 2.0}])
    expected = [("causal", "last", 0, 3.0), ("causal", "last", 100, 3.0), ("causal", "training", 200, 2.0)]
    assert list(found.itertuples(index=False, name=None)) == expected
    assert len(losses([])) == 0
    (tmp_path / "metrics.jsonl").write_text("")
    draw(tmp_path, "eng")
    assert not (tmp_path / PICTURE).exists()


def test_the_picture_of_a_run(finished, tmp_path):
    """With half a line at the end of its record, as after a kill."""
    text = (finished.folder / "model/metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text("".join(text.splitlines(keepends=True)[:45]) + '{"step": 4')
    draw(tmp_path, "eng")
    with Image.open(tmp_path / PICTURE) as image:
        image.verify()
        assert image.format == "PNG" and image.size == (1320, 480), "a panel of each kind of rows"
