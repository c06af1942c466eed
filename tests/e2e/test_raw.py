"""`include_raw`: the final training checkpoint in the deliverable, and what can be done with it."""

import contextlib
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from babelmill import export
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.stages import CHECKPOINTS
from helpers.damage import flip_a_bit

pytestmark = pytest.mark.slow


def test_the_checkpoint_is_delivered_and_taken_up_elsewhere(workspace):
    values = yaml.safe_load(workspace.config_file.read_text())
    train = values["train"] | {"optimizer": "muon"}  # which keeps a state of its own for matrices
    workspace.configure(values | {"train": train, "export": {"include_raw": True}})
    jobs = {(stage, "eng") for stage in ("train", "export", "evaluate", "convert")}
    assert workspace.would_run(targets=["converted/eng"]) == jobs
    workspace.snakemake("converted/eng")
    folder = workspace.path / "converted/eng"
    names = [name for name in manifest.verify(folder)["files"] if name.startswith("training_checkpoint/")]
    model = (workspace.path / "results/of/eng/train").resolve()
    run = model.name
    files = ["step-00000008.safetensors", "step-00000008.json", "identity.json", "metrics.jsonl"]
    assert sorted(names) == sorted(
        ["training_checkpoint/README.md", *(f"training_checkpoint/{run}/{file}" for file in files)]
    )

    # The README's code gives tensors and the names of the optimizer's parameters.
    text = (folder / "training_checkpoint/README.md").read_text()
    found: dict = {}
    with contextlib.chdir(folder / "training_checkpoint"):
        exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], found)
    weights = load_file(model / "model.safetensors")
    tensors = found["tensors"]
    states = {name: tensors[f"optimizer.0.{number}.exp_avg"] for number, name in enumerate(found["names"])}
    begin = re.search(r"`(optimizer\.\S*)NAME`", text)[1]
    states |= {name.removeprefix(begin): tensor for name, tensor in tensors.items() if name.startswith(begin)}
    assert len(states) > len(found["names"]) and states.keys() == weights.keys()
    for name, weight in weights.items():
        assert torch.equal(tensors[f"model.{name}"], weight) and states[name].shape == weight.shape

    # Somebody with the same settings and texts has no need to train.
    before = {path.name: path.read_bytes() for path in model.glob("*.safetensors")}
    checkpoints = workspace.path / "results/checkpoints" / run
    for path in (model, checkpoints):
        shutil.rmtree(path)
    shutil.copytree(folder / "training_checkpoint" / run, checkpoints)
    workspace.snakemake("converted/eng", "--forcerun", "export", "--until", "train")
    assert "already trained" in (workspace.path / f"logs/train/{run}.log").read_text()
    assert before == {path.name: path.read_bytes() for path in model.glob("*.safetensors")}


def test_another_checkpoint_is_not_delivered(workspace, monkeypatch):
    """Of the same settings on another machine: near, but not the same weights. Damaged. Gone."""
    monkeypatch.chdir(workspace.path)
    model = Path("results/train", Path("results/of/eng/train").resolve().name)

    def refused(message: str) -> None:
        with pytest.raises(UserError, match=message):
            export.copy_checkpoint(Path("out"), model)

    weights = load_file(model / "ema.safetensors")
    save_file({name: tensor + 1e-6 for name, tensor in weights.items()}, model / "ema.safetensors")
    refused("differs from that of")
    flip_a_bit(path := CHECKPOINTS / model.name / "step-00000008.safetensors")
    refused("step-00000008.safetensors: damaged")
    path.unlink()
    refused("the final checkpoint is missing; set export.include_raw to false, or train again")
