"""Hanzi in the upload of the multilingual track, as the challenge's own programs write it (tests/data/official)."""

import json
import shutil

import pytest

from babelmill.config.submissions import read_rules
from babelmill.core.yaml_file import read_yaml
from babelmill.suites import challenge
from babelmill.suites.challenge import Results, Scored
from conftest import ROOT
from helpers import DATA
from helpers.models import seeded
from helpers.suite_files import score_suite

pytestmark = pytest.mark.slow

OFFICIAL = json.loads((DATA / "official/hanzi.json").read_text())
RULES = read_rules("babylm_2026_multilingual").model_copy(update={"checkpoints": [1, 2]})
CHECKPOINTS = ["chck_1M", "chck_2M"]


def model(folder, kind: str):
    """Write a model; `of_characters` has a tokenizer that lacks some characters, `gpt2` has two snapshots."""
    make = seeded.gpt_bert if kind == "gpt_bert" else seeded.gpt2
    seeded.with_snapshots(folder, make, (1, 2) if kind == "gpt2" else ())
    if kind == "of_characters":
        shutil.copy(DATA / "official/tokenizer_of_characters.json", folder / "tokenizer.json")
    return folder


@pytest.mark.parametrize("kind", OFFICIAL)
def test_the_upload_is_that_of_the_official_code(kind, tmp_path, monkeypatch):
    """The names of items to the last character, equal sentences and unknown tokens, and the scores of checkpoints."""
    monkeypatch.chdir(tmp_path)
    official, suites = OFFICIAL[kind], {}
    for name in official["hidden"]:  # the shipped suites, with the stored files instead of those of the Hub
        shipped = read_yaml(ROOT / f"config/suites/{name}.yaml")
        del shipped["repository"]
        suites[name] = shipped | {"files": [str(DATA / f"official/hanzi/{name}.jsonl")]}
    folder, mine = model(tmp_path / kind, kind), {}
    for name in suites:
        more = {"code": "zho", "snapshots": kind == "gpt2"}
        out = score_suite(folder, {"suites": suites}, name, tmp_path / "scores" / kind / name, "causal", **more)
        mine[name] = Scored(out, RULES.tasks[name], "zho", "causal")
    fast = mine if kind == "gpt2" else {}
    of = Results(RULES, mine, fast, there=frozenset(CHECKPOINTS))
    scores, predictions = challenge.multilingual(of)
    assert scores == {}, "the challenge computes them itself"
    assert [*predictions["hidden"]] == [*official["hidden"]]
    for name, items in official["hidden"].items():
        found = predictions["hidden"][name]
        assert [*found] == [*items], name
        for each, item in zip(found.values(), items.values(), strict=True):
            assert each == {"scores": pytest.approx(item["scores"], abs=1e-4), "has_unk": item["has_unk"]}, name
        assert predictions["zeroshot"][name]["acc,none"] == official["accuracy"][name]
    assert predictions.get("fast_eval_results") == official.get("fast_eval_results")
    numbers = challenge.numbers(of, {})
    assert {name: numbers[name].value / 100 for name in mine} == pytest.approx(official["accuracy"])
