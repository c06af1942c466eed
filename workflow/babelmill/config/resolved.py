"""Hold the settings of one model or language after all layers are merged, and check sections against each other.

`resolve.py` merges the layers. Types and bounds of single keys are in `schema.py`.
"""

import dataclasses

from babelmill.config import schema
from babelmill.config.layers import Layer
from babelmill.config.model_size import too_large
from babelmill.config.model_source import ModelSource
from babelmill.config.schema import SECTIONS
from babelmill.config.transformers_models import refused, too_long, without_adapters
from babelmill.config.wording import where_said
from babelmill.core.files import UserError


@dataclasses.dataclass(frozen=True)
class Resolved:
    """The settings of a model or a language. `origins`: the layer that each value came from, by dotted key."""

    name: str
    languages: tuple[str, ...]
    origins: dict[str, str]

    @property
    def sections(self) -> dict[str, schema.Section]:
        """Return the sections, by name."""
        return {name: getattr(self, name) for name in SECTIONS if hasattr(self, name)}


@dataclasses.dataclass(frozen=True)
class ResolvedCorpus(Resolved):
    """The settings of the corpus of a language."""

    corpus: schema.Corpus


@dataclasses.dataclass(frozen=True)
class ResolvedModel(Resolved):
    """The settings of a model. `source`: the model that it continues; None if training begins with random weights."""

    preset: str
    source: ModelSource | None
    tokenizer: schema.Tokenizer
    mixture: schema.Mixture
    model: schema.Model
    train: schema.Train
    labels: schema.Labels
    export: schema.Export
    evaluation: schema.Evaluation
    card: schema.Card
    predict: schema.Predict
    publish: schema.Publish
    run: schema.Run
    resources: schema.Resources


def check_source(resolved: ResolvedModel, source: ResolvedModel) -> None:
    """Raise a UserError if no model can continue `source`, a model of this workflow."""
    where = f"{resolved.origins['model.source']}: model.source = {source.name}"
    if source.train.lora_rank:
        raise UserError(
            f"{where}: the results of this model are adapters; name the folder where they are merged,"
            f" ./results/exports/{source.name}"
        )
    if source.train.objective == "labels":
        raise UserError(f"{where}: this is a model of labels; name a language model")


def check_together(resolved: ResolvedModel, layers: list[Layer], shape_is_known: bool) -> None:
    """Raise a UserError if the sections of a model contradict each other.

    `shape_is_known` is False for a model whose source must still be fetched.
    """
    train, source, origins = resolved.train, resolved.source, resolved.origins
    if train.freeze != "none" and not source:
        raise UserError(
            f"{origins['train.freeze']}: train.freeze: encoder keeps the weights of model.source, but model.source is"
            " not set"
        )
    if message := refused(resolved.model, train):
        where = where_said(layers, "model.", f"model.source {message}" if source else message)
        raise UserError(f"{where}: {message}")
    if message := without_adapters(train, resolved.export):
        raise UserError(f"{origins['export.adapter']}: {message}")
    if resolved.evaluation.snapshots and not resolved.run.snapshots:
        raise UserError(
            f"{origins['evaluation.snapshots']}: evaluation.snapshots: true scores what the training keeps, but"
            " run.snapshots is empty; set run.snapshots, for example to babylm (a finished training does not run again)"
        )
    if not shape_is_known:
        return
    longest, positions = max(train.sequence_lengths), resolved.model.max_position_embeddings
    if longest > positions:
        raise UserError(
            f"{origins['train.sequence_lengths']}: train.sequence_lengths has {longest}, more than"
            f" model.max_position_embeddings = {positions}; lower the first or raise the second"
        )
    vocab_size = 0 if resolved.tokenizer.source else resolved.tokenizer.vocab_size
    message = too_long(resolved.model, train, resolved.evaluation)
    if resolved.model.architecture == "gpt_bert":
        message = message or too_large(resolved.model, vocab_size)
    if message:
        raise UserError(f"{where_said(layers, 'model.', message)}: {message}")
