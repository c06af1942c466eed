"""`babelmill rehost`: which files are whose weights, what masked positions predict, and what is refused in a line."""

import dataclasses
import errno
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save

from babelmill.cli import main
from babelmill.core.files import UserError, write_json
from babelmill.hub.files import Files
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.release.elsewhere import rehosting
from babelmill.release.elsewhere.foreign_model import EMBEDDING
from babelmill.release.elsewhere.rehosting import OldModel, languages_of, learnt_target, read_weights, shipped
from babelmill.tokenizer import train
from helpers.hub.hub_data import SENTENCES, VOCABULARY, learn, rows_of
from helpers.models.old_repositories import config, files, fill, weights
from helpers.programs.prepared import run_module

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("folder")]

MODEL, EMA, LAST = "model.safetensors", "model_ema.safetensors", "model_main.safetensors"


def here(*names: str, **figures: str) -> Files:
    return Files(dict.fromkeys(names, 0), lambda names: {name: Path(name) for name in names}, "here", figures)


@pytest.mark.parametrize(
    ("names", "variants"),
    [
        ([MODEL, "pytorch_model.bin"], {"main": [MODEL]}),
        ([MODEL, EMA], {"ema": [EMA], "default": [MODEL]}),
        ([LAST, "model.ema.safetensors"], {"main": [LAST], "ema": ["model.ema.safetensors"]}),
        (["a.bin", "a_ema.bin", "a_state_dict.bin"], {"main": ["a.bin"], "ema": ["a_ema.bin"]}),
        (["a.bin"], {"main": ["a.bin"]}),
        (["a_ema.bin"], {"ema": ["a_ema.bin"]}),
        (["pytorch_model_ema.bin"], {"ema": ["pytorch_model_ema.bin"]}),
    ],
)
def test_shipped_weights(names, variants):
    assert shipped(here(*names)) == variants


def test_weights_without_a_variant_in_their_name():
    """The scripts' `--variant main` and `--separate-ema` left them: the card lists what there is."""
    for said, name, variant in (("ema", "old", "ema"), ("main", "old-ema", "main"), ("", "o-ema", "ema")):
        Path("README.md").write_text(f"## Variants Available\n{said}\n\n## Files\n")
        assert shipped(here(MODEL, "README.md", repository=f"lab/{name}")) == {variant: [MODEL]}


def test_which_variant_loads_by_default():
    """That whose tensors model.safetensors holds: the scripts overwrote the other one there."""
    for name, factor in {MODEL: 1.0, EMA: 1.0, LAST: 2.0, "half.safetensors": 0.5}.items():
        Path(name).write_bytes(save(weights("model.", factor)))
    write_json("config.json", config() | {"vocab_size": 77})  # of another model: the embedding says how many there are
    golden = weights("")[EMBEDDING].mean().item()

    def read(default: list[str], **variants: str):
        given = {variant: [name] for variant, name in variants.items()} | ({"default": default} if default else {})
        shape, found, loaded = read_weights(OldModel(here(), given, Path("config.json"), "old"))
        assert shape["vocab_size"] == 96
        return "".join(found), loaded, round(found[loaded][EMBEDDING].mean().item() / golden, 3)

    assert read([MODEL], ema=EMA) == ("ema", "ema", 1)
    assert read([MODEL], ema=EMA, main=LAST) == ("mainema", "ema", 1)
    assert read([LAST], ema=EMA, main=LAST) == ("mainema", "main", 2)
    assert read([MODEL], main=LAST) == ("mainema", "ema", 1)
    assert read([MODEL]) == ("main", "main", 1)
    assert read([], main=LAST, ema=EMA) == ("mainema", "ema", 1)
    without = {name: value for name, value in weights("model.").items() if ".dwa_modules." not in name}
    Path("other.safetensors").write_bytes(save(without))
    with pytest.raises(UserError, match="are weights of different models"):
        read([], main=LAST, ema="other.safetensors")
    with pytest.raises(UserError, match=r"half\.safetensors has neither the weights of"):
        read(["half.safetensors"], main=LAST, ema=EMA)


def test_the_model_itself_says_what_masked_positions_predict():
    """Also where the hidden token was learnt at its own position; one that has learnt little does not say."""
    tokenizer = train(iter([SENTENCES * 3]), VOCABULARY, 2)
    dropout = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    shape = GPTBertShape(tokenizer.get_vocab_size(), 48, 64, 2, 2, **dropout)
    for ahead, wanted in ((1, "next"), (0, "same")):
        torch.manual_seed(0)
        model = GPTBert(shape)
        learn(model, rows_of(tokenizer), 150, ahead)
        assert learnt_target(dataclasses.asdict(shape), model.state_dict(), tokenizer) == wanted


def test_the_language():
    names = {"babybabellm-gpt_bert-eng-causal": ["eng"], "old": [], "min-eng": []}
    assert {name: list(languages_of(name)) for name in names} == names


def test_what_is_refused_without_a_token(hub, folder):
    """A word of what to do; a folder of the user's own, such as a clone of the repository, is not deleted."""
    fill(hub)
    hub.commit("models/lab/gone", files(), gated=True)
    clone = folder / "rehosted/lab/old-eng/notes.txt"
    clone.parent.mkdir(parents=True)
    clone.write_text("mine")
    for arguments, words in {
        ("labs/old",): "shows no models of 'labs': correct the name",
        ("lab/odl-",): "lab/odl-: this owner has no model whose name begins like this; did you mean lab/old-",
        ("lab",): "owner/prefix is expected",
        ("lab/old-", "--push"): "needs a token",
        ("lab/gone",): "is gated: accept its terms",
        (
            "lab/old-nld",
        ): "failed: the model has learnt too little to tell which token it predicts at a mask: set --masked",
        (
            "lab/old-eng",
            "--masked-target",
            "next",
        ): "failed: --out rehosted/lab/old-eng already exists; remove it or name",
        ("lab/old-deu",): "lab/old-deu: this owner has no model whose name begins like this",  # it is private
    }.items():
        done = run_module("babelmill", "rehost", *arguments)
        said = done.stdout + done.stderr
        assert done.returncode == 1 and words in said and "Traceback" not in said and said.count("error: ") < 2, said
    assert "no token (HF_TOKEN or `hf auth login`): private repositories of lab are not found" in done.stderr
    assert clone.read_text() == "mine" and [path for path in folder.rglob("rehosted/**/*") if path.is_file()] == [clone]


def test_a_bug_or_a_full_disk_is_one_models_line(capsys, monkeypatch):
    errors = [OSError(errno.ENOSPC, "full", "rehosted/a"), KeyError("x")]
    monkeypatch.setattr(rehosting, "repositories", lambda source: ["lab/a", "lab/b"])
    monkeypatch.setattr(rehosting, "model_of", Mock(side_effect=errors))
    assert main(["rehost", "lab/"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "lab/a: failed: rehosted/a: full",
        "lab/b: failed: KeyError, see the traceback on standard error",
    ]
