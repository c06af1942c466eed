"""A NorBERT4 from text to scores and a task, and models that continue published ones, in a workflow that really runs."""

import copy
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from babelmill.model.norbert4 import NorBERT4, NorBERT4Shape
from conftest import ROOT, SMALL, Workspace
from helpers.models.published import norbert4_golden, write_norbert4

pytestmark = pytest.mark.xdist_group("norbert4")  # one process runs the workflow
NORBERT4 = {"architecture": "norbert4", "local_global_ratio": 2, "local_window_length": 8}
OBJECTIVES = ("hybrid", "masked", "causal", "diffusion")


@pytest.fixture(scope="module")
def made(built, tmp_path_factory) -> Workspace:
    """The small workflow with a NorBERT4, and with models of each objective that continue a published one."""
    workspace = Workspace(shutil.copytree(built, tmp_path_factory.mktemp("norbert4") / "work", symlinks=True))
    write_norbert4(workspace.path / "theirs")
    values = copy.deepcopy(SMALL)
    values["models"] = {"nor": {"languages": ["eng"], "model": NORBERT4}}
    for objective in OBJECTIVES:
        values["models"][objective] = {
            "languages": ["eng"],
            "model": {"architecture": "norbert4", "source": "./theirs"},
            "train": {"objective": objective, "max_steps": 2, "global_batch_tokens": 64, "sequence_lengths": [16, 32, 64]},
        }
    workspace.configure(values)
    targets = ["converted/nor", *(f"results/evaluations/{name}/evaluation.json" for name in OBJECTIVES)]
    workspace.snakemake(*targets, "--profile", ROOT / "profiles/local")
    return workspace


def test_a_norbert4_from_text_to_its_card(made):
    first, *_, last = made.metrics("nor")
    assert last["loss"] < first["loss"]
    evaluation = json.loads((made.path / "results/evaluations/nor/evaluation.json").read_text())
    assert {"causal", "masked"} <= evaluation["metrics"].keys()
    folder = made.path / "converted/nor"
    config = json.loads((folder / "config.json").read_text())
    assert (config["num_layers"], config["local_window_length"], config["max_sequence_length"]) == (2, 8, 128)
    assert "NorBERT4" in (folder / "README.md").read_text()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_published_model_is_continued(made, objective):
    """With its shape and its weights, by each objective."""
    shape, _ = norbert4_golden()
    config = json.loads((made.path / f"results/models/{objective}/config.json").read_text())
    assert {key: config[key] for key in shape} == shape
    before = torch.load(made.path / "theirs/pytorch_model.bin")
    after = load_file(made.path / f"results/models/{objective}/model.safetensors")
    assert after.keys() == before.keys() - {"classifier.emb2vocab.weight"}
    name = "encoder.layers.0.mlp.down_proj.weight"
    assert 0 < (after[name] - before[name].float()).norm() < 0.1 * before[name].norm()
