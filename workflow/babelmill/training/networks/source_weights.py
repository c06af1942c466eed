"""Start a run from a trained model (`model.source`): the run takes the shape and the weights of this model."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from babelmill.config import schema
from babelmill.config.models import check_shape, with_our_names
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json
from babelmill.model.gpt_bert import GPTBertShape
from babelmill.model.norbert4 import NorBERT4Shape
from babelmill.stages import TrainStage
from babelmill.training.networks.network import Network


def shape_of(settings: TrainStage, source: Path | None, vocab_size: int) -> GPTBertShape | NorBERT4Shape:
    """Return the shape of the model to train, which is one of our architectures.

    The settings define it, or the source that training starts from; dropout always comes from the settings. A UserError
    says that the source has another shape than the settings, or too few embeddings or positions for the text.
    """
    of_norbert4 = settings.model.architecture == "norbert4"
    if source is None:
        return (new_norbert4 if of_norbert4 else new_gpt_bert)(settings.model, vocab_size)
    theirs = read_json(source / "config.json")
    kind, dropout = NorBERT4Shape, dropout_of_norbert4(settings.model)
    if not of_norbert4:
        kind = GPTBertShape
        dropout = settings.model.model_dump(include={"hidden_dropout_prob", "attention_probs_dropout_prob"})
    shape = kind(**{field.name: theirs[field.name] for field in fields(kind)} | dropout)
    named = with_our_names(vars(shape))
    check_source(settings, named, vocab_size, shape.vocab_size, named["max_position_embeddings"])
    return shape


def new_gpt_bert(model: schema.Model, vocab_size: int) -> GPTBertShape:
    """Return the shape of a new GPT-BERT."""
    return GPTBertShape(vocab_size=vocab_size, **model.shape())


def new_norbert4(model: schema.Model, vocab_size: int) -> NorBERT4Shape:
    """Return the shape of a new NorBERT4. Its global layers see as far as the longest row reaches."""
    head_size, longest = model.hidden_size // model.num_attention_heads, model.max_position_embeddings
    same = {field.name for field in fields(NorBERT4Shape)} & type(model).model_fields.keys()
    values = model.model_dump(include=same) | dropout_of_norbert4(model)
    values |= {"query_key_head_size": head_size, "value_head_size": head_size}
    values |= {"num_layers": model.num_hidden_layers, "max_sequence_length": longest, "global_window_length": longest}
    return NorBERT4Shape(vocab_size=vocab_size, **values)


def dropout_of_norbert4(model: schema.Model) -> dict[str, Any]:
    """Return the probabilities of dropout by their names in a NorBERT4's shape."""
    hidden, attention = model.hidden_dropout_prob, model.attention_probs_dropout_prob
    return {"embedding_dropout": hidden, "hidden_dropout": hidden, "attention_dropout": attention}


def check_source(settings: TrainStage, shape: dict[str, Any], entries: int, rows: int, positions: int) -> None:
    """Raise a UserError if a source has another shape than the settings, or is too small for the text.

    Args:
        settings: of the training.
        shape: of the source, by the keys of the section `model`.
        entries, rows: entries of the tokenizer, and rows of the source's embedding.
        positions: how many tokens the source can read.
    """
    name, longest = settings.model.source, max(settings.train.sequence_lengths)
    check_shape(settings.shape, shape, str(name))
    if entries > rows:
        raise UserError(
            f"the tokenizer has {entries:,} entries, but the embedding of {name} has only {rows:,} rows: set a smaller"
            " tokenizer.source, or remove it to use the model's own tokenizer"
        )
    if longest > positions:
        raise UserError(
            f"train.sequence_lengths has {longest}, which is more than max_position_embeddings = {positions} of {name};"
            " lower it"
        )


@torch.no_grad()
def load_weights(path: Path, network: Network) -> None:
    """Copy the weights of a safetensors file into a network, one tensor at a time.

    A UserError says that the file has other names or shapes than the network.
    """
    weights, sharding = network.begun_with(), network.sharding
    saved = load_file(path)  # each is read from the file when it is used
    for name, in_file in network.names_in(set(saved), str(path)).items():
        value = weights[name]
        expected, whole = list(sharding.shapes.get(name, value.shape)), saved[in_file]
        if list(whole.shape) != expected:
            raise UserError(f"{path}: {in_file} is {list(whole.shape)}, but must be {expected}")
        value.copy_(whole[sharding.rows(name, expected)] if expected else whole)


def lineage(settings: TrainStage, source: Path) -> dict[str, Any]:
    """Return where a source comes from, for the manifest.

    This is its name, the checksum of its weights and, if it was trained elsewhere, what is known about it; otherwise,
    what it was trained on.
    """
    made = manifest.read(source)
    keys = ("repository", "commit", "license", "source")
    known = {key: made["figures"][key] for key in keys if key in made["figures"]}
    if made["stage"] == "train":
        known |= {key: made["figures"][key] for key in ("tokens", "words") if key in made["figures"]}
        known["languages"] = made["settings"]["languages"]
    return {"name": settings.model.source, "sha256": made["files"][settings.begin_with or ""]["sha256"], **known}
