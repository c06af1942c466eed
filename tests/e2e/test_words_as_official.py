"""Reading times and age of acquisition, as the challenge's own code computes them (tests/data/official/README.md)."""

import csv
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import PreTrainedTokenizerFast

from babelmill.cli import main
from babelmill.core.files import UserError, read_json, write_json
from babelmill.suites.acquisition import summary, tokens_in_a_sentence
from babelmill.suites.items import MONTHS
from helpers import DATA
from helpers.models import seeded
from helpers.results.fields import undocumented
from helpers.suite_files import score_suite

pytestmark = pytest.mark.slow

OFFICIAL = DATA / "official"
NUMBERS = json.loads((OFFICIAL / "numbers.json").read_text())
CONFIG = {"evaluation_data": str(OFFICIAL / "evaluation_data")}
CASES = [("gpt_bert", "causal", "causal"), ("gpt_bert", "mlm", "masked"), ("gpt2", "causal", "causal")]
AOA = OFFICIAL / "evaluation_data/full_eval/aoa"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder, makers = tmp_path_factory.mktemp("models"), {"gpt_bert": seeded.gpt_bert, "gpt2": seeded.gpt2}
    return {name: seeded.with_snapshots(folder / name, make, (1, 2, 3)) for name, make in makers.items()}


def scored(folder, name: str, out, *methods: str):
    """The rows of items.parquet and scores.json."""
    score_suite(folder, CONFIG, name, out, *methods)
    assert not undocumented(out / "scores.json", "scores.json of a suite")
    return pq.read_table(out / "items.parquet"), read_json(out / "scores.json")


@pytest.mark.parametrize(("kind", "backend", "method"), CASES)
def test_reading_times_are_explained_as_by_the_official_code(kind, backend, method, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows, about = scored(models[kind], "reading", tmp_path / "out", method)
    expected = NUMBERS["april"][f"{kind} {backend}"]["reading"]
    for column, key in ((method, "pred"), (f"{method}_prev", "prev_pred")):
        of_official = pytest.approx(np.array(expected[key], float), abs=1e-4, nan_ok=True)
        assert rows[column].to_numpy().astype(float) == of_official
    assert rows["item_id"].to_pylist() == list(range(len(rows)))
    entry = about["languages"]["eng"]["methods"][method]
    for name in ("rt", "spr"):
        found = entry["by_paradigm"][name]
        assert found["score"] == pytest.approx(expected["shares"][name], abs=1e-6)
        low, high = found["interval"]
        assert 0 <= low <= found["score"] <= high <= 1 and low < high
    assert entry["pairs"]["score"] == pytest.approx(sum(expected["shares"].values()) / 2, abs=1e-6)
    assert about["measure"] == "partial R²" and "max_masked_items" not in about


@pytest.mark.parametrize(("kind", "backend", "method"), CASES)
def test_words_in_contexts_are_scored_as_by_the_official_code(kind, backend, method, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows, about = scored(models[kind], "aoa", tmp_path / "out", method)
    expected = NUMBERS["april"][f"{kind} {backend}"]["aoa"]["surprisal"]
    found = zip(*(rows[name].to_pylist() for name in ("snapshot", "target_word", "context_id", method)), strict=True)
    for mine, theirs in zip(found, expected, strict=True):
        assert list(mine[:3]) == theirs[:3] and mine[3] == pytest.approx(theirs[3], abs=1e-4)
    assert set(rows["million_words"].to_pylist()) == {1, 2, 3} and about["measure"] == "correlation"


def test_curves_of_learning_give_the_official_ages():
    expected = NUMBERS["july"]["aoa of curves"]
    curves = [row for row in NUMBERS["curves"] if row[1] in expected["words"]]  # the others take seconds
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(seeded.TOKENIZER))
    with open(AOA / "cdi_human.csv") as file:
        of_words = {row["word"]: [float(row[str(month)] or "nan") for month in MONTHS] for row in csv.DictReader(file)}
    steps, words, _, surprisals = zip(*(row[:4] for row in curves), strict=True)
    tokens = tokens_in_a_sentence(tokenizer, list(dict.fromkeys(words)))
    columns = {"snapshot": steps, "target_word": words, "children": [of_words[word] for word in words]}
    columns |= {"million_words": [float(step[5:-1]) for step in steps], "tokens": [tokens[word] for word in words]}
    columns |= {"vocabulary": [tokenizer.vocab_size] * len(words), "causal": surprisals}
    found = summary(pa.table({name: list(values) for name, values in columns.items()}), "causal")
    ages = {each["word"]: [each["model"], each["children"]] for each in found["words"] if each["model"] is not None}
    assert ages.keys() == expected["words"].keys()
    for word, both in expected["words"].items():
        assert ages[word] == pytest.approx(both, abs=1e-6), word
    assert found["pairs"]["score"] == pytest.approx(expected["r"], abs=1e-6)
    low, high = found["pairs"]["interval"]
    assert -1 < low < found["pairs"]["score"] < high < 1


def test_a_model_without_snapshots_or_with_another_method_is_refused_in_one_line(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(models["gpt2"], "alone", ignore=shutil.ignore_patterns("snapshots"))
    with pytest.raises(UserError, match=r"^aoa: .* this model has none; set run\.snapshots before the training"):
        scored(tmp_path / "alone", "aoa", tmp_path / "out", "causal")
    with pytest.raises(UserError, match=r"^reading: words are scored by .* this model is scored by bound; leave"):
        scored(models["gpt2"], "reading", tmp_path / "out", "bound")


def test_commands_name_the_measure(models, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    write_json(tmp_path / "config/config.yaml", CONFIG)
    for name in ("gpt_bert", "gpt2"):
        for suite in ("reading", "aoa"):
            assert main(["score", str(models[name]), "--suite", suite]) == 0
    log = capsys.readouterr().err
    assert "% right" not in log and "(partial R² x 100)" in log and "(correlation x 100)" in log
    assert main(["compare", "scores/gpt_bert", "scores/gpt2"]) == 0
    found = capsys.readouterr().out
    assert "reading: partial R² x 100, causal" in found and "bootstrap over 34 words" in found
    assert "aoa: correlation x 100, causal" in found and "no test compares such scores" in found
