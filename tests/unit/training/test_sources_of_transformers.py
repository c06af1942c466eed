"""Models of transformers that training goes on from: their names, their tokenizers, and what they compute."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json, write_json
from babelmill.labels.codes import Codes
from babelmill.labels.network import Labeller, LabelsNetwork, encoder_config, make_encoder
from babelmill.stages import TrainStage
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.train import make_network
from babelmill.training.batches import TokenStream
from babelmill.training.networks.source_weights import load_weights
from babelmill.training.networks.transformers_models import config_to_train
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.plan import Plan
from babelmill.training.plan.rows import Packed
from helpers.models.published_models import KINDS, publish
from helpers.models.transformers_models import ALONE, loss_by_document
from helpers.stages import read_settings, run_stage, write_corpus
from helpers.training.training_data import TINY, VOCABULARY

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("folder")]

OBJECTIVES = {"gpt2": "causal", "bert": "masked", "llama": "causal", "eurobert": "masked"}
TEXTS = [*(f"A fox {i}" for i in range(40)), *(f"pots {i} <s> </s> [SEP] <|endoftext|> é ☃\n" for i in range(9))]


def configuration(kind: str, **more) -> Configuration:
    """Configure a model that goes on from the folder `theirs`."""
    train = TINY["train"] | {"objective": OBJECTIVES[kind], "optimizer": "adamw"} | more.pop("train", {})
    model = {"architecture": "transformers", "source": "./theirs"} | more.pop("model", {})
    return Configuration([("test", {"models": {"more": {"languages": ["eng"], "model": model, "train": train}}})])


def settings(kind: str, **more) -> TrainStage:
    """Return the settings of its training."""
    return read_settings("train", configuration(kind, **more), "more")


def fetch(kind: str, **more) -> Path:
    """Run the stage `base_model`; its folder."""
    run_stage("base_model", configuration(kind, **more), "more", "base")
    return Path("base")


def build(kind: str) -> Path:
    """Run the stages before the training; the folder of the base model."""
    base, asked = fetch(kind), configuration(kind)
    corpus = write_corpus(Path("corpus"), {"text": TEXTS}, {"text": TEXTS[:5]})
    run_stage("tokenizer", asked, "more", "tokenizer", corpora=corpus, source=base)
    run_stage("shards", asked, "more", "shards", tokenizer="tokenizer", corpus=corpus)
    return base


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_has_the_loss_and_gradient_of_the_published_model(kind):
    """Of each document in a batch alone, begun and ended as the model's own tokenizer does, by transformers itself.

    GPT-2 and Llama have no padding token: the token that ends a text also pads, and is learned like any other. A text
    may hold the names of special tokens.
    """
    publish(kind, Path("theirs"), rows=400)
    base = build(kind)
    shard = ShardFile.open("shards/train.safetensors")
    vocabulary = Vocabulary.read("tokenizer/tokenizer.json", shard.vocab_size)
    asked = settings(kind)
    network = make_network(asked, vocabulary, base, ALONE)
    load_weights(base / "model.safetensors", network)
    objective = objective_of(asked.train)
    plan = Plan(asked.train, 1.0, [Packed(shard.offsets)])
    tokens = TokenStream([shard], vocabulary, 7, torch.device("cpu"), objective, network.in_place)
    step = plan.step(0)
    batch = tokens.micro_batch(step.rows, step.length, step.weights)
    network.model.eval()
    loss, _ = network.forward(batch, 2)

    cls, _ = KINDS[kind]
    reference = getattr(transformers, cls).from_pretrained("theirs").eval()
    published = transformers.AutoTokenizer.from_pretrained("theirs")
    first = published.bos_token_id if published.cls_token_id is None else published.cls_token_id
    end = published.eos_token_id if published.sep_token_id is None else published.sep_token_id
    for i, text in enumerate(TEXTS):
        ids = shard.tokens[shard.offsets[i] : shard.offsets[i + 1]].astype(np.int64)
        inside = published(text, add_special_tokens=False, split_special_tokens=True).input_ids
        assert vocabulary.given(ids).tolist() == [first, *inside, end]
        assert not np.isin(ids[1:-1], [vocabulary.bos, vocabulary.eos, vocabulary.pad]).any()
    assert vocabulary.entries == len(published) and vocabulary.size == len(published) + 3
    assert vocabulary.mask == (-1 if published.mask_token_id is None else published.mask_token_id)
    assert vocabulary.given(vocabulary.pad) == (end if published.pad_token_id is None else published.pad_token_id)
    files = manifest.read("tokenizer")["files"]
    assert {"tokenizer.json", "tokenizer_config.json"} <= files.keys()
    assert all(Path("tokenizer", name).read_bytes() == Path("theirs", name).read_bytes() for name in files)
    assert int(batch.input_ids.max()) < len(published)
    total, _ = loss_by_document(reference, batch)
    assert len(batch.targets) > 15 and (batch.input_ids == first).any(1).sum() > 4
    torch.testing.assert_close(loss, total, atol=1e-6, rtol=1e-6)
    loss.backward()
    total.backward()
    network.gradients.reduce()
    wanted = reference.get_input_embeddings().weight.grad
    found = next(p.grad for name, p in network.trained().items() if p.shape == wanted.shape)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)


def older_names(kind: str) -> None:
    """Rename the weights of `theirs` as repositories have them that are years old."""
    weights = load_file("theirs/model.safetensors")
    if kind == "gpt2":
        weights = {name.removeprefix("transformer."): value for name, value in weights.items()}
        weights |= {f"h.{layer}.attn.bias": torch.ones(1, 1, 64, 64).tril() for layer in range(2)}
    else:
        for new, before in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
            weights = {name.replace(new, before): value for name, value in weights.items()}
        weights |= {"bert.pooler.dense.weight": torch.ones(16, 16), "cls.seq_relationship.bias": torch.ones(2)}
        embedding = weights["bert.embeddings.word_embeddings.weight"]
        weights |= {"cls.predictions.decoder.weight": embedding.clone()}
    os.remove("theirs/model.safetensors")
    torch.save(weights, "theirs/pytorch_model.bin")


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_older_names_are_the_same_weights(kind):
    publish(kind, Path("theirs"))
    fetch(kind)
    wanted = load_file("base/model.safetensors")
    os.rename("base", "before")
    older_names(kind)
    fetch(kind)
    found = load_file("base/model.safetensors")
    assert found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in found)


def weights(pop: str = "", **values) -> None:
    """Change the weights of `theirs`: leave one out, or give some other values."""
    found = load_file("theirs/model.safetensors") | values
    found.pop(pop, None)
    save_file(found, "theirs/model.safetensors")


def change_config(**values) -> None:
    write_json("theirs/config.json", read_json("theirs/config.json") | values)


HEAD, TIED = "cls.predictions.transform.dense.weight", "cls.predictions.decoder.weight"


@pytest.mark.parametrize(
    ("change", "model", "words"),
    [
        (lambda: weights(pop=HEAD), {}, ["1 weights of BertForMaskedLM", HEAD, "another task"]),
        (lambda: weights(**{HEAD: torch.ones(16, 8)}), {}, [f"{HEAD} is [16, 8], its config.json says [16, 16]"]),
        (lambda: weights(**{TIED: torch.ones(134, 16)}), {}, [f"{TIED} differs", "set tie_word_embeddings: false"]),
        (lambda: change_config(quantization_config={"bits": 4}), {}, ["quantized"]),
        (lambda: None, {"architecture": "gpt_bert"}, ["is a bert model", "set model.architecture: transformers"]),
    ],
)
def test_a_model_that_is_not_whole_is_one_line(change, model, words):
    publish("bert", Path("theirs"))
    change()
    with pytest.raises(UserError) as error:
        fetch("bert", model=model)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "the model in theirs" in str(error.value) and "\n" not in str(error.value) and not Path("base").exists()


def test_the_shape_beside_a_source_has_our_names_whatever_its_class_calls_it():
    """GPT-2 has n_embd, n_layer, n_head and n_positions."""
    publish("gpt2", Path("theirs"))
    right = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64}
    base = fetch("gpt2", model=right)
    assert config_to_train(settings("gpt2", model=right), base, VOCABULARY).n_embd == 16
    os.rename("base", "before")
    for key, value, has in (("num_hidden_layers", 3, "has 2"), ("layer_norm_eps", 1e-6, "has no such key")):
        line = rf"model\.{key} = {value}: .*theirs {has}"
        with pytest.raises(UserError, match=line):
            fetch("gpt2", model=right | {key: value})


LONG = {"sequence_lengths": [128], "phase_starts": [0.0], "global_batch_tokens": 256}


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("eurobert", {}, ["has no mask token"]),
        ("eurobert", {"train": {"objective": "causal"}}, ["no AutoModelForCausalLM for it; see train.objective"]),
        ("llama", {"train": LONG}, ["128", "64"]),
    ],
)
def test_what_training_cannot_do_with_a_source_is_one_line(kind, more, words):
    publish(kind, Path("theirs"))
    for name in ("tokenizer_config.json", "config.json"):
        write_json(f"theirs/{name}", {k: v for k, v in read_json(f"theirs/{name}").items() if not k.startswith("mask")})
    base = build(kind)
    vocabulary = Vocabulary.read("tokenizer/tokenizer.json", 0)
    asked = settings(kind, **more)
    with pytest.raises(UserError) as error:
        make_network(asked, vocabulary, base, ALONE)
    assert all(word in str(error.value) for word in words) and "\n" not in str(error.value), str(error.value)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_model_of_labels_takes_the_encoder_of_any_model(kind):
    """A published language model's, under the names of the classifier's class: its own head is left out."""
    publish(kind, Path("theirs"), rows=400)
    train = {"objective": "labels", "sequence_lengths": [32], "phase_starts": [0]}
    base = fetch(kind, train=train)
    asked = settings(kind, train=train)
    vocabulary = Vocabulary(400, 1, 2, 3, 4, tuple(range(16)))
    config = encoder_config(asked, base, vocabulary)
    network = LabelsNetwork(config, asked.train, asked.labels, Codes(["a", "b", "c"], "classes", 1), 1, ALONE)
    load_weights(base / "model.safetensors", network)
    cls, _ = KINDS[kind]
    reference = getattr(transformers, cls).from_pretrained("theirs").base_model.eval()
    ids = torch.arange(20, 40)[None]
    network.model.eval()
    seen = torch.ones_like(ids, dtype=torch.bool)
    made = Labeller(make_encoder(config), {"decoder_layers": 0}).eval()
    made.load_state_dict(network.weights())
    made(ids, seen, torch.zeros(1, 0, 0, dtype=torch.long))
    assert torch.allclose(made._hidden, reference(input_ids=ids).last_hidden_state, atol=1e-5)
