"""A NorBERT4 from text to its card, with a suite and a task, and one that continues a published one, really run."""

import copy
import shutil

import pytest
import torch
from safetensors.torch import load_file

from babelmill.core.files import read_json
from conftest import ROOT, SMALL, WORDS, Workspace
from helpers.models.published import norbert4, write_norbert4

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("norbert4")]  # one process runs the workflow
TASK = {
    **{"train": ["rows.tsv"], "test": ["others.tsv"], "language": "eng", "text": "{sentence}", "label": "class"},
    "tuning": {"epochs": 2, "batch": 16, "longest": 32},
}
PAIRS = {"files": ["pairs.tsv"], "language": "eng", "good": "good", "bad": "bad"}


@pytest.fixture(scope="module")
def made(built, tmp_path_factory) -> Workspace:
    """The small workflow with both models."""
    workspace = Workspace(shutil.copytree(built, tmp_path_factory.mktemp("norbert4") / "work", symlinks=True))
    write_norbert4(workspace.path / "published")
    words = WORDS["eng"].split()
    rows = "".join(f"the {word} {words[i - 3]}\t{'ab'[i % 2]}\n" for i, word in enumerate(words))
    (workspace.path / "rows.tsv").write_text("sentence\tclass\n" + rows)
    (workspace.path / "others.tsv").write_text("sentence\tclass\n" + rows.replace("the ", "one "))
    pairs = "".join(f"{' '.join(words[i : i + 4])}\t{' '.join(words[i + 3 : i : -1])}\n" for i in range(4))
    (workspace.path / "pairs.tsv").write_text("good\tbad\n" + pairs)
    values = copy.deepcopy(SMALL) | {"tasks": {"mine": TASK}, "suites": {"pairs": PAIRS}}
    values["models"] = {
        "nor": {
            "languages": ["eng"],
            "model": {"architecture": "norbert4", "local_global_ratio": 2, "local_window_length": 8},
            "evaluation": {"suites": ["pairs"], "tasks": ["mine"], "task_seeds": [1], "max_documents": 10},
        },
        "more": {
            "languages": ["eng"],
            "model": {"architecture": "norbert4", "source": "./published"},
            "train": {"objective": "diffusion", "max_steps": 2},
            "evaluation": {"tasks": ["mine"], "task_seeds": [1]},
        },
    }
    workspace.configure(values)
    targets = "converted/nor", "converted/more"
    workspace.snakemake(*targets, "--profile", ROOT / "profiles/local")
    return workspace


def test_from_text_to_the_card(made):
    first, *_, last = (line for line in made.metrics("nor") if line["kind"] == "train")
    assert last["loss"] < first["loss"]
    assert read_json(made.path / "results/of/nor/evaluate/evaluation.json")["metrics"].keys() >= {"causal", "masked"}
    folder = made.path / "converted/nor"
    config = read_json(folder / "config.json")
    assert (config["num_layers"], config["local_window_length"], config["max_sequence_length"]) == (2, 8, 128)
    assert load_file(folder / "model.safetensors").keys() >= {"embedding.word_scale", "encoder.layers.1.lambdas"}
    card = (folder / "README.md").read_text()
    assert "A NorBERT4 (second-generation" in card and "down_proj" in card and "## Fine-tuning" in card


def test_suite_and_task(made):
    scores = read_json(made.path / "results/of/nor/score/pairs/scores.json")
    assert scores["languages"]["eng"]["methods"].keys() == {"causal", "masked", "fused"}
    assert 0 <= read_json(made.path / "results/of/nor/tune/mine.1/scores.json")["languages"]["eng"]["score"] <= 1


def test_a_published_model_goes_on(made):
    """With its shape and weights, by another objective; the export has been proven equal to what was trained."""
    config = read_json(made.path / "results/of/more/train/config.json")
    assert {key: config[key] for key in norbert4()[0]} == norbert4()[0]
    before = torch.load(made.path / "published/pytorch_model.bin")
    after = load_file(made.path / "results/of/more/export/model.safetensors")
    assert after.keys() == before.keys() - {"classifier.emb2vocab.weight"}
    for name, tensor in after.items():
        assert (tensor - before[name]).norm() <= 0.2 * before[name].norm(), name
    assert 0 <= read_json(made.path / "results/of/more/tune/mine.1/scores.json")["languages"]["eng"]["score"] <= 1
    made.babelmill("score", "results/of/more/export", "--suite", "pairs", "--out", "scores/more")
    assert read_json(made.path / "scores/more/scores.json")["languages"]["eng"]["methods"].keys() == {"bound", "masked"}
