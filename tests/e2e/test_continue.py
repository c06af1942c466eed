"""Models that go on from a trained one, in a workflow that is really run: from `eng`, and from `eng` on the Hub."""

import math
import re

import pytest

from babelmill.core.files import read_json, sha256
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
    expected = {(stage, "eng") for stage in ("tokenizer", "shards", "train", "export", "evaluate", "base_model")}
    targets = [f"converted/{name}" for name in MODELS]
    assert workspace.would_run(targets=targets) == expected | {("convert", name) for name in MODELS}
    workspace.snakemake(*targets)
    assert workspace.would_run(targets=[*targets, "converted/eng"]) == set()
    assert len(list(path.glob("results/train/eng-*"))) == 1 + len(MODELS), "the source was there"

    source, still = validations(workspace, "eng")[-1], validations(workspace, "still")[-1]
    assert still["loss"] == pytest.approx(source["ema_loss"], abs=1e-5), "its average, which its export ships"
    assert abs(source["ema_loss"] - source["loss"]) > 1e-3, "and not the last weights"
    assert still["loss"] < math.log(SMALL["tokenizer"]["vocab_size"]) - 0.1, "nor random ones"
    weights = {name: sha256(path / f"results/of/{name}/train/model.safetensors") for name in MODELS}
    assert weights["more"] == weights["hub"] != weights["still"]
    tokenizers = {sha256(path / f"results/of/{name}/tokenizer/tokenizer.json") for name in ["eng", *MODELS]}
    assert len(tokenizers) == 1

    card = " ".join((path / "converted/more/README.md").read_text().split())
    assert validations(workspace, "more")[0]["step"] == 0, "the source, on the same text"
    assert f"| causal | {source['ema_loss_causal']:.4g} |" in card
    read = r"trained on [\d,]+ tokens (\([\d,]+ words\) )?of `eng`"
    assert re.search(rf"continued from the weights of `eng` \(weights with sha256 `[0-9a-f]{{64}}`, {read}\)", card)
    assert "base_model" not in card.split("---")[1] and "hidden_size: 32" in card
    figures = read_json(path / "results/of/hub/train/manifest.json")["figures"]
    assert (figures["source"]["repository"], figures["source"]["commit"]) == ("ada/eng", commit)
    assert f"models/ada/eng@main {commit}\n" in (path / "results/hub.lock").read_text()
    assert re.search(r"more +convert +converted", workspace.babelmill("status", "more"))

    # Another name of the source trains nothing; what carries a name says the new one.
    renamed = {"base": {"languages": ["eng"]}, "more": {"model": {"source": "base"}, **MORE}}
    workspace.configure(SMALL | {"models": renamed})
    assert workspace.would_run(targets=["converted/more"]) == {("convert", "more")}

    # Another source is another run; its text and tokenizer stay.
    changed = SMALL | {"models": MODELS | {"eng": {"train": SMALL["train"] | {"max_steps": 6}}}}
    workspace.configure(changed)
    after = {("convert", "more"), *((stage, "eng") for stage in ("train", "export", "evaluate"))}
    assert workspace.would_run(targets=["converted/more"]) == after
    why = workspace.babelmill("why", "more")
    assert re.search(r"^  train of eng +train\.max_steps 8 -> 6$", why, re.MULTILINE), why
    assert re.search(r"^  train +runs because train does$", why, re.MULTILINE), why
    assert re.search(r"^  tokenizer +up to date", why, re.MULTILINE)
