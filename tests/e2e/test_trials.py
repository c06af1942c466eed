"""Trials: a training that stops at a share of its steps is measured there, and goes on as if it had never stopped."""

import json
import math
import shutil

import pytest

from babelmill.core import manifest
from babelmill.training import trials
from conftest import EXPLODING
from helpers.training.training_data import UNDISTURBED, Data, assert_near, assert_same, read_metrics, wait_for_step

pytestmark = pytest.mark.slow


def figures(data: Data, out: str = "trial") -> dict:
    return manifest.read(data.folder / out)["figures"]


def stopped_at(data: Data) -> list[int]:
    """Return the steps of all checkpoints."""
    return sorted(int(path.stem.removeprefix("step-")) for path in data.folder.glob("checkpoints/*/step-*.json"))


def test_a_training_that_was_stopped_and_killed_is_bit_for_bit_the_same(data, finished):
    """Stopped at 18 of 60 steps, where it would not validate otherwise, and at 40; killed on the way to both."""
    for share, step, killed in (("2/7", 18, 13), ("2/3", 40, 31)):
        process = data.start("trial", 1, "--until", share, hold=f"vote {killed}")
        wait_for_step(data, killed - 1, process)
        process.kill()
        process.communicate()
        assert not (data.folder / "trial/manifest.json").exists()
        data.train("trial", 1, "--until", share)
        assert (figures(data)["step"], stopped_at(data)[-1]) == (step, step)
        (data.folder / "trial/manifest.json").unlink()
    output = data.train()
    assert "going on after step 40" in output
    assert_same(data, finished)
    again = data.train("trial", 1, "--until", "2/7")  # its folder knows it
    assert "going on" not in again and figures(data)["step"] == 18 and stopped_at(data)[-1] == 60


def test_its_result_is_bits_per_byte(data):
    """Of the whole text, as a validation of the record measures it if it is not bounded and hides 15 % of the tokens."""
    data.run_settings(validate_every=20, validation_documents=100)
    data.train("trial", 1, "--until", "1/3")
    (run,) = data.runs
    line = read_metrics(run / "metrics.jsonl")[-1]
    assert (line["step"], line["kind"]) == (20, "validation")
    about = manifest.read(data.folder / "shards/eng")["figures"]
    tokens = about["tokens"]["validation"] - about["documents"]["validation"]
    found = figures(data)
    for kind in ("masked", "causal"):
        bits = line[f"loss_{kind}"] / math.log(2) * tokens / about["bytes"]["validation"]
        assert found["kinds"][kind] == pytest.approx(bits, rel=1e-12)
    assert found["bits_per_byte"] == pytest.approx(sum(found["kinds"].values()) / 2, rel=1e-12)
    assert (found["steps"], found["fingerprint"]) == (60, run.name)


def measured(data: Data, out: str) -> tuple[int, int]:
    """Return the step and the number of targets of a trial."""
    (path,) = (data.folder / "checkpoints" / figures(data, out)["fingerprint"]).glob("trial-*.json")
    return figures(data, out)["step"], json.loads(path.read_text())["targets"]


def test_all_cells_are_measured_on_the_same_text(data, monkeypatch):
    """Whatever their validations measure, how many steps they have, and how many tokens they mask at the end."""
    found = []
    for number, (steps, rate, bound) in enumerate([(60, 0.15, "auto"), (12, 0.4, 64)]):
        data.settings(**UNDISTURBED | {"max_steps": steps, "mask_rate_end": rate})
        data.run_settings(validate_every=0, validation_tokens=bound)
        data.train(f"trial{number}", 1, "--until", "1/3")
        found.append(measured(data, f"trial{number}"))
    assert [step for step, _ in found] == [20, 4]
    assert len({targets for _, targets in found}) == 1
    text = manifest.read(data.folder / "shards/eng")["figures"]["bytes"]["validation"]
    monkeypatch.setattr(trials, "MEASURED_BYTES", text / 4)
    assert trials.share_of_text([data.folder / "shards/eng"]) == 0.25
    assert trials.share_of_text([data.folder / "shards/eng"] * 5) == 0.05


def test_on_two_processes(data, finished):
    data.train("trial", 2, "--until", "1/3")
    assert stopped_at(data)[-1] == 20 and figures(data)["bits_per_byte"] > 0
    data.train()
    assert_near(data, finished)


def test_a_run_that_has_passed_the_step_stays_as_it_is(finished, tmp_path):
    """If it was not measured there, it is trained up to there once more, in a folder of its own."""
    data = Data.at(tmp_path / "data")
    shutil.copytree(finished.folder, data.folder)
    (run,) = data.runs
    before = {path.name: path.read_bytes() for path in run.glob("step-*")}
    output = data.train("other", 1, "--until", "2/7")
    assert (
        "has already gone on to step 60, and was not measured after step 18: training up to there once more" in output
    )
    assert [path.name for path in (data.folder / "other").iterdir()] == ["manifest.json"]
    assert {path.name: path.read_bytes() for path in run.glob("step-*")} == before
    shutil.rmtree(data.folder / "checkpoints")
    data.train("fresh", 1, "--until", "2/7")
    assert figures(data, "fresh")["kinds"] == figures(data, "other")["kinds"]


def test_a_trial_that_is_not_finite_is_a_result(data):
    """The worst one, not a failure: the other cells go on."""
    data.settings(**EXPLODING)
    data.train("trial", 1, "--until", "1/3")
    assert figures(data)["bits_per_byte"] is None and "is not finite" in figures(data)["problem"]


@pytest.mark.parametrize(
    ("steps", "share", "words"),
    [
        (2, "1/3", "error: the training has 2 steps, too few to stop it at 1/3 of them, as sweep: halving does"),
        (60, "4/3", "argument --until: 4/3: expected a share between 0 and 1, such as 1/3"),
    ],
)
def test_mistakes_are_one_line(data, steps, share, words):
    data.settings(max_steps=steps)
    assert words in data.train("trial", 1, "--until", share, code=2 if share == "4/3" else 1)
