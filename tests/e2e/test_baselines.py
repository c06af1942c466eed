"""Models of other projects in the configuration (`train: none`): measured, tuned, compared and reported like our own."""

import copy

import pyarrow.parquet as pq
import pytest

from babelmill.core import manifest
from babelmill.core.files import read_json
from conftest import SMALL
from helpers.models.published_models import publish

pytestmark = pytest.mark.slow

SUITE = {"files": ["pairs.tsv"], "language": "eng", "good": "good", "bad": "bad"}
TASK = {"train": ["rows.tsv"], "test": ["others.tsv"], "language": "eng", "text": "{text}", "label": "class"}
TUNING = {"epochs": 1, "batch": 4, "seeds": [1], "longest": 16}


def configured(**gpt2) -> dict:
    values = copy.deepcopy(SMALL) | {"suites": {"mine": SUITE}, "tasks": {"own": TASK | {"tuning": TUNING}}}
    values["evaluation"] = SMALL.get("evaluation", {}) | {"suites": ["mine"], "max_documents": 5}
    entry = {"languages": ["eng"], "model": {"source": "./gpt2"}, "train": "none"}
    return values | {"models": {"gpt2": entry | {"evaluation": {"sequence_length": 64, "tasks": ["own"]}} | gpt2}}


@pytest.fixture
def folder(workspace):
    publish("gpt2", workspace.path / "gpt2")
    (workspace.path / "pairs.tsv").write_text("good\tbad\nthe fox jumps\tfox the jumps\na lazy dog\tlazy a dog\n")
    rows = "".join(f"{'the fox' if i % 2 else 'a dog'} {i}\t{i % 2}\n" for i in range(12))
    (workspace.path / "rows.tsv").write_text("text\tclass\n" + rows)
    others = rows.replace("fox", "small fox").replace("dog", "lazy dog")
    (workspace.path / "others.tsv").write_text("text\tclass\n" + others)
    return workspace


def test_a_model_of_another_project_is_measured_beside_our_own(folder):
    folder.configure(configured())
    folder.snakemake("reports/eng+gpt2.html")
    of = folder.path / "results/of/gpt2"
    assert sorted(path.name for path in of.iterdir()) == [
        "base_model", "corpus", "evaluate", "score", "suite", "task", "tune",
    ]  # fmt: skip
    assert not (folder.path / "converted/gpt2").exists()
    evaluation = read_json(of / "evaluate/evaluation.json")
    assert [*evaluation["variants"]["main"]] == ["causal"] and "unigram" not in evaluation
    assert evaluation["documents"] == {"scored": 5, "of": evaluation["documents"]["of"]}
    assert evaluation["variants"]["main"]["causal"]["value"] > 1
    scored = pq.read_table(next((of / "score/mine").glob("*.parquet")))
    assert len(scored) == 2 and "causal" in read_json(of / "score/mine/scores.json")["languages"]["eng"]["methods"]
    assert read_json(of / "tune/own.1/scores.json")["task"] == "own"
    assert "bits per byte" in manifest.read(folder.path / "baselines/gpt2.json")["figures"]["summary"]
    table = (folder.path / "reports/eng+gpt2.csv").read_text()
    assert "gpt2,eng,,causal," in table and "gpt2,eng,mine,causal," in table
    assert "gpt2" in folder.babelmill("report", "gpt2")
    compared = folder.babelmill("compare", "eng", "gpt2")
    assert "causal" in compared and "mine: % right" in compared
    targets = ("baselines/gpt2.json", "converted/eng")
    assert folder.would_run(targets=targets) == set()
    assert "up to date" in folder.why("gpt2")["baseline"] and "gpt2" in folder.babelmill("status", "gpt2")
    (folder.path / "gpt2/config.json").write_text((folder.path / "gpt2/config.json").read_text() + " ")
    assert {stage for stage, _ in folder.would_run(targets=targets)} == {
        "base_model", "evaluate", "score", "tune", "baseline",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "target", "message"),
    [
        ({}, "converted/gpt2", "model gpt2 is not trained here (train: none): the target is baselines/gpt2.json"),
        ({}, "baselines/eng.json", "model eng is trained here: the target is converted/eng"),
        ({}, "gpt2", "there is no target gpt2; did you mean baselines/gpt2.json?"),
        ({"model": {"source": "eng"}}, "baselines/gpt2.json", "a folder or repository of another project"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(folder, entry, target, message):
    folder.configure(configured(**entry))
    done = folder.snakemake(target, "-n", check=False)
    assert done.returncode and message in done.stderr, done.stderr
