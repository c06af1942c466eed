"""`babelmill status --runs`: all training runs of a folder, with those of earlier settings."""

import json
import os
import re
import shutil

import pytest

from babelmill.commands.terminal.run_table import NOTE, run_table
from babelmill.core.files import read_json, write_json
from babelmill.stages import STAGES
from conftest import SMALL
from helpers.results import report_results


def listed() -> tuple[list[str], dict[str, list[str]], list[str]]:
    """Return the columns, {run: its other cells}, and the lines below the note."""
    heading, *lines = run_table()
    end = lines.index(NOTE)
    cells = [re.split(r"\s{2,}", line) for line in lines[:end]]
    return heading.split(), {name: found for name, *found in cells}, lines[end + 1 :]


@pytest.fixture
def interrupted(workspace, monkeypatch):
    """A folder in which `eng` is converted, and `deu` was interrupted at step 6 of 400."""
    monkeypatch.chdir(workspace.path)
    for name in ("results/models", "results/exports", "results/evaluations", "converted"):
        shutil.rmtree(workspace.path / name / "deu")
    (place,) = workspace.path.glob("results/checkpoints/deu/*")
    write_json(place / "attempt.json", read_json(place / "attempt.json") | {"steps": 400})
    lines = (place / "metrics.jsonl").read_text().splitlines(keepends=True)
    (place / "metrics.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] <= 6))
    place.rename(place.with_name("dce60fcfd8046cdd"))
    return workspace.path


def test_a_run_that_ended_and_one_that_was_interrupted(interrupted):
    columns, found, below = listed()
    assert columns == ["model", "steps", "tokens", "hours", "causal", "masked"] and below == []
    assert found.keys() == {"eng", "deu dce60fcf"}
    steps, tokens, hours, *scores = found["eng"]
    assert (steps, hours) == ("8", "< 0.01") and re.fullmatch(r"[\d.]+ k", tokens)
    measured = read_json("results/evaluations/eng/evaluation.json")["variants"]["ema"]
    assert scores == [f"{measured[name]['value']:.3f}" for name in ("causal", "masked")]
    assert found["deu dce60fcf"][0] == "6/400" and len(found["deu dce60fcf"]) == 3, "no scores"
    assert [line.split()[0] for line in run_table(["deu"])[:-1]] == ["model", "deu"]


def test_scores_on_suites_stand_beside_each_other_and_the_newest_run_is_last(folder):
    report_results.make(folder, "two", ["eng", "deu"], {"blimp": ["eng"], "multiblimp": ["eng", "deu"]})
    report_results.make(folder, "eng", ["eng"], {}, seed=2)
    for model, day in (("two", 2), ("eng", 1)):
        os.utime(STAGES["train"].record(model, ""), (86400 * day, 86400 * day))
    columns, found, below = listed()
    assert columns[-4:] == ["causal", "masked", "blimp", "multiblimp"] and below == []
    assert [*found] == ["eng", "two"]
    scores = read_json("results/scores/two/multiblimp/scores.json")["languages"]
    assert found["two"][-1] == f"{100 * sum(each['headline']['score'] for each in scores.values()) / 2:.1f}"


def test_damaged_results_are_named_and_the_others_are_listed(interrupted):
    text = STAGES["train"].record("eng", "").read_text()
    STAGES["train"].record("eng", "").write_text(text.replace('"stage"', '"state"'))
    (place,) = interrupted.glob("results/checkpoints/eng/*")
    (interrupted / "results/checkpoints/deu/dce60fcfd8046cdd/attempt.json").write_text("{}")
    _, found, below = listed()
    assert "not read: results/models/eng/manifest.json: was changed after it was written" in below[0]
    assert below[-1] == "not read: results/checkpoints/deu/dce60fcfd8046cdd: KeyError: 'steps'"
    assert [*found] == [f"eng {place.name[:8]}"], "its run is in the checkpoints"


def test_a_folder_without_runs_says_so(folder):
    assert run_table() == ["no model has been trained in this folder"]


def test_a_run_of_other_settings_has_a_line_of_its_own(workspace):
    """After really training again with another seed."""
    (place,) = (workspace.path / "results/checkpoints/eng").glob("*")
    workspace.configure(SMALL | {"models": {"eng": {"train": {"seed": 7}}}})
    workspace.snakemake("results/models/eng/manifest.json")
    lines = workspace.babelmill("status", "--runs").splitlines()
    names = [re.split(r"\s{2,}", line)[0] for line in lines[1 : lines.index(NOTE)]]
    assert sorted(names) == ["deu", "eng", f"eng {place.name[:8]}"] and names[-1] == "eng"
