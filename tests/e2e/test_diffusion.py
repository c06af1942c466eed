"""Masked diffusion from text to the converted folder: its bound, its card, and the text that it generates."""

import copy
import json
import re
import shutil

import pytest
import torch
from transformers import AutoModelForMaskedLM

from babelmill.model.transformers.diffusion_generation import generate
from conftest import ROOT, SMALL, Workspace
from helpers.programs.prepared import run_python

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("diffusion")]  # one process trains the model
MODEL = "unmasking"


@pytest.fixture
def model(diffused):
    """The model, as transformers loads it."""
    return AutoModelForMaskedLM.from_pretrained(diffused.path / f"converted/{MODEL}", trust_remote_code=True)


@pytest.fixture(scope="module")
def diffused(built, tmp_path_factory) -> Workspace:
    """The small workflow with a model of masked diffusion."""
    workspace = Workspace(shutil.copytree(built, tmp_path_factory.mktemp("diffusion") / "work", symlinks=True))
    values = copy.deepcopy(SMALL)
    values["models"] = {MODEL: {"languages": ["eng"], "train": {"objective": "diffusion", "max_steps": 60}}}
    workspace.configure(values)
    workspace.snakemake(f"converted/{MODEL}", "--profile", ROOT / "profiles/local")
    return workspace


def test_evaluation_card_and_show_speak_of_a_bound(diffused):
    evaluation = json.loads((diffused.path / f"results/of/{MODEL}/evaluate/evaluation.json").read_text())
    assert list(evaluation["metrics"]) == ["diffusion", "unigram"] and evaluation["metrics"]["diffusion"]["bound"]
    score = evaluation["variants"]["ema"]["diffusion"]
    assert 0 < score["value"] < 12 and score["standard_error"] > 0
    card = (diffused.path / f"converted/{MODEL}/README.md").read_text()
    assert f"at most {score['value']:.3f}" in card and "trained by masked diffusion" in card
    assert "text-generation" not in card.split("---")[1], "no pipeline of transformers generates with it"
    done = diffused.python("-m", "babelmill", "show", f"converted/{MODEL}", "--prompt", "the quick", check=True)
    assert "bits per byte, upper bound" in done.stdout and "'the quick" in done.stdout


def test_the_card_s_code_generates(diffused, tmp_path):
    """As a user pastes it, in a process that knows nothing of this project."""
    folder = diffused.path / f"converted/{MODEL}"
    card = (folder / "README.md").read_text()
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", card, re.DOTALL) if "diffusion_generation" in code)
    code, environment = code.replace(f'"{MODEL}"', f'"{folder}"'), {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = run_python("-c", code, cwd=tmp_path, environment=environment, check=True)
    assert done.stdout.startswith("The beginning of a text")


@pytest.mark.parametrize("remasking", ["low_confidence", "random"])
def test_generation_fills_blocks_from_left_to_right(model, remasking):
    prompt, mask = torch.tensor([[1, 40], [1, 50]]), model.config.mask_token_id
    seen, made = [], []
    model.register_forward_pre_hook(lambda _, __, given: seen.append(given["input_ids"].clone()), with_kwargs=True)
    options = {"gen_length": 12, "block_length": 4, "steps": 6, "remasking": remasking, "temperature": 1.0}
    for seed in (0, 0, 1):
        made.append(generate(model, prompt, mask, generator=torch.Generator().manual_seed(seed), **options))
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])
    assert torch.equal(made[0][:, :2], prompt) and not (made[0] == mask).any()
    masks = [(given[0, 2:] == mask).view(3, 4).sum(1).tolist() for given in seen[:6]]
    assert masks == [[4, 4, 4], [2, 4, 4], [0, 4, 4], [0, 2, 4], [0, 0, 4], [0, 0, 2]]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"gen_length": 10, "block_length": 4}, "gen_length 10 is no multiple of block_length 4"),
        ({"gen_length": 8, "block_length": 4, "steps": 3}, "steps 3 is no multiple of the 2 blocks"),
        ({"remasking": "high_confidence"}, "choose one of low_confidence, random"),
    ],
)
def test_numbers_of_generation_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        generate(torch.nn.Identity(), torch.zeros(1, 1, dtype=torch.long), 4, **options)


def test_guidance_moves_the_scores_away_from_those_without_a_prompt(model):
    prompt, mask = torch.tensor([[1, 40, 50]]), model.config.mask_token_id
    rows = torch.tensor([[1, 40, 50, mask], [mask, mask, mask, mask]])
    with torch.no_grad():
        given, without = model(input_ids=rows).logits[:, 3]
    for scale in (0.0, 1.5):
        scores = without + (1 + scale) * (given - without)
        scores[mask] = -torch.inf
        assert generate(model, prompt, mask, gen_length=1, cfg_scale=scale)[0, 3] == scores.argmax()
