"""`babelmill rehost`: which files are whose weights, what stays of a card, and what is refused in a line."""

import dataclasses
import errno
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save

from babelmill.cli import main
from babelmill.config.languages import read_table
from babelmill.core import manifest
from babelmill.core.files import UserError, write_json
from babelmill.hub import client
from babelmill.hub.files import Files
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.publish import publish_folder
from babelmill.release.elsewhere import rehosting
from babelmill.release.elsewhere.foreign_model import EMBEDDING
from babelmill.release.elsewhere.rehosting import (
    TABLE,
    OldModel,
    languages_of,
    learnt_target,
    read_weights,
    shipped,
)
from babelmill.tokenizer import train
from babelmill.tokens.tokenizer_file import encode
from helpers.hub.hub_data import BOS, EOS, SENTENCES, VOCABULARY, learn
from helpers.models.old_repositories import config, files, fill, pickled, weights
from helpers.stages import any_settings

pytestmark = pytest.mark.slow

MODEL, EMA, LAST = "model.safetensors", "model_ema.safetensors", "model_main.safetensors"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "WAITS", ())
    monkeypatch.setattr(client.time, "sleep", lambda seconds: None)
    return tmp_path


def here(*names: str) -> Files:
    return Files(dict.fromkeys(names, 0), lambda names: {name: Path(name) for name in names}, "here", {})


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


@pytest.mark.parametrize(
    ("message", "name", "variant"), [("ema", "old", "ema"), ("main", "old-ema", "main"), ("", "o-ema", "ema")]
)
def test_weights_without_a_variant_in_their_name(message, name, variant):
    """The scripts' `--variant main` and `--separate-ema` left them: the card lists what there is."""
    Path("README.md").write_text(f"## Variants Available\n{message}\n\n## Files\n")
    found = dataclasses.replace(here(MODEL, "README.md"), figures={"repository": f"lab/{name}"})
    assert shipped(found) == {variant: [MODEL]}


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
    tokens, lengths = encode(tokenizer, SENTENCES)
    texts = torch.tensor(tokens.astype("int64")).split(lengths.tolist())
    texts = [torch.cat([torch.tensor([BOS]), text, torch.tensor([EOS])]) for text in texts]
    rows = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=3)
    dropout = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    shape = GPTBertShape(tokenizer.get_vocab_size(), 48, 64, 2, 2, **dropout)
    for ahead, steps, wanted in ((1, 150, "next"), (0, 150, "same"), (1, 5, None)):
        torch.manual_seed(0)
        model = GPTBert(shape)
        learn(model, rows, steps, ahead)
        assert learnt_target(dataclasses.asdict(shape), model.state_dict(), tokenizer) == wanted


def test_the_language():
    table = read_table(TABLE)
    names = {"babybabellm-gpt_bert-eng-causal": ["eng"], "old": [], "min-eng": []}
    assert {name: languages_of(name, table) for name in names} == names


# The command, up to the conversion.


@pytest.fixture
def hub(hub, folder, monkeypatch):
    """The client of this process, which has read its environment, asks the test Hub, too."""
    for name in ("ENDPOINT", "HF_HUB_CACHE", "HF_HUB_DISABLE_XET", "HUGGINGFACE_CO_URL_TEMPLATE"):
        before = getattr(constants, name)
        values = {"ENDPOINT": hub.url, "HF_HUB_CACHE": str(folder / "cache"), "HF_HUB_DISABLE_XET": True}
        monkeypatch.setattr(
            constants, name, values.get(name) or before.replace(constants._HF_DEFAULT_ENDPOINT, hub.url)
        )
    monkeypatch.delenv("HF_TOKEN", raising=False)
    fill(hub)
    return hub


