"""Models of transformers from text to converted folder, in one run of the workflow.

GPT-2 and Llama (causal), BERT (masked) and ModernBERT (masked diffusion).
"""

import os
import re
from pathlib import Path

import pytest

from babelmill.cli import main
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json
from babelmill.release.folder import trying
from conftest import ROOT, Workspace, write_texts
from helpers.environments import TRANSFORMERS_4, installed
from helpers.models.transformers_models import SMALL_WORKFLOW
from helpers.programs.prepared import run_python

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("models of transformers")]

BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
SIZES = {
    "gpt2": ("causal", {"n_embd": 32, "n_layer": 2, "n_head": 2}),
    "bert": ("masked", BERT),
    "modernbert": ("diffusion", BERT),
    "llama": ("causal", BERT | {"num_key_value_heads": 1, "rope_theta": 5000.0}),
}
MODELS = {
    kind: {
        "languages": ["eng"],
        "train": {"objective": objective},
        "model": {
            **{"architecture": "transformers", "max_position_embeddings": 64},
            "config": {"model_type": kind, **sizes},
        },
    }
    for kind, (objective, sizes) in SIZES.items()
}
FOLDERS = [f"converted/{kind}" for kind in MODELS]


# Loaded and used by the first lines of a card, without `trust_remote_code`; with any version of transformers.
USE = """
import torch, transformers
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline
for folder in FOLDERS:
    name = folder.split("/")[1]
    auto = "AutoModelForCausalLM" if name in ("gpt2", "llama") else "AutoModelForMaskedLM"
    tokenizer, config = AutoTokenizer.from_pretrained(folder), AutoConfig.from_pretrained(folder)
    assert len(tokenizer) == config.vocab_size == 320 and config.pad_token_id == tokenizer.pad_token_id == 3
    inputs = tokenizer("the quick fox", return_tensors="pt")
    assert inputs["input_ids"][0, 0] == tokenizer.bos_token_id and set(inputs) == {"input_ids", "attention_mask"}
    cls, scores = getattr(transformers, auto), []
    for variant in (None, "main"):
        model, report = cls.from_pretrained(folder, variant=variant, output_loading_info=True)
        assert not report["missing_keys"] and not report["unexpected_keys"]
        scores.append(model.eval()(**inputs).logits)
    assert (scores[0] != scores[1]).any()
    long = torch.full((1, 64), 20)
    assert model(long).logits.isfinite().all()
    print(name, round(scores[0].double().sum().item(), 2))
    assert AutoModel.from_pretrained(folder)(**inputs).last_hidden_state.shape[-1] == 32
    assert AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3)(**inputs).logits.shape == (1, 3)
"""
PIPELINES = """
print(repr(pipeline("text-generation", model="converted/gpt2")("the", max_new_tokens=3, do_sample=False)))
print(repr(pipeline("fill-mask", model="converted/bert")("the <mask> fox")[0]["token_str"]))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A workflow's folder, once for this module."""
    workspace = Workspace(tmp_path_factory.mktemp("made"))
    workspace.configure(SMALL_WORKFLOW | {"targets": list(MODELS), "models": MODELS})
    write_texts(workspace.path / "texts/eng", "eng")
    workspace.snakemake(*FOLDERS, "--profile", ROOT / "profiles/local")
    return workspace


def test_scores_are_those_of_the_objective(made):
    for kind, (objective, _) in SIZES.items():
        evaluation = read_json(made.path / f"results/of/{kind}/evaluate/evaluation.json")
        assert {tuple(scores) for scores in evaluation["variants"].values()} == {(objective,)}
        assert 0.5 < evaluation["variants"]["ema"][objective]["value"] < 4
        exported = manifest.verify(made.path / f"results/of/{kind}/export")["files"]
        code = [name for name in exported if name.endswith(".py")]
        assert code == (["diffusion_generation.py"] if objective == "diffusion" else [])


def test_the_folders_load_in_both_versions_without_trust(made):
    """And the card's code generates by diffusion, as a user pastes it: the same text, for the seed is the same."""
    card = (made.path / "converted/modernbert/README.md").read_text()
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", card, re.DOTALL) if "diffusion_generation" in code)
    assert "gen_length=32" in code, "it reads 64 tokens"
    assert "of the folder, which contains only the sampler" in card
    code = "torch.manual_seed(0)\n" + code.replace('"modernbert"', '"converted/modernbert"')
    code, output = f"FOLDERS = {FOLDERS}\n{USE}{PIPELINES}{code}", []
    for packages in ("", str(installed(TRANSFORMERS_4))):
        environment = os.environ | {"PYTHONPATH": packages, "HF_HUB_OFFLINE": "1"}
        done = run_python("-c", code, cwd=made.path, environment=environment, check=True)
        output.append(done.stdout[done.stdout.index("gpt2") :])
    assert output[0] == output[1] and "\nThe beginning of a text" in output[0]


def test_show_fills_and_continues(made, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # as the command does, for good
    gpt2, bert, diffusion, _ = (str(made.path / folder) for folder in FOLDERS)
    assert main(["show", gpt2, "--prompt", "the quick"]) == main(["show", bert, "--masked", "the <mask> fox"]) == 0
    assert main(["show", diffusion, "--prompt", "seven wizards", "--masked", "the <mask> fox"]) == 0
    output = capsys.readouterr().out
    assert "causal" in output and "masked" in output and "the quick ..." in output and "the <mask> fox" in output
    assert "bits per byte, upper bound" in output and "'seven wizards" in output
    with pytest.raises(UserError, match=r"--prompt has .* tokens, but the model reads only 64 with those that follow"):
        trying.complete(Path(diffusion), "seven wizards boil warm water " * 9)
