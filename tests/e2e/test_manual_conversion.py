"""`babelmill convert`: models of the published GPT-BERT code, wherever their files are."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from babelmill.core import manifest
from babelmill.core.files import read_json, sha256
from helpers.hub.hub_stage import refusal
from helpers.models.old_repositories import files, weights
from helpers.models.published import GOLDEN, LOGITS, model, write_tokenizer
from helpers.programs.prepared import run_module, run_python

pytestmark = pytest.mark.slow

COMPARE = f"{LOGITS}\nprint(difference(sys.argv[2]), difference(sys.argv[2], 'main'))"
CHECKPOINT = ["model.bin", "--config", "base.json", "--tokenizer", "tokenizer.json", "--masked-target", "next"]


def convert(folder: Path, *arguments) -> subprocess.CompletedProcess:
    """The command `babelmill convert`, far from any workflow."""
    return run_module("babelmill", "convert", *arguments, cwd=folder)


@pytest.fixture
def published(tmp_path):
    """Files as the published implementation leaves them: weights (here: doubled), their average, shape, tokenizer."""
    config, weights = model()
    torch.save({name: value * 2 for name, value in weights.items()}, tmp_path / "model.bin")
    torch.save(weights, tmp_path / "model_ema.bin")
    (tmp_path / "base.json").write_text(json.dumps(config))
    write_tokenizer(tmp_path / "tokenizer.json")
    return tmp_path


def test_a_checkpoint_computes_what_it_did(published):
    """The published implementation's own logits, by transformers, from a folder that is like any other."""
    done = convert(published, *CHECKPOINT, "--out", "out/old")
    assert done.returncode == 0, done.stderr
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(published / "cache")}
    compared = run_python("-c", COMPARE, GOLDEN, published / "out/old", environment=environment, check=True)
    default, main = map(float, compared.stdout.split())
    assert default < 1e-5 < main  # the weights are fp32 now, and the default ones are the averaged
    folder = published / "out/old"
    assert set(manifest.verify(folder)["files"]) | {"manifest.json"} == {path.name for path in folder.iterdir()}
    assert [path.name for path in folder.parent.iterdir()] == ["old"]
    assert read_json(folder / "config.json")["masked_target"] == "next"
    assert not any("position_indices" in name for name in safe_open(folder / "model.safetensors", "pt").keys())
    text = (folder / "README.md").read_text()
    for name in ("model.bin", "model_ema.bin"):
        assert f"(sha256 {sha256(published / name)})" in text
    assert "--out out/old already exists" in refusal(convert(published, *CHECKPOINT, "--out", "out/old"))


def test_nothing_is_left_of_a_refused_one(published):
    (published / "wide.json").write_text(json.dumps(model()[0] | {"hidden_size": 48}))
    before = sorted(path.name for path in published.iterdir())
    for arguments, expected in (
        ([*CHECKPOINT, "--config", "wide.json"], "this is not the model that it describes"),
        (["results/of/egn/train"], "results/of/egn/train: neither a file or folder, nor a repository on the Hub"),
    ):
        assert expected in refusal(convert(published, *arguments, "--out", "out"))
        assert sorted(path.name for path in published.iterdir()) == before


def test_a_published_repository_on_the_hub_and_as_a_folder(hub, tmp_path):
    """BabyBabelLM's code moved the causal targets but not the masked ones; proven in both alignments too."""
    both = {"model.safetensors": save(weights("model.")), "model_main.safetensors": save(weights("model.", 2))}
    commit = hub.commit("models/lab/old-eng", files() | both)
    hub.commit("models/lab/bert", {"config.json": b'{"model_type": "bert"}'})
    (tmp_path / "copy").mkdir()
    for name, data in (files() | both).items():
        (tmp_path / "copy" / name).write_bytes(data)
    for source, out in (("lab/old-eng", "out/hub"), ("copy", "out/folder")):
        done = convert(tmp_path, source, "--masked-target", "same", "--out", out)
        assert done.returncode == 0 and "comparisons with the training model: difference at most" in done.stderr
    made = [manifest.verify(tmp_path / "out" / name)["files"] for name in ("hub", "folder")]
    assert {name for name in made[0] if made[0][name] != made[1][name]} == {"README.md"}
    assert {"model.safetensors", "model.main.safetensors", "tokenizer.json"} <= made[0].keys()
    assert read_json(tmp_path / "out/hub/config.json")["masked_target"] == "same"
    assert f"Rehosted from commit [`{commit}`]" in (tmp_path / "out/hub/README.md").read_text()
    assert "lab/bert: not a GPT-BERT (model_type bert)" in refusal(convert(tmp_path, "lab/bert", "--out", "other"))
    assert "out/folder: Babelmill made it" in refusal(convert(tmp_path, "out/folder", "--out", "other"))
