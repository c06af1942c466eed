"""Start a run from a trained model (`model.source`): the run takes the shape and the weights of this model."""

from dataclasses import fields, replace
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
    new = new_shape(settings.model, vocab_size)
    if source is None:
        return new
    theirs = read_json(source / "config.json")
    shape = replace(new, **{field.name: theirs[field.name] for field in fields(new) if "dropout" not in field.name})
    named = with_our_names(vars(shape))
    check_source(settings, named, vocab_size, shape.vocab_size, named["max_position_embeddings"])
    return shape


def new_shape(model: schema.Model, vocab_size: int) -> GPTBertShape | NorBERT4Shape:
    """Return the shape of a new model. The global layers of a NorBERT4 see as far as the longest row reaches."""
    if model.architecture != "norbert4":
        return GPTBertShape(vocab_size=vocab_size, **model.shape())
    head_size, longest = model.hidden_size // model.num_attention_heads, model.max_position_embeddings
    hidden, attention = model.hidden_dropout_prob, model.attention_probs_dropout_prob
    same = {field.name for field in fields(NorBERT4Shape)} & type(model).model_fields.keys()
    values = model.model_dump(include=same) | {"query_key_head_size": head_size, "value_head_size": head_size}
    values |= {"num_layers": model.num_hidden_layers, "max_sequence_length": longest, "global_window_length": longest}
    values |= {"embedding_dropout": hidden, "hidden_dropout": hidden, "attention_dropout": attention}
    return NorBERT4Shape(vocab_size=vocab_size, **values)


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
