"""Trials: a training that stops at a share of its steps is measured there, and goes on as if it had never stopped."""

import json
import math
import shutil

import pytest

from babelmill.core import manifest
from conftest import EXPLODING
from helpers.training.training_data import Data, assert_near, assert_same, logged, wait_for_step


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
    record, lines = data.folder / "model/metrics.jsonl", data.metrics()
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [18, 20, 40, 60]
    record.write_text(
        "".join(json.dumps(line) + "\n" for line in lines if (line["step"], line["kind"]) != (18, "validation"))
    )
    assert_same(data, finished)
    again = data.train("trial", 1, "--until", "2/7")  # its record says it
    assert "going on" not in again and figures(data)["step"] == 18 and stopped_at(data)[-1] == 60


def test_its_result_is_bits_per_byte(data):
    data.train("trial", 1, "--until", "1/3")
    (run,) = data.runs
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert logged(lines)[-2:] == [(20, "train"), (20, "validation")]
    about = manifest.read(data.folder / "shards/eng")["figures"]
    tokens = about["tokens"]["validation"] - about["documents"]["validation"]
    found = figures(data)
    for kind in ("masked", "causal"):
        bits = lines[-1][f"loss_{kind}"] / math.log(2) * tokens / about["bytes"]["validation"]
        assert found["kinds"][kind] == pytest.approx(bits, rel=1e-12)
    assert found["bits_per_byte"] == pytest.approx(sum(found["kinds"].values()) / 2, rel=1e-12)
    assert (found["steps"], found["fingerprint"]) == (60, run.name)


def test_on_two_processes(data, finished):
    data.train("trial", 2, "--until", "1/3")
    assert stopped_at(data)[-1] == 20 and figures(data)["bits_per_byte"] > 0
    data.train()
    assert_near(data, finished)


def test_a_run_that_has_passed_the_step_stays_as_it_is(finished, tmp_path):
    """If it was validated there, its record is the result. If not, it is trained up to there once more, beside it."""
    data = Data.at(tmp_path / "data")
    shutil.copytree(finished.folder, data.folder)
    (run,) = data.runs
    before = {path.name: path.read_bytes() for path in run.glob("step-*")}
    assert "step 20: " in data.train("trial", 1, "--until", "1/3")
    (line,) = (each for each in data.metrics() if (each["step"], each["kind"]) == (20, "validation"))
    assert figures(data)["kinds"]["causal"] / figures(data)["kinds"]["masked"] == pytest.approx(
        line["loss_causal"] / line["loss_masked"]
    )
    output = data.train("other", 1, "--until", "2/7")
    assert (
        "has already gone on to step 60, and was not validated after step 18: training up to there once more" in output
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
