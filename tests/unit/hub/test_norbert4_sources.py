"""The stage `base_model` for NorBERT4 as HPLT publishes it: our tensors, ready for every objective, or one clear line."""

import argparse
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from babelmill import base_model
from babelmill.commands.plan import size_of_model
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json, write_json
from babelmill.core.stage_entry import Job
from babelmill.graph import Graph
from babelmill.stages import BaseModelStage
from babelmill.tokenizer import adopt_from_model
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.train import make_network
from babelmill.training.networks.source_weights import load_weights
from helpers.hub.hub_stage import asked_for
from helpers.models.published import norbert4, write_norbert4
from helpers.stages import settings_of
from helpers.training.tiny_trainer import ALONE
from helpers.training.training_data import VOCABULARY, section, train_settings

pytestmark = pytest.mark.slow

HEAD = "classifier.emb2vocab.weight"


@pytest.fixture(autouse=True)
def theirs(tmp_path, monkeypatch) -> dict[str, torch.Tensor]:
    """The weights of a published model in the folder `theirs`."""
    monkeypatch.chdir(tmp_path)
    return write_norbert4(Path("theirs"))


def run(**more) -> dict:
    """Run the stage; its manifest."""
    asked = {"source": None, "sources": {"theirs": {}}, "shape": {}, "architecture": "norbert4"}
    settings = Path(asked_for("base_model", asked | more))
    base_model.run(Job(BaseModelStage, settings, 1, 0, argparse.Namespace()))
    return manifest.verify("out")


def refused(**more) -> str:
    with pytest.raises(UserError) as error:
        run(**more)
    assert "\n" not in str(error.value) and not Path("out").exists()
    return str(error.value)


@pytest.mark.parametrize("objective", ["hybrid", "masked", "causal", "diffusion"])
def test_every_objective_begins_with_its_weights(theirs, objective):
    made = run()
    assert made["figures"]["architecture"] == "norbert4"
    tokenizer, roles = adopt_from_model(Path("out"), "theirs")
    assert roles is None and tokenizer.encode("a<mask>").tokens[0] == "<s>", "a token before a text"
    assert made["figures"]["parameters"] == sum(t.numel() for n, t in theirs.items() if n != HEAD)
    model = section("model", architecture="norbert4", source="./theirs", hidden_dropout_prob=0.3)
    settings = train_settings(["eng"], model, section("train", objective=objective))
    network = make_network(settings, VOCABULARY, Path("out"), ALONE)
    assert network.config.items() >= norbert4()[0].items()
    assert (network.config["embedding_dropout"], network.config["hidden_dropout"]) == (0.3, 0.3)
    load_weights(Path("out/model.safetensors"), network)
    assert network.weights().keys() == theirs.keys() - {HEAD}
    assert all(torch.equal(value, theirs[name]) for name, value in network.weights().items())


def test_a_tokenizer_with_other_names_stays_as_it_is():
    text = Path("theirs/tokenizer.json").read_text()
    for ours, other in (("<s>", "[CLS]"), ("</s>", "[SEP]"), ("<mask>", "[MASK]"), ("<pad>", "[PAD]")):
        text = text.replace(json.dumps(ours), json.dumps(other))
    Path("theirs/tokenizer.json").write_text(text)
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "pad_token": "[PAD]"}
    write_json("theirs/tokenizer_config.json", names)
    run()
    tokenizer, roles = adopt_from_model(Path("out"), "theirs")
    assert roles == {"entries": 160, "begin": 1, "end": 2, "pad": 3, "mask": 4, "unknown": None}
    assert tokenizer.encode("a").tokens[0] != "[CLS]", "documents get it, not the tokenizer"
    model = section("model", architecture="norbert4", source="./theirs")
    vocabulary = Vocabulary.published(roles, {1, 2, 3, 4})
    network = make_network(train_settings(["eng"], model, section("train")), vocabulary, Path("out"), ALONE)
    assert network.config["vocab_size"] == 160 < vocabulary.size


def test_what_does_not_fit_is_one_line(theirs):
    config = read_json(Path("theirs/config.json"))
    assert "is a norbert4 model: set model.architecture: norbert4 next to model.source" in refused(
        architecture="gpt_bert"
    )
    assert "model.num_hidden_layers = 9: the model in theirs has 5" in refused(shape={"num_hidden_layers": 9})
    write_json("theirs/config.json", config | {"hidden_size": 96})
    assert "this is not the model that it describes: classifier.emb2vocab.scale is [48]" in refused()
    for key, value in (
        ("query_key_head_size", 11),
        ("local_window_length", "6"),
        ("vocab_size", 0),
    ):
        write_json("theirs/config.json", config | {key: value})
        assert key in refused(), key
    write_json("theirs/config.json", config)
    torch.save(theirs | {HEAD: theirs[HEAD] + 1}, "theirs/pytorch_model.bin")
    assert f"{HEAD} is not the token embedding" in refused()
    Path("theirs/pytorch_model.bin").unlink()
    save_file({name: value for name, value in theirs.items() if name != HEAD}, "theirs/model.safetensors")
    run()
    assert load_file("out/model.safetensors").keys() == theirs.keys() - {HEAD}


def test_the_settings_say_which_architecture_it_is():
    more = {"languages": ["eng"], "model": {"source": "./theirs", "architecture": "norbert4"}}
    configuration = Configuration([("config.yaml", {"models": {"more": more}})])
    assert settings_of(configuration, "more", "base_model")["architecture"] == "norbert4"
    labels = {"train": {"objective": "labels", "sequence_lengths": [32], "phase_starts": [0.0]}}
    with pytest.raises(UserError, match="norbert4 has no labels"):
        Configuration([("config.yaml", {"models": {"more": more | labels}})]).model("more")
    assert size_of_model(Graph(configuration), "more").parameters == run()["figures"]["parameters"]