def test_an_owner_and_a_prefix(hub, capsys, monkeypatch):
    for arguments, words in {
        ("labs/old",): "shows no models of 'labs': correct the name",
        ("lab/odl-",): "lab/odl-: this owner has no model whose name begins like this; did you mean lab/old-",
        ("lab",): "owner/prefix is expected",
        ("lab/old-", "--push"): "needs a token",
    }.items():
        assert main(["rehost", *arguments]) == 1
        errors = capsys.readouterr().err
        assert errors.count("error: ") == 1 and words in errors and "Traceback" not in errors
    assert main(["rehost", "lab/old-deu"]) == 1  # it is private
    output = capsys.readouterr().err.splitlines()
    assert "no token (HF_TOKEN or `hf auth login`): private repositories of lab are not found" in output[0]
    assert "lab/old-deu: this owner has no model whose name begins like this" in output[1]
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    names = [f"lab/old-{name}" for name in ("bert", "deu", "eng", "fra", "nld", "zho")]
    assert rehosting.repositories("lab/old-") == names and hub.count("cursor=3")


def test_what_cannot_be_converted(hub, capsys):
    """Each in its line; none gets as far as the proof."""
    hub.repositories.clear()
    card, whole = files(), {"model.safetensors": save(weights("model."))}
    hub.commit("models/lab/card", card | whole | {"README.md": b"---\na: [\n---\n"})
    hub.commit("models/lab/code", card | {"pytorch_model.bin": pickled({"x": Path("x")})})
    hub.commit("models/lab/gone", card | whole, gated=True)
    hub.commit("models/lab/learnt", card | whole)
    hub.commit("models/lab/no_config", {"README.md": b"", **whole})
    hub.commit("models/lab/no_weights", card)
    assert main(["rehost", "lab/"]) == 1
    found = capsys.readouterr()
    assert "No files matched" not in found.err and not Path("rehosted").exists()
    lines = dict(line.split(": ", 1) for line in found.out.splitlines())
    wanted = {
        "card": "the front matter of README.md: not valid YAML",
        "code": "contains more than tensors and plain values",
        "gone": "is gated: accept its terms",
        "learnt": "failed: the model has learnt too little to tell which token it predicts at a mask: set --masked-target",
        "no_config": "skipped: it has no config.json; name the file with its shape by --config",
        "no_weights": "has no file of weights",
    }
    assert [name.removeprefix("lab/") for name in lines] == [*wanted]
    for name, words in wanted.items():
        assert words in lines[f"lab/{name}"], lines[f"lab/{name}"]


def test_a_commit_is_on_top_of_what_was_converted(hub, folder, monkeypatch):
    """Somebody's commit in between is not overwritten."""
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    (folder / "made").mkdir()
    (folder / "made/a.txt").write_text("a")
    manifest.write("made", any_settings("convert", name="made"), ["a.txt"])
    head = hub.repositories["models/lab/old-eng"].branches["main"]
    hub.commit("models/lab/old-eng", {"b.txt": b"theirs"})
    with pytest.raises(UserError, match=f"lab/old-eng was at {head}, but is at .* now: run the same command again"):
        publish_folder(folder / "made", "lab/old-eng", "made", False, "Rehosted", head)
    head = hub.repositories["models/lab/old-eng"].branches["main"]
    publish_folder(folder / "made", "lab/old-eng", "made", False, "Rehosted", head)
    publish_folder(folder / "made", "lab/old-eng", "made", False, "Rehosted", head)  # it is there, the answer was lost
    assert [entry["summary"] for entry in hub.repositories["models/lab/old-eng"].history] == ["Rehosted"]


def test_a_folder_of_the_users_own_is_not_deleted(hub, folder, capsys):
    """Such as a clone of the repository, where --out is a folder of clones."""
    clone = folder / "rehosted/lab/old-eng/notes.txt"
    clone.parent.mkdir(parents=True)
    clone.write_text("mine")
    assert main(["rehost", "lab/old-eng", "--masked-target", "next"]) == 1
    assert "failed: --out rehosted/lab/old-eng already exists; remove it or name" in capsys.readouterr().out
    assert clone.read_text() == "mine"


def test_a_bug_or_a_full_disk_is_one_models_line(capsys, monkeypatch):
    errors = [OSError(errno.ENOSPC, "full", "rehosted/a"), KeyError("x")]
    monkeypatch.setattr(rehosting, "repositories", lambda source: ["lab/a", "lab/b"])
    monkeypatch.setattr(rehosting, "model_of", Mock(side_effect=errors))
    assert main(["rehost", "lab/"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "lab/a: failed: rehosted/a: full",
        "lab/b: failed: KeyError, see the traceback on standard error",
    ]
