"""Suites of the BabyLM challenge, item by item as the challenge's own code scores them (tests/data/official/README.md)."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from babelmill.core import manifest
from helpers import DATA
from helpers.models import seeded
from helpers.suite_files import score_suite

pytestmark = pytest.mark.slow

NUMBERS = json.loads((DATA / "official/numbers.json").read_text())
CONFIG = {"evaluation_data": str(DATA / "official/evaluation_data")}
SUITES = {  # by state and task
    "april": {
        "blimp": "blimp_filtered",
        "blimp_supplement": "blimp_supplement",
        "ewok": "ewok_targets",
        "entity_tracking": "entity_tracking",
        "comps": "comps",
    },
    "july": {
        "ewok": "ewok",
        "entity_tracking": "entity_tracking_filtered",
        "global_piqa_parallel": "global_piqa_parallel",
        "global_piqa_nonparallel": "global_piqa_nonparallel",
    },
}
METHODS = {"causal": "causal", "mlm": "masked"}
CASES = [(state, who) for state in SUITES for who in NUMBERS[state] if who.split()[0] in ("gpt_bert", "gpt2")]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {"gpt_bert": seeded.gpt_bert(folder / "gpt_bert"), "gpt2": seeded.gpt2(folder / "gpt2")}


def official_name(suite: str, paradigm: str) -> str:
    """The challenge's name of a paradigm."""
    return paradigm.removeprefix("comps_").replace("-", "_") if suite == "comps" else paradigm


@pytest.mark.parametrize(("state", "who"), CASES)
def test_scores_of_all_options_are_those_of_the_official_code(state, who, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind, backend = who.split()
    method, numbers = METHODS[backend], NUMBERS[state][who]
    for task, name in SUITES[state].items():
        if task not in numbers:
            continue
        out = score_suite(models[kind], CONFIG, name, tmp_path / name, method)
        rows, about = pq.read_table(out / "items.parquet"), json.loads((out / "scores.json").read_text())
        found: dict[str, list] = {}
        for row in rows.to_pylist():
            found.setdefault(official_name(name, row["paradigm"]), []).append(row[method])
        expected = numbers[task]["scores"]
        assert found.keys() == expected.keys(), name
        for paradigm, items in expected.items():
            assert np.array(found[paradigm]) == pytest.approx(np.array(items), abs=1e-4), (name, paradigm)
        score = numbers[task].get("score")
        if score is not None and manifest.read(out)["settings"].get("ties") == "first":
            assert 100 * about["languages"]["eng"]["headline"]["score"] == pytest.approx(score, abs=0.006), name
