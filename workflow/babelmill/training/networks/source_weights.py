"""Start a run from a trained model (`model.source`): the run takes the shape and the weights of this model."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from babelmill.config.model_source import check_shape
from babelmill.config.stage_settings import TrainSettings
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json
from babelmill.model.gpt_bert import GPTBertShape
from babelmill.runtime.checkpoint import SavedTensors
from babelmill.training.networks.network import Network


def shape_of(settings: TrainSettings, source: Path | None, vocab_size: int) -> GPTBertShape:
    """Return the shape of the model to train.

    Args:
        settings: the stage's settings. Dropout comes from them, even if the source was trained with another rate.
        source: folder of the model that training starts from. If None, the settings define the whole shape.
        vocab_size: number of entries of the tokenizer.

    Raises:
        UserError: the source has another shape than the settings say, or too few embeddings or positions for the text.
    """
    if source is None:
        return GPTBertShape(vocab_size=vocab_size, **settings.model.shape())
    name, theirs = settings.model.source, read_json(source / "config.json")
    dropout = settings.model.model_dump(include={"hidden_dropout_prob", "attention_probs_dropout_prob"})
    shape = GPTBertShape(**{field.name: theirs[field.name] for field in fields(GPTBertShape)} | dropout)
    check_shape(settings.shape, vars(shape), str(name))
    if vocab_size > shape.vocab_size:
        raise UserError(
            f"the tokenizer has {vocab_size:,} entries, but the embedding of {name} has only {shape.vocab_size:,} rows:"
            " set a smaller tokenizer.source, or remove it to use the model's own tokenizer"
        )
    check_lengths(settings, shape.max_position_embeddings)
    return shape


def check_lengths(settings: TrainSettings, positions: int) -> None:
    """Raise a UserError if rows are longer than the source can read."""
    if (longest := max(settings.train.sequence_lengths)) > positions:
        raise UserError(
            f"train.sequence_lengths has {longest}, which is more than max_position_embeddings = {positions} of"
            f" {settings.model.source}; lower it"
        )


def published_config(source: Path) -> dict[str, Any]:
    """Return config.json of a transformers model as it was published, from the file of any stage."""
    values = read_json(source / "config.json")
    return values["config"] if values.get("architecture") == "transformers" else values


@torch.no_grad()
def load_weights(path: Path, network: Network) -> None:
    """Copy the weights of a safetensors file into a network, one tensor at a time.

    Raises:
        UserError: the file has other names or shapes than the network.
    """
    weights, sharding = network.begun_with(), network.sharding
    saved = SavedTensors(path, sharding.rows)
    for name, in_file in network.names_in(set(saved), str(path)).items():
        value = weights[name]
        expected, theirs = list(sharding.shapes.get(name, value.shape)), saved.shape(in_file)
        if theirs != expected:
            raise UserError(f"{path}: {in_file} is {theirs}, but must be {expected}")
        value.copy_(saved[in_file])


def lineage(settings: TrainSettings, source: Path) -> dict[str, Any]:
    """Return where a source comes from, for the manifest.

    This is its name, the checksum of its weights and, if it was trained elsewhere, what is known about it; otherwise,
    what it was trained on.
    """
    made = manifest.read(source)
    keys = ("repository", "commit", "license", "instructed", "renamed", "source")
    known = {key: made["figures"][key] for key in keys if key in made["figures"]}
    if made["stage"] == "train":
        known |= {key: made["figures"][key] for key in ("tokens", "words") if key in made["figures"]}
        known["languages"] = made["settings"]["languages"]
    return {"name": settings.model.source, "sha256": made["files"][settings.begin_with or ""]["sha256"], **known}
