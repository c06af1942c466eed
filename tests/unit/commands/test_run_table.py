"""`babelmill status --runs`: all training runs of a folder, with those of earlier settings."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from babelmill.commands.run_table import NOTE, run_table
from babelmill.config.resolve import Configuration
from babelmill.core.files import read_json, write_json
from babelmill.graph import Graph
from helpers.results import report_results


def listed() -> tuple[list[str], dict[str, list[str]], list[str]]:
    """Return the columns, {run: its other cells}, and the lines below the note."""
    heading, *lines = run_table()
    end = lines.index(NOTE)
    cells = [re.split(r"\s{2,}", line) for line in lines[:end]]
    return heading.split(), {name: found for name, *found in cells}, lines[end + 1 :]


@pytest.fixture
def interrupted(workspace, monkeypatch):
    """A folder in which `eng` is converted, and `deu` was interrupted at step 6 of 400. Returns its checkpoints."""
    monkeypatch.chdir(workspace.path)
    shutil.rmtree("converted/deu")
    (place,) = workspace.path.glob("results/checkpoints/deu-*")
    shutil.rmtree(f"results/train/{place.name}")
    write_json(place / "attempt.json", read_json(place / "attempt.json") | {"steps": 400})
    lines = (place / "metrics.jsonl").read_text().splitlines(keepends=True)
    (place / "metrics.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] <= 6))
    return place


def test_a_run_that_ended_and_one_that_was_interrupted(interrupted):
    columns, found, below = listed()
    assert columns == ["model", "steps", "tokens", "hours", "causal", "masked"] and below == []
    assert found.keys() == {"eng", interrupted.name}
    steps, tokens, hours, *scores = found["eng"]
    assert (steps, hours) == ("8", "< 0.01") and re.fullmatch(r"[\d.]+ k", tokens)
    measured = read_json("results/of/eng/evaluate/evaluation.json")["variants"]["ema"]
    assert scores == [f"{measured[name]['value']:.3f}" for name in ("causal", "masked")]
    assert found[interrupted.name][0] == "6/400" and len(found[interrupted.name]) == 3, "no scores"
    assert [line.split()[0] for line in run_table(["eng"])[:-1]] == ["model", "eng"]


def test_scores_on_suites_stand_beside_each_other_and_the_newest_run_is_last(folder):
    models = {"two": {"languages": ["eng", "deu"], "evaluation": {"suites": ["blimp", "multiblimp"]}}}
    graph = Graph(Configuration([("config.yaml", {"preset": "tiny", "models": models})]))
    for model, suites, day in (("two", {"blimp": ["eng"], "multiblimp": ["eng", "deu"]}, 2), ("eng", {}, 1)):
        report_results.make(graph, model, suites)
        report_results.put(graph.result("convert", model))
        os.utime(graph.result("train", model).record, (86400 * day, 86400 * day))
    columns, found, below = listed()
    assert columns[-4:] == ["causal", "masked", "blimp", "multiblimp"] and below == []
    assert [*found] == ["eng", "two"]
    scores = read_json(graph.result("score", "two", "multiblimp").path / "scores.json")["languages"]
    assert found["two"][-1] == f"{100 * sum(each['headline']['score'] for each in scores.values()) / 2:.1f}"


def test_damaged_results_are_named_and_the_others_are_listed(interrupted):
    record = Path("results/of/eng/evaluate/manifest.json")
    record.write_text(record.read_text().replace('"stage"', '"state"'))
    (interrupted / "attempt.json").write_text("{}")
    _, found, below = listed()
    line = r"not read: /.*/results/evaluate/eng-\w+/manifest.json: was changed after it was written.*"
    assert re.fullmatch(line, below[0])
    assert below[1:] == [f"not read: results/checkpoints/{interrupted.name}: KeyError: 'steps'"]
    (place,) = Path("results/checkpoints").glob("eng-*")
    assert [*found] == [place.name], "its run is in the checkpoints"


def test_a_folder_without_runs_says_so(folder):
    assert run_table() == ["no model has been trained in this folder"]
