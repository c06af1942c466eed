"""Models of transformers and of masked diffusion from text to converted folder, in one run of the workflow.

GPT-2 and Llama (causal), BERT (masked), and by masked diffusion ModernBERT and a GPT-BERT, whose sampler is tested, too.
"""

import os
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM

from babelmill.cli import main
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json
from babelmill.model.transformers.diffusion_generation import generate
from babelmill.release.folder import trying
from conftest import ROOT, SMALL, Workspace, write_texts
from helpers.environments import TRANSFORMERS_4, installed
from helpers.models.transformers_models import KINDS, SMALL_WORKFLOW
from helpers.programs.prepared import run_python

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("models of transformers")]

OBJECTIVES = {"gpt2": "causal", "bert": "masked", "modernbert": "diffusion", "llama": "causal"}
MODELS = {
    kind: {
        "languages": ["eng"],
        "train": {"objective": objective},
        "model": {
            **{"architecture": "transformers", "max_position_embeddings": 64},
            "config": {"model_type": kind, **KINDS[kind][1]},
        },
    }
    for kind, objective in OBJECTIVES.items()
}
FOLDERS = [f"converted/{kind}" for kind in MODELS]
OURS = {"languages": ["eng"], "train": {"objective": "diffusion", "max_steps": 60}, "model": SMALL["model"]}


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
    assert AutoModel.from_pretrained(folder)(**inputs).last_hidden_state.shape[-1] == 16
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
    workspace.configure(SMALL_WORKFLOW | {"targets": list(MODELS), "models": MODELS | {"unmasking": OURS}})
    write_texts(workspace.path / "texts/eng", "eng")
    workspace.snakemake(*FOLDERS, "converted/unmasking", "--profile", ROOT / "profiles/local")
    return workspace


def card_of(made: Workspace, name: str) -> tuple[str, str]:
    """The card of a model of masked diffusion, and its code that generates, with the model's folder."""
    card = (made.path / f"converted/{name}/README.md").read_text()
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", card, re.DOTALL) if "diffusion_generation" in code)
    return card, code.replace(f'"{name}"', f'"{made.path}/converted/{name}"')


def test_scores_are_those_of_the_objective(made):
    for kind, objective in OBJECTIVES.items():
        evaluation = read_json(made.path / f"results/of/{kind}/evaluate/evaluation.json")
        assert {tuple(scores) for scores in evaluation["variants"].values()} == {(objective,)}
        assert 0.5 < evaluation["variants"]["ema"][objective]["value"] < 4
        exported = manifest.verify(made.path / f"results/of/{kind}/export")["files"]
        code = [name for name in exported if name.endswith(".py")]
        assert code == (["diffusion_generation.py"] if objective == "diffusion" else [])


def test_the_folders_load_in_both_versions_without_trust(made):
    """And the card's code generates by diffusion, as a user pastes it: the same text, for the seed is the same."""
    card, code = card_of(made, "modernbert")
    assert "gen_length=32" in code, "it reads 64 tokens"
    assert "of the folder, which contains only the sampler" in card
    code, output = f"FOLDERS = {FOLDERS}\n{USE}{PIPELINES}torch.manual_seed(0)\n{code}", []
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


# Masked diffusion with a GPT-BERT.


@pytest.fixture
def unmasking(made):
    """The model, as transformers loads it."""
    return AutoModelForMaskedLM.from_pretrained(made.path / "converted/unmasking", trust_remote_code=True)


def test_card_and_show_speak_of_a_bound_and_the_code_generates(made, tmp_path):
    """The code as a user pastes it, in a process that knows nothing of this project."""
    evaluation = read_json(made.path / "results/of/unmasking/evaluate/evaluation.json")
    assert list(evaluation["metrics"]) == ["diffusion", "unigram"] and evaluation["metrics"]["diffusion"]["bound"]
    score, (card, code) = evaluation["variants"]["ema"]["diffusion"], card_of(made, "unmasking")
    assert 0 < score["value"] < 12 and score["standard_error"] > 0 and f"at most {score['value']:.3f}" in card
    assert "text-generation" not in card.split("---")[1], "no pipeline of transformers generates with it"
    shown = made.babelmill("show", "converted/unmasking", "--prompt", "the quick")
    assert "bits per byte, upper bound" in shown and "'the quick" in shown
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = run_python("-c", code, cwd=tmp_path, environment=environment, check=True)
    assert done.stdout.startswith("The beginning of a text")


@pytest.mark.parametrize("remasking", ["low_confidence", "random"])
def test_generation_fills_blocks_from_left_to_right(unmasking, remasking):
    prompt, mask = torch.tensor([[1, 40], [1, 50]]), unmasking.config.mask_token_id
    seen, made = [], []
    unmasking.register_forward_pre_hook(lambda _, __, given: seen.append(given["input_ids"].clone()), with_kwargs=True)
    options = {"gen_length": 12, "block_length": 4, "steps": 6, "remasking": remasking, "temperature": 1.0}
    for seed in (0, 0, 1):
        made.append(generate(unmasking, prompt, mask, generator=torch.Generator().manual_seed(seed), **options))
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])
    assert torch.equal(made[0][:, :2], prompt) and not (made[0] == mask).any()
    masks = [(given[0, 2:] == mask).view(3, 4).sum(1).tolist() for given in seen[:6]]
    assert masks == [[4, 4, 4], [2, 4, 4], [0, 4, 4], [0, 2, 4], [0, 0, 4], [0, 0, 2]]


def test_numbers_of_generation_that_do_not_fit():
    for message, options in {
        "gen_length 10 is no multiple of block_length 4": {"gen_length": 10, "block_length": 4},
        "steps 3 is no multiple of the 2 blocks": {"gen_length": 8, "block_length": 4, "steps": 3},
        "choose one of low_confidence, random": {"remasking": "high_confidence"},
    }.items():
        with pytest.raises(ValueError, match=message):
            generate(torch.nn.Identity(), torch.zeros(1, 1, dtype=torch.long), 4, **options)


def test_guidance_moves_the_scores_away_from_those_without_a_prompt(unmasking):
    prompt, mask = torch.tensor([[1, 40, 50]]), unmasking.config.mask_token_id
    rows = torch.tensor([[1, 40, 50, mask], [mask, mask, mask, mask]])
    with torch.no_grad():
        given, without = unmasking(input_ids=rows).logits[:, 3]
    for scale in (0.0, 1.5):
        scores = without + (1 + scale) * (given - without)
        scores[mask] = -torch.inf
        assert generate(unmasking, prompt, mask, gen_length=1, cfg_scale=scale)[0, 3] == scores.argmax()
