"""Models that go on from a trained one, in a workflow that is really run: from `eng`, and from `eng` on the Hub."""

import json
import math
import re

import pytest

from babelmill.core.files import sha256
from conftest import SMALL

pytestmark = pytest.mark.slow

# A step that changes next to nothing, and the real one.
STILL = {"train": {"max_steps": 1, "learning_rate": 1.0e-12}}
MORE = {"train": {"max_steps": 4, "epochs": 1}}
MODELS = {
    "still": {"model": {"source": "eng"}, **STILL},
    "more": {"model": {"source": "eng"}, **MORE},
    "hub": {"languages": ["eng"], "model": {"source": "ada/eng"}, **MORE},
}


def validations(workspace, model: str) -> list[dict]:
    return [line for line in workspace.metrics(model) if line["kind"] == "validation"]


def test_a_model_goes_on_from_another(workspace, hub):
    """Its first loss is the source's last, its results are those that it has from the source's folder on the Hub."""
    path = workspace.path
    exported = {file.name: file.read_bytes() for file in (path / "converted/eng").iterdir() if file.is_file()}
    commit = hub.commit("models/ada/eng", exported)
    workspace.configure(SMALL | {"models": MODELS})
    targets = ["results/models/still/manifest.json", "converted/more", "results/models/hub/manifest.json"]
    expected = {("tokenizer", name) for name in MODELS} | {("shards", name) for name in MODELS}
    expected |= {("train", name) for name in MODELS} | {("base_model", "hub")}
    expected |= {(stage, "more") for stage in ("export", "evaluate", "convert")}
    assert workspace.would_run(targets=targets) == expected, "the source is there"
    workspace.snakemake(*targets)
    assert workspace.would_run(targets=[*targets, "converted/eng"]) == set()

    source, still = validations(workspace, "eng")[-1], validations(workspace, "still")[-1]
    assert still["loss"] == pytest.approx(source["ema_loss"], abs=1e-5), "its average, which its export ships"
    assert abs(source["ema_loss"] - source["loss"]) > 1e-3, "and not the last weights"
    assert still["loss"] < math.log(SMALL["tokenizer"]["vocab_size"]) - 0.1, "nor random ones"
    weights = {name: sha256(path / f"results/models/{name}/model.safetensors") for name in MODELS}
    assert weights["more"] == weights["hub"] != weights["still"]
    tokenizers = {sha256(path / f"results/tokenizers/{name}/tokenizer.json") for name in ["eng", *MODELS]}
    assert len(tokenizers) == 1

    card = (path / "converted/more/README.md").read_text()
    assert validations(workspace, "more")[0]["step"] == 0, "the source, on the same text"
    assert f"| causal | {source['ema_loss_causal']:.4g} |" in card
    read = r"trained on [\d,]+ tokens (\([\d,]+ words\) )?of `eng`"
    assert re.search(rf"continued from the weights of `eng` \(weights with sha256 `[0-9a-f]{{64}}`, {read}\)", card)
    assert "base_model" not in card.split("---")[1] and "| `model.hidden_size` | 32 |" in card
    figures = json.loads((path / "results/models/hub/manifest.json").read_text())["figures"]
    assert (figures["source"]["repository"], figures["source"]["commit"]) == ("ada/eng", commit)
    assert f"models/ada/eng@main {commit}\n" in (path / "results/hub.lock").read_text()
    assert re.search(r"more +convert +converted", workspace.babelmill("status", "more"))

    # Another source is another run; its text and tokenizer stay.
    changed = SMALL | {"models": MODELS | {"eng": {"train": SMALL["train"] | {"max_steps": 6}}}}
    workspace.configure(changed)
    after = {("train", "eng"), *((stage, "more") for stage in ("train", "export", "evaluate", "convert"))}
    assert workspace.would_run(targets=["converted/more"]) == after
    why = workspace.babelmill("why", "more")
    assert "eng: train       train.max_steps 8 -> 6" in why and "  train            runs because train does" in why
    assert re.search(r"^  tokenizer +up to date", why, re.MULTILINE)
    assert re.search(r"more +train +outdated", workspace.babelmill("status", "more"))
    unused = [line for line in workspace.babelmill("clean").splitlines() if " unused " in line]
    assert len(unused) == 1 and "/eng/" in unused[0]
