"""Models that go on from models of transformers, in a workflow that is really run: of the Hub, a folder, and our own."""

import math
import os

import pytest
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from babelmill.core import manifest
from babelmill.core.files import read_json
from conftest import ROOT, Workspace, write_texts
from helpers.models.published_models import publish
from helpers.models.transformers_models import SMALL_WORKFLOW
from helpers.programs.prepared import run_python

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("models of transformers")]

MODELS = {
    "more": {
        "languages": ["eng"],
        "train": {"objective": "causal", "lora_rank": 4, "learning_rate": 0.1},
        "model": {"architecture": "transformers", "source": "ada/gpt2"},
        "run": {"snapshots": [0.0002]},
    },
    "again": {"train": {"objective": "masked", "max_steps": 1, "learning_rate": 1e-12}, "model": {"source": "bert"}},
    "bert": {
        "languages": ["eng"],
        "train": {"objective": "masked"},
        "model": {"architecture": "transformers", "source": "./theirs"},
    },
}
USE = """
import transformers
from transformers import AutoTokenizer, pipeline
for name, auto in (("more", "AutoModelForCausalLM"), ("bert", "AutoModelForMaskedLM")):
    tokenizer = AutoTokenizer.from_pretrained(f"converted/{name}")
    model, report = getattr(transformers, auto).from_pretrained(f"converted/{name}", output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    assert len(tokenizer) < model.config.vocab_size == 400
print(pipeline("text-generation", model="converted/more")("the", max_new_tokens=3, do_sample=False))
print(pipeline("fill-mask", model="converted/bert")("the [MASK] fox")[0])
"""


def validations(workspace: Workspace, model: str) -> list[dict]:
    return [line for line in workspace.metrics(model) if line["kind"] == "validation"]


def test_models_go_on_from_published_ones(tmp_path, hub):
    """Their results load without any code, have the published tokenizer, and cards that tell where they come from."""
    workspace = Workspace(tmp_path / "work")
    workspace.configure(SMALL_WORKFLOW | {"targets": list(MODELS), "models": MODELS})
    write_texts(workspace.path / "texts/eng", "eng")
    published = publish("gpt2", tmp_path / "gpt2", rows=400)
    files = {file.name: file.read_bytes() for file in published.iterdir()}
    commit = hub.commit("models/ada/gpt2", files | {"README.md": b"---\nlicense: mit\n---\n"})
    theirs = publish("bert", workspace.path / "theirs", rows=400)
    targets = ("converted/more", "converted/bert", "converted/again")
    workspace.snakemake(*targets, "--profile", ROOT / "profiles/local")
    assert workspace.would_run(targets=targets) == set()

    environment = os.environ | {"PYTHONPATH": "", "HF_HUB_OFFLINE": "1"}
    done = run_python("-c", USE, cwd=workspace.path, environment=environment, check=True)
    for name, source in (("more", published), ("bert", theirs)):
        converted = workspace.path / f"converted/{name}"
        for file in ("tokenizer.json", "tokenizer_config.json"):
            assert (converted / file).read_bytes() == (source / file).read_bytes()
        of_model, entries = (
            workspace.path / f"results/of/{name}",
            read_json(source / "tokenizer.json")["model"]["vocab"],
        )
        assert not list(converted.glob("*.py")) and "roles" in manifest.read(of_model / "export")["figures"]
        evaluation = read_json(of_model / "evaluate/evaluation.json")
        assert evaluation["vocab_size"] == len(entries) + (name == "more")
        assert evaluation["documents"].get("changed", 0) == (0 if name == "more" else evaluation["documents"]["scored"])
        validated = validations(workspace, name)
        assert validated[0]["step"] == 0 and validated[-1]["loss"] < validated[0]["loss"] < math.log(400) + 1

    card = ModelCard.load(workspace.path / "converted/more/README.md", ignore_metadata_errors=False)
    assert card.data.base_model == "ada/gpt2" and f"at commit `{commit}` (licence: mit)" in card.text
    done = workspace.python("-m", "babelmill", "plan", "more")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "A `gpt2` language model of English" in card.text and "add_bos_token" not in card.text
    text = " ".join(card.text.split())
    assert "The tokenizer of `ada/gpt2`, with 291 entries; decoding its tokens restores every text exactly" in text
    card = " ".join((workspace.path / "converted/bert/README.md").read_text().split())
    assert "validation documents (the tokenizer changes 10 of them" in card
    assert "with a [MASK] in it" in card and "does not restore every text exactly" in card
    average = validations(workspace, "bert")[-1]["ema_loss"]
    assert validations(workspace, "again")[-1]["loss"] == pytest.approx(average, abs=1e-4)

    # Of adapters, results and checkpoints hold them alone; a training goes on from its checkpoint to the same weights.
    trained = (workspace.path / "results/of/more/train/model.safetensors").resolve()
    run = workspace.path / "results/checkpoints" / trained.parent.name
    names = set(load_file(trained))
    assert names and all(".lora_" in name for name in names)
    assert trained.stat().st_size < (published / trained.name).stat().st_size / 2
    assert "lora" not in " ".join(load_file(workspace.path / "converted/more/model.safetensors"))
    kept = run / "snapshots/chck_0.0002M.safetensors"
    assert set(load_file(kept)) == names, "a snapshot holds adapters alone, too, and is exported with them"
    snapshot = workspace.path / "converted/more/snapshots/chck_0.0002M"
    assert {"model.safetensors", "README.md"} <= set(manifest.verify(snapshot)["files"])
