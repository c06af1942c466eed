"""Fine-tuning by the challenge's protocols: the logits that the challenge's own scripts give (tests/data/official/README.md)."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import softmax

from babelmill.cli import main
from babelmill.config.layers import TASKS
from babelmill.core.yaml_file import read_yaml
from helpers import DATA, ROOT
from helpers.models import seeded

pytestmark = pytest.mark.slow

NUMBERS = json.loads((DATA / "official/tuned.json").read_text())
SHORT = {"epochs": 6, "batch": 8, "learning_rate": 0.003}
APRIL = {"pooling": "first", "padding": "right"}
CASES = {"april": ("rte", APRIL), "july": ("rte", {}), "multi": ("sib200", {})}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {"gpt_bert": seeded.gpt_bert(folder / "gpt_bert"), "gpt2": seeded.gpt2(folder / "gpt2")}


@pytest.mark.parametrize("who", NUMBERS)
def test_predictions_are_those_of_the_official_scripts(who, models, tmp_path, monkeypatch):
    """After 30 steps with dropout, so head, order of rows, random numbers, padding, schedule and clipping are the same."""
    monkeypatch.chdir(tmp_path)
    state, model = who.split()
    task, changes = CASES[state]
    short = read_yaml(ROOT / TASKS / f"{task}.yaml")
    folder = str(DATA / "official/evaluation_data")
    short |= {key: [short[key][0].replace("{evaluation_data}", folder)] for key in ("train", "test")}
    short["tuning"] = SHORT | changes
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(json.dumps({"tasks": {"short": short}}))
    assert main(["tune", str(models[model]), "--task", "short", "--language", "eng"]) == 0
    (found,) = tmp_path.glob("tuned/*/short/*/predictions.parquet")
    expected, rows = softmax(np.array(NUMBERS[who]), 1), pq.read_table(found).to_pydict()
    assert len(rows["label"]) == len(expected) == (16 if state == "multi" else 20), "an incomplete batch is left out"
    classes = json.loads((found.parent / "scores.json").read_text())["languages"]["eng"]["classes"]
    assert rows["prediction"] == [classes[best] for best in expected.argmax(1)]
    assert rows["probability"] == pytest.approx(expected.max(1), abs=1e-3)
