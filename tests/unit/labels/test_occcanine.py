"""Going on from what OccCANINE's training saved: its encoder, its heads, and its codes (`make_occcanine.py`)."""

import argparse
from pathlib import Path

import pytest
import torch
import transformers

from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.labels.codes import Codes
from babelmill.labels.data import begun
from babelmill.labels.network import Labeller, LabelsNetwork, encoder_config, make_encoder
from babelmill.tokens import characters
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.networks.source_weights import load_weights
from helpers.models.make_occcanine import KEY, write
from helpers.models.published_models import publish_canine
from helpers.models.transformers_models import ALONE
from helpers.stages import read_settings, run_stage
from helpers.training.training_data import section

pytestmark = pytest.mark.slow

CODES = ["-1", "61110", "02105", "71105", "83110"]  # in the order of its classes
LABELS = section("labels", code="hisco")


@pytest.fixture(autouse=True)
def theirs(folder):
    """The published model; the folder has the configuration and tokenizer of its encoder beside it."""
    folder = publish_canine(Path("theirs"))
    (folder / "pytorch_model.bin").unlink()
    return write(folder, transformers.CanineConfig.from_pretrained(folder))


def configuration() -> Configuration:
    train = {"objective": "labels", "sequence_lengths": [32], "phase_starts": [0], "optimizer": "adamw"}
    model = {"architecture": "transformers", "source": "./theirs"}
    named = {"occ": {"languages": ["eng"], "model": model, "train": train, "labels": {"code": "hisco"}}}
    return Configuration([("test", {"models": named})])


def fetch() -> Path:
    run_stage("base_model", configuration(), "occ", "base")
    return Path("base")


def go_on(names: list[str]) -> tuple[LabelsNetwork, str]:
    """A network of these codes that has begun with its source's weights, and what is said of its heads."""
    base = fetch()
    asked = read_settings("train", configuration(), "occ")
    codes, heads, message = begun(base, Codes(names, "hisco", 5), LABELS)
    vocabulary = Vocabulary.published(characters.ROLES, set())
    config = encoder_config(asked, base, vocabulary)
    network = LabelsNetwork(config, asked.train, LABELS, codes, 2, ALONE, heads=heads)
    load_weights(base / "model.safetensors", network)
    return network, message


def test_the_same_codes_have_the_same_scores(theirs):
    """Those of a text may be a part of them. No code is lost, and the class without one is left out."""
    network, message = go_on(["02105", "83110"])
    assert message == "its linear head continues, with its 5 codes; its decoder continues"
    assert list(network.config["labels"]["codes"]) == CODES
    made = Labeller(make_encoder(network._encoder.config), network.config["labels"]).eval()
    made.load_state_dict(network.weights())
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(40, 300, (2, 24), generator=generator)
    blocks = torch.tensor([[[5, 5, 5, 5, 5], [9, 10, 11, 12, 17]], [[8, 8, 9, 8, 8], [1, 1, 1, 1, 1]]])
    begin = torch.tensor([[2], [2]])
    more = torch.nn.functional.pad(ids, (0, 8))  # as rows are padded here; it sees its padding, ours does not
    with torch.no_grad():
        scores, symbols = made(ids, torch.ones_like(ids, dtype=torch.bool), blocks)
        linear, _ = theirs(ids, begin)
        hidden = theirs.encoder(input_ids=more, attention_mask=(more > 0).long()).last_hidden_state[:, :24]
        theirs.encoder.forward = lambda **_: argparse.Namespace(last_hidden_state=hidden, pooler_output=hidden[:, 0])
        _, spelt = theirs(ids, torch.cat([begin, blocks.flatten(1)[:, :-1]], 1))
    rows = [KEY["2105" if code == "02105" else code] for code in CODES]
    assert torch.allclose(scores, linear[:, rows], atol=1e-5)
    assert torch.allclose(symbols, spelt[..., :18], atol=1e-4)


def test_other_codes_begin_a_new_linear_head_and_say_so(theirs):
    network, message = go_on(["02105", "98135"])
    assert message == (
        "its linear head starts with random weights, since the source does not know 1 code, such as 98135; its decoder"
        " continues"
    )
    assert list(network.config["labels"]["codes"]) == ["02105", "98135"]
    weights, known = network.weights(), theirs.state_dict()
    assert weights["encoder.classifier.weight"].shape == (2, 32)
    assert torch.equal(weights["decoder.head.weight"], known["decoder.head.weight"][:18])
    name = "pooler.dense.weight"
    assert torch.equal(weights[f"encoder.canine.{name}"], known[f"encoder.{name}"])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"decoder_layers": 2}, "its decoder starts with random weights, since the source's has 3 layers, other symb"),
        ({"code": "occ1950"}, "its heads start with random weights: '-1' is not a code of occ1950: it contains -"),
        ({"code": "general"}, "its decoder starts with random weights"),
    ],
)
def test_heads_that_cannot_go_on_are_named(labels, words):
    base = fetch()
    about = LABELS.model_copy(update=labels)
    codes = Codes(["83110", "61110"] if about.code != "occ1950" else ["831", "611"], about.code, 5)
    found = begun(base, codes, about)
    assert words in found.message and "decoder." not in found.heads


@pytest.mark.parametrize("key", [None, {"83110": 9}, {"a": 1, "b": 1}])
def test_a_key_that_does_not_fit_is_one_line(theirs, key):
    write(Path("theirs"), theirs.encoder.config, key)
    with pytest.raises(UserError, match="key") as error:
        fetch()
    assert "\n" not in str(error.value)
