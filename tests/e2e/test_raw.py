"""`include_raw`: the final training checkpoint in the deliverable, and what can be done with it."""

import contextlib
import re
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from babelmill import export
from babelmill.core import manifest
from babelmill.core.files import UserError
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
    run = manifest.read(workspace.path / "results/models/eng")["figures"]["fingerprint"]
    files = ["step-00000008.safetensors", "step-00000008.json", "identity.json", "metrics.jsonl"]
    assert sorted(names) == sorted(
        ["training_checkpoint/README.md", *(f"training_checkpoint/{run}/{file}" for file in files)]
    )

    # The README's code gives tensors and the names of the optimizer's parameters.
    text = (folder / "training_checkpoint/README.md").read_text()
    found: dict = {}
    with contextlib.chdir(folder / "training_checkpoint"):
        exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], found)
    weights = load_file(workspace.path / "results/models/eng/model.safetensors")
    tensors = found["tensors"]
    states = {name: tensors[f"optimizer.0.{number}.exp_avg"] for number, name in enumerate(found["names"])}
    begin = re.search(r"`(optimizer\.\S*)NAME`", text)[1]
    states |= {name.removeprefix(begin): tensor for name, tensor in tensors.items() if name.startswith(begin)}
    assert len(states) > len(found["names"]) and states.keys() == weights.keys()
    for name, weight in weights.items():
        assert torch.equal(tensors[f"model.{name}"], weight) and states[name].shape == weight.shape

    # Somebody with the same settings and texts has no need to train.
    before = {path.name: path.read_bytes() for path in (workspace.path / "results/models/eng").glob("*.safetensors")}
    for name in ("models", "checkpoints"):
        shutil.rmtree(workspace.path / f"results/{name}/eng")
    shutil.copytree(folder / f"training_checkpoint/{run}", workspace.path / f"results/checkpoints/eng/{run}")
    workspace.snakemake("results/models/eng/manifest.json")
    assert "already trained" in (workspace.path / "logs/train/eng.log").read_text()
    assert before == {
        path.name: path.read_bytes() for path in (workspace.path / "results/models/eng").glob("*.safetensors")
    }


def test_another_checkpoint_is_not_delivered(workspace):
    """Of the same settings on another machine: near, but not the same weights. Damaged. Gone."""
    model, checkpoints = (workspace.path / f"results/{name}/eng" for name in ("models", "checkpoints"))
    run = manifest.read(model)["figures"]["fingerprint"]

    def refused(message: str) -> None:
        with pytest.raises(UserError, match=message):
            export.copy_checkpoint(workspace.path / "out", model, checkpoints, "eng")

    weights = load_file(model / "ema.safetensors")
    save_file({name: tensor + 1e-6 for name, tensor in weights.items()}, model / "ema.safetensors")
    refused("differs from that of")
    flip_a_bit(path := checkpoints / run / "step-00000008.safetensors")
    refused("step-00000008.safetensors: damaged")
    path.unlink()
    refused("the final checkpoint is missing; set export.include_raw to false, or train again")
