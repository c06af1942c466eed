"""Converting by hand: the files that training left, wherever they were copied to, and the published implementation's."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

from babelmill.core import manifest
from babelmill.core.files import read_json, sha256, write_json
from helpers.models.old_repositories import files, weights
from helpers.models.published import GOLDEN, LOGITS, model, write_tokenizer
from helpers.programs.prepared import run_module, run_python

pytestmark = pytest.mark.slow


def convert(folder: Path, *arguments) -> subprocess.CompletedProcess:
    """The command `babelmill convert`, far from any workflow."""
    return run_module("babelmill", *arguments, cwd=folder)


def message(done: subprocess.CompletedProcess) -> str:
    """The one line of a refusal."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 1 and len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    return lines[0]


# What training left.


def test_a_trained_model_is_what_the_workflow_exports(built, tmp_path):
    """From copies alone, and the files that the workflow exports come out byte for byte."""
    shutil.copytree(built / "results/of/eng/train", tmp_path / "trained")
    shutil.copy(built / "results/of/eng/tokenizer/tokenizer.json", tmp_path)
    done = convert(tmp_path, "convert", "trained", "--tokenizer", "tokenizer.json", "--out", "out/mine")
    assert done.returncode == 0, done.stderr
    assert "comparisons with the training model: difference at most" in done.stderr
    parts = [line.split(maxsplit=1)[1] for line in done.stderr.splitlines()]
    begins = ["loading PyTorch", "reading trained", "building out/mine", "comparing ", "writing the card"]
    assert [begin for part in parts for begin in begins if part.startswith(begin)] == begins
    exported = manifest.verify(built / "results/of/eng/export")["files"]
    made = manifest.verify(tmp_path / "out/mine")["files"]
    assert exported.items() <= made.items()
    assert set(made) - set(exported) == {"README.md", "metrics.jsonl", "training_history.png"}
    card = ModelCard.load(tmp_path / "out/mine/README.md", ignore_metadata_errors=False)
    assert card.data.language == ["en"] and not card.data.eval_results and card.data.license is None
    assert "| `train.max_steps` | 8 |" in card.text and "## Results" not in card.text
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    wrong = convert(tmp_path, "convert", "out/mine", "--tokenizer", "tokenizer.json", "--out", "other")
    assert "out/mine is a result of convert, not of training" in message(wrong)
    # A second time, it does not touch what is there.
    again = convert(tmp_path, "convert", "trained", "--tokenizer", "tokenizer.json", "--out", "out/mine")
    assert "--out out/mine already exists" in message(again)


def test_a_checkpoint_and_its_identity_are_enough(built, tmp_path):
    """The last checkpoint's weights are the trained model's."""
    run = next((built / "results/checkpoints").glob("eng-*"))
    shutil.copy(run / "step-00000008.safetensors", tmp_path)
    identity = read_json(run / "identity.json")
    identity["settings"]["train"]["precision"] = "auto"
    write_json(tmp_path / "identity.json", identity)
    arguments = ["convert", "step-00000008.safetensors", "--tokenizer"]
    tokenizer = built / "results/of/eng/tokenizer"
    done = convert(tmp_path, *arguments, tokenizer, "--out", "out")
    assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "model.main.safetensors", "config.json", "tokenizer_config.json"):
        assert sha256(tmp_path / "out" / name) == sha256(built / "results/of/eng/export" / name)
    text = (tmp_path / "out/README.md").read_text()
    assert "after 8 steps" in text and "| `train.precision` | fp32 |" in text, "the checkpoint names what ran"
    other = convert(tmp_path, *arguments, built / "results/of/deu/tokenizer/tokenizer.json", "--out", "other")
    assert "is not the tokenizer with which step-00000008.safetensors was trained" in message(other)
    (tmp_path / "identity.json").unlink()
    assert "is not in the folder of a run (identity.json is missing: copy it" in message(
        convert(tmp_path, *arguments, tokenizer, "--out", "other")
    )
    assert not list(tmp_path.glob("*other*"))


def test_a_checkpoint_of_diffusion_without_an_average(built, tmp_path):
    """One kind of weights, and the code that generates; its run differs from the built one in these settings."""
    run, name = next((built / "results/checkpoints").glob("eng-*")), "step-00000008.safetensors"
    save_file(
        {key: value for key, value in load_file(run / name).items() if not key.startswith("average.")}, tmp_path / name
    )
    identity = read_json(run / "identity.json")
    identity["settings"]["train"] |= {"objective": "diffusion", "ema_decay": 0.0}
    write_json(tmp_path / "identity.json", identity)
    tokenizer = built / "results/of/eng/tokenizer"
    done = convert(tmp_path, "convert", name, "--tokenizer", tokenizer, "--out", "out")
    assert done.returncode == 0, done.stderr
    files = manifest.verify(tmp_path / "out")["files"]
    assert [file for file in files if file.endswith(".safetensors")] == ["model.safetensors"]
    assert (
        files["model.safetensors"] == manifest.read(built / "results/of/eng/export")["files"]["model.main.safetensors"]
    )
    assert read_json(tmp_path / "out/config.json")["objective"] == "diffusion" and "diffusion_generation.py" in files
    text = (tmp_path / "out/README.md").read_text()
    assert "trained by masked diffusion" in text and '"diffusion_generation.generate", "out"' in text


