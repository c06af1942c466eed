"""The stages `suite` and `score`: from a name in `evaluation.suites` to scores, and what is not done twice."""

import copy
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from babelmill.commands.score import table_of
from babelmill.core.files import UserError, read_json
from babelmill.evaluation import likelihood
from babelmill.score import report
from babelmill.stages import ScoreStage
from babelmill.suites.scoring_model import ScoringModel
from conftest import SMALL
from helpers.hub.hub_data import SENTENCES
from helpers.models import seeded
from helpers.results.fields import undocumented
from helpers.suite_files import score_suite

pytestmark = pytest.mark.slow

OWN = {"files": ["pairs.tsv"], "language": "eng", "good": "good", "bad": "bad", "headline": "paradigms"}


def configured(*suites, **evaluation) -> dict:
    values = copy.deepcopy(SMALL) | {"suites": {"mine": OWN}}
    values["models"] = {"eng": {"evaluation": {"suites": list(suites), "max_documents": 10} | evaluation}}
    return values


def test_a_model_is_scored_and_a_new_suite_repeats_nothing(workspace):
    """In the small workflow, whose model of eng is built."""
    workspace.configure(configured("english_basics", max_masked_items=5))
    assert workspace.would_run() == {
        ("suite", "english_basics_eng"),
        ("score", "english_basics_eng"),
        ("convert", "eng"),
    }
    workspace.snakemake("reports/eng.html")
    page, table = (workspace.path / f"reports/eng.{kind}" for kind in ("html", "csv"))
    assert "English basics" in page.read_text() and "eng,eng,english_basics,fused,all," in table.read_text()
    folder = workspace.path / "results/of/eng/score/english_basics"
    scores, rows = read_json(folder / "scores.json"), pq.read_table(folder / "items.parquet")
    assert not undocumented(folder / "scores.json", "scores.json of a suite")
    eng = scores["languages"]["eng"]
    assert eng["methods"]["causal"]["pairs"]["n"] == 200 and eng["pairs"]["pairs"] == 200
    assert eng["methods"]["masked"]["pairs"]["n"] == 30, "five of each of six paradigms"
    assert scores["max_masked_items"] == 5 and scores["headline"] == {"method": "causal", "of": "pairs"}
    assert eng["headline"] == eng["methods"]["causal"]["pairs"], "the most precise one"
    low, high = eng["headline"]["interval"]
    assert 0 <= low <= eng["headline"]["score"] <= high <= 1
    assert len(rows) == 200 and rows["masked"].null_count == 170
    each = [row for row in rows.select(["fused", "causal", "masked"]).to_pylist() if row["masked"]]
    assert all(row["fused"][0] == pytest.approx(row["causal"][0] + row["masked"][0]) for row in each)
    card = (workspace.path / "converted/eng/README.md").read_text()
    assert f"| English basics | English | causal | {100 * eng['headline']['score']:.1f} (" in card
    overlap = read_json(folder / "overlap.json")
    assert not undocumented(folder / "overlap.json")
    assert overlap["looked_in"]["eng"]["documents"] > 0 and overlap["languages"]["eng"]["found"] == 0
    for text in (card, page.read_text()):
        assert "0 of 200 pairs stand in the training text" in text
    assert workspace.would_run() == set()
    (workspace.path / "pairs.tsv").write_text("good\tbad\nthe fox jumps\tfox the jumps\n")
    workspace.configure(configured("english_basics", "mine", max_masked_items=5))
    assert workspace.would_run() == {("suite", "mine_eng"), ("score", "mine_eng"), ("convert", "eng")}


@pytest.fixture(scope="module")
def pairs():
    """Sentences that the exported model knows by heart, beside ones with two words changed."""
    bad = [" ".join([words[1], words[0], *words[2:]]) for words in (text.split() for text in SENTENCES)]
    return [[*pair] for pair in zip(SENTENCES * 2, bad * 2, strict=True)]


def test_an_attempt_that_is_killed_at_a_snapshot_goes_on_at_its_last_group(tmp_path, pairs, monkeypatch):
    """Of three, the second: neither the model nor the first snapshot is scored again, and the result is the same."""
    monkeypatch.chdir(tmp_path)
    export = seeded.with_snapshots(tmp_path / "export", seeded.gpt_bert, (1, 2, 3))
    (tmp_path / "pairs.tsv").write_text("good\tbad\n" + "".join(f"{good}\t{bad}\n" for good, bad in pairs))
    monkeypatch.setattr(likelihood, "POSITIONS", {"cpu": 1})  # a pair at a time
    of_group, scored = likelihood.Model._of_group, []

    def attempt(name: str, killed_at: int) -> dict:
        def group(*given):
            if len(scored) == killed_at:
                raise KeyboardInterrupt
            scored.append(given)
            return of_group(*given)

        monkeypatch.setattr(likelihood.Model, "_of_group", group)
        out = score_suite(export, {"suites": {"mine": OWN}}, "mine", tmp_path / name, "masked", snapshots=True)
        return read_json(out / "scores.json")

    whole, groups = attempt("whole", -1), len(scored)
    assert [each["name"] for each in whole["snapshots"]] == ["chck_1M", "chck_2M", "chck_3M"]
    assert groups == 4 * len(pairs)
    scored.clear()
    with pytest.raises(KeyboardInterrupt):
        attempt("killed", 2 * len(pairs) + 3)
    assert attempt("killed", -1) == whole
    assert len(scored) == groups, "each pair of each snapshot once"
    assert not (tmp_path / "killed/partial").exists()


def test_a_score_that_is_not_a_number_is_an_error(exported, tmp_path, pairs):
    """One damaged row of the embedding: one of two sentences would have no score, and the pair would be left out."""
    folder = tmp_path / "damaged"
    shutil.copytree(exported / "export", folder)
    weights = load_file(folder / "model.safetensors")
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    name = next(name for name in weights if "embedding" in name and len(weights[name]) == len(tokenizer))
    weights[name][tokenizer("cat")["input_ids"][-1]] = torch.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    model, everything = ScoringModel(folder, {}), np.ones(len(pairs), bool)
    for method in ("causal", "masked"):
        with pytest.raises(UserError, match=r"is not a number \(nan\)"):
            model.score(method, pairs, everything, tmp_path / method)
    with pytest.raises(UserError, match=r"the score of '.*cat.*' is not a number"):
        list(table_of(model, "causal", [(1, "The cat sat.")]))


def test_the_bound_of_the_right_sentence_is_higher(exported, tmp_path, pairs):
    found = ScoringModel(exported / "export", {}).score("bound", pairs, np.ones(len(pairs), bool), tmp_path / "b")
    assert (found[:, 0] > found[:, 1]).all()


def test_a_suite_that_the_model_cannot_read_is_one_line():
    """All sentences are longer than its positions: nothing has a score."""
    table = pa.table({"language": ["eng"], "phenomenon": ["all"], "paradigm": ["all"]})
    table = table.append_column("causal_points", pa.array([None], pa.float64()))
    values = {"suite": "mine", "covered": ["eng"], "methods": ["causal"]}
    with pytest.raises(UserError, match="mine: no pair of eng can be scored: all are longer than the model reads"):
        report(table, ScoreStage(**values))