def test_a_published_checkpoint_needs_its_configuration(tmp_path):
    write_tokenizer(tmp_path / "t.json")
    said = message(convert(tmp_path, "convert", "m.bin", "--tokenizer", "t.json", "--out", "o"))
    assert said == "error: m.bin: name the JSON file with the model's shape with --config"


# Checkpoints of the published implementation.

COMPARE = f"{LOGITS}\nprint(difference(sys.argv[2]), difference(sys.argv[2], 'main'))"


@pytest.fixture
def published(tmp_path):
    """Files as the published implementation leaves them: weights, their average (here: doubled), shape, tokenizer."""
    config, weights = model()
    torch.save(weights, tmp_path / "model.bin")
    torch.save({name: value * 2 for name, value in weights.items()}, tmp_path / "model_ema.bin")
    (tmp_path / "base.json").write_text(json.dumps(config))
    write_tokenizer(tmp_path / "tokenizer.json")
    return tmp_path


ARGUMENTS = ["convert", "model.bin", "--config", "base.json", "--tokenizer", "tokenizer.json"]


def test_a_published_checkpoint_computes_what_it_did(published):
    """The published implementation's own logits, by transformers, from a folder that is like any other."""
    (published / "model.bin").rename(published / "weights.bin")
    (published / "model_ema.bin").rename(published / "model.bin")
    done = convert(published, *ARGUMENTS, "--ema", "weights.bin", "--out", "out/old")
    assert done.returncode == 0, done.stderr
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(published / "cache")}
    compared = run_python("-c", COMPARE, GOLDEN, published / "out/old", environment=environment, check=True)
    default, main = map(float, compared.stdout.split())
    assert default < 1e-5 < main  # the weights are fp32 now, and the default ones are the averaged
    folder = published / "out/old"
    assert set(manifest.verify(folder)["files"]) | {"manifest.json"} == {path.name for path in folder.iterdir()}
    assert read_json(folder / "config.json")["masked_target"] == "next"
    assert not any("position_indices" in name for name in safe_open(folder / "model.safetensors", "pt").keys())
    text = (folder / "README.md").read_text()
    for name in ("model.bin", "weights.bin"):
        assert f"`{name}` (sha256 `{sha256(published / name)}`)" in text


def test_targets_at_the_mask_itself(published):
    """BabyBabelLM's code moved the causal targets but not the masked ones; proven in both alignments too."""
    done = convert(published, *ARGUMENTS, "--masked-target", "same", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert read_json(published / "out/config.json")["masked_target"] == "same"
    assert re.search(r"\d+ comparisons with the training model: difference at most", done.stderr)


def test_nothing_is_left_of_a_refused_one(published):
    config = json.loads((published / "base.json").read_text())
    (published / "base.json").write_text(json.dumps(config | {"hidden_size": 48}))
    before = sorted(path.name for path in published.iterdir())
    assert "model.bin: the main weights do not fit the given configuration" in message(
        convert(published, *ARGUMENTS, "--out", "out")
    )
    assert sorted(path.name for path in published.iterdir()) == before


def test_a_published_repository_on_the_hub_and_as_a_folder(hub, tmp_path):
    content = files() | {
        "model.safetensors": save(weights("model.")),
        "model_main.safetensors": save(weights("model.", 2)),
    }
    commit = hub.commit("models/lab/old-eng", content)
    hub.commit("models/lab/bert", {"config.json": b'{"model_type": "bert"}'})
    (tmp_path / "copy").mkdir()
    for name, data in content.items():
        (tmp_path / "copy" / name).write_bytes(data)
    for source, out in (("lab/old-eng", "out/hub"), ("copy", "out/folder")):
        done = convert(tmp_path, "convert", source, "--masked-target", "next", "--out", out)
        assert done.returncode == 0, done.stderr
    made = [manifest.verify(tmp_path / "out" / name)["files"] for name in ("hub", "folder")]
    assert {name for name in made[0] if made[0][name] != made[1][name]} == {"README.md"}
    assert {"model.safetensors", "model.main.safetensors", "tokenizer.json"} <= made[0].keys()
    assert f"Rehosted from commit [`{commit}`]" in (tmp_path / "out/hub/README.md").read_text()
    for source, more, expected in (
        ("lab/bert", (), "is not a GPT-BERT of the published code (model_type bert)"),
        ("results/of/egn/train", (), "results/of/egn/train: neither a file or folder, nor a repository on the Hub"),
        ("copy", ("--ema", "x.bin"), "--ema x.bin: copy is not a checkpoint of the published code"),
    ):
        assert expected in message(convert(tmp_path, "convert", source, *more, "--out", "other"))
