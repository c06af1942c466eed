"""The types and bounds of every configuration key, one class per section.

This is the one source of truth for what a key may be. The values live in `config/defaults.yaml` (with their
documentation), `config/presets/*.yaml` and the user's files; no class has a default of its own, so that a value stands
in one place. `resolve.py` says how layers are merged, `stages.py` which stage reads which section.
"""

import dataclasses
import re
from fractions import Fraction
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator


@dataclasses.dataclass(frozen=True)
class Neutral:
    """Marks a key that was added after a release: `value` is the behaviour from before the key existed.

    Settings files leave the key out where it has this value, so that the new key reruns nothing.
    """

    value: Any


@dataclasses.dataclass(frozen=True)
class OnlyIf:
    """Marks a key that can matter only if another key of its section has one of `values`.

    Elsewhere settings files leave it out, and a stage reads `value` in its place.
    """

    key: str
    values: tuple[Any, ...]
    value: Any


@dataclasses.dataclass(frozen=True)
class Was:
    """Marks a key that has moved: settings files keep it in its old place, `section.key`."""

    key: str


Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]


def _ratio(value: object) -> str:
    """Reduce "8/16" to "1/2", so that equal ratios are equal settings."""
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", str(value))
    if not match or not int(match[2]) > 0 or not 0 < int(match[1]) < int(match[2]):
        raise ValueError("a ratio n/d with 0 < n < d is allowed, for instance 1/2 or 15/16")
    ratio = Fraction(int(match[1]), int(match[2]))
    return f"{ratio.numerator}/{ratio.denominator}"


def _budget(value: float | str | None) -> float | str | None:
    """Megabytes as a number, or "N words", "N documents"; 500k and 5M are understood, and mean words."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMG]?)\s*(MB|words|documents|)\s*", value)
    digits, factor, unit = match.groups() if match else ("0", "", "")
    number = float(digits) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[factor]
    if not number or (factor and unit == "MB"):
        raise ValueError("megabytes of English-equivalent text, or such as 500k words or 5M documents, are allowed")
    if unit == "MB" or not (factor or unit):
        return number
    return f"{round(number)} {unit or 'words'}"


REPO_FIELDS = ("username", "model", "causal_suffix", "variant_suffix")


def _repo_template(text: str) -> str:
    """`owner/name`, with fields in braces."""
    name = text
    for field in REPO_FIELDS:
        name = name.replace(f"{{{field}}}", "x")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise ValueError(
            f"owner/name with the fields {', '.join(f'{{{field}}}' for field in REPO_FIELDS)} is allowed, of letters,"
            " digits, dots, hyphens and underscores"
        )
    return text


def _exponent(value: Any) -> float:
    """Turn a word into the exponent that it stands for, so that `size` and 1 are equal settings."""
    try:
        return {"size": 1.0, "uniform": 0.0}[value] if value in ("size", "uniform") else float(value)
    except (TypeError, ValueError):
        raise ValueError("size, uniform or a number from 0 to 1 is allowed") from None


class Section(BaseModel):
    """A group of keys. Unknown keys are refused; the text "null", which is all that `--config` can say, is None."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_text(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        for key, value in values.items():
            if isinstance(value, bool) and key in cls.model_fields and cls.model_fields[key].annotation is not bool:
                raise ValueError(f"{key} = {value}: true and false are not allowed here")
        optional = {name for name, field in cls.model_fields.items() if type(None) in get_args(field.annotation)}
        return {
            key: None if key in optional and value in ("null", "None", "~") else value for key, value in values.items()
        }


class Corpus(Section):
    """Where a language's text comes from and how it becomes documents."""

    files: list[str]
    builtin: Literal["python-docs"] | None
    hub: str | None
    revision: str
    validation_files: list[str]
    text_column: str
    document: Literal["file", "line"]
    validation_share: Annotated[float, Field(ge=0, lt=1)]
    on_error: Literal["stop", "skip"]
    normalization: Literal["none", "NFC"]
    control_characters: Literal["keep", "remove"]
    min_characters: NonNegative
    deduplicate: bool
    categories: list[str]
    budget: Annotated[Annotated[float, Field(gt=0)] | str | None, AfterValidator(_budget)]


class Tokenizer(Section):
    """The byte-level BPE tokenizer."""

    source: str | None
    revision: str
    vocab_size: Annotated[int, Field(ge=16 + 256, le=2**20), OnlyIf("source", (None,), 16 + 256)]
    min_frequency: Annotated[Positive, OnlyIf("source", (None,), 1)]


class Mixture(Section):
    """How a model of several languages weighs them: by the size of each to the power of `weights`."""

    weights: Annotated[Share, BeforeValidator(_exponent)]


class Model(Section):
    """The architecture (GPT-BERT)."""

    hidden_size: Positive
    intermediate_size: Positive
    num_attention_heads: Positive
    num_hidden_layers: Positive
    max_position_embeddings: Positive
    position_bucket_size: Annotated[int, Field(ge=2)]
    hidden_dropout_prob: Dropout
    attention_probs_dropout_prob: Dropout
    layer_norm_eps: Annotated[float, Field(gt=0)]
    gate: bool
    layer_mixing: bool

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"model.num_attention_heads = {self.num_attention_heads} does not divide"
                f" model.hidden_size = {self.hidden_size}; choose a divisor"
            )
        return self


class Train(Section):
    """Objective, data schedule and optimiser."""

    seed: NonNegative
    epochs: Annotated[float, Field(gt=0), OnlyIf("max_steps", (None,), 1.0)]
    max_steps: Positive | None
    global_batch_tokens: Positive
    batch_reduction: Annotated[float, Field(ge=1)]
    micro_batch_tokens: Positive
    sequence_lengths: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1)]
    phase_starts: Annotated[list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=1)]
    objective: Literal["hybrid", "masked", "causal"]
    hybrid_ratio: Annotated[str, BeforeValidator(_ratio), OnlyIf("objective", ("hybrid",), "1/2")]
    token_weighted: Annotated[bool, OnlyIf("objective", ("hybrid",), False)]
    mask_rate_start: Annotated[float, Field(gt=0, le=1), OnlyIf("objective", ("hybrid", "masked"), 1.0)]
    mask_rate_end: Annotated[float, Field(gt=0, le=1), OnlyIf("objective", ("hybrid", "masked"), 1.0)]
    optimizer: Literal["lamb", "adamw", "muon"]
    learning_rate: Annotated[float, Field(gt=0)]
    learning_rate_floor: Share
    warmup: Annotated[float, Field(ge=0, lt=1)]
    cooldown: Annotated[float, Field(ge=0, lt=1)]
    betas: Annotated[list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=2, max_length=2)]
    eps: Annotated[float, Field(gt=0)]
    weight_decay: Annotated[float, Field(ge=0)]
    clip_norm: Annotated[float, Field(gt=0)]
    z_loss_weight: Annotated[float, Field(ge=0)]
    ema_decay: Annotated[float, Field(ge=0, lt=1)]
    precision: Literal["bf16", "fp32"]
    activation_checkpointing: bool
    non_finite: Literal["stop", "skip"]

    @model_validator(mode="after")
    def _phases(self) -> Self:
        starts = self.phase_starts
        if len(starts) != len(self.sequence_lengths):
            raise ValueError(
                f"train.phase_starts has {len(starts)} entries and train.sequence_lengths {len(self.sequence_lengths)};"
                " give one start for each length"
            )
        if starts[0] != 0 or sorted(set(starts)) != starts:
            raise ValueError(f"train.phase_starts = {starts} must begin with 0 and rise")
        if min(self.global_batch_tokens, self.micro_batch_tokens) < max(self.sequence_lengths):
            raise ValueError(
                f"train.global_batch_tokens = {self.global_batch_tokens} and train.micro_batch_tokens ="
                f" {self.micro_batch_tokens} must hold at least one row of {max(self.sequence_lengths)} tokens"
            )
        return self


class Export(Section):
    """What the Hugging Face folder holds."""

    variants: Annotated[list[Literal["main", "ema"]], Field(min_length=1)]
    default_variant: Literal["main", "ema"]
    logits_alignment: Annotated[Literal["mlm", "mntp"], Neutral("mlm")]
    include_raw: bool

    @model_validator(mode="after")
    def _default_is_exported(self) -> Self:
        if self.default_variant not in self.variants:
            raise ValueError(
                f"export.default_variant = {self.default_variant!r} is not in export.variants = {self.variants}"
            )
        return self


class Evaluation(Section):
    """How the exported model is measured."""

    sequence_length: Annotated[int, Field(ge=2)]
    disjoint_masks: Annotated[int, Field(ge=2)]


class Card(Section):
    """What only the author can tell about the model."""

    license: str
    authors: list[str]
    description: str
    carbon_grams: Annotated[float, Field(ge=0)] | None


class Publish(Section):
    """The repository on the Hugging Face Hub."""

    username: str | None
    repo_template: Annotated[str, AfterValidator(_repo_template)]
    private: bool


class Run(Section):
    """How a training run is looked after. Changing these never repeats a run."""

    checkpoint_every: Positive
    checkpoint_share: Annotated[float, Field(gt=0, le=1)]
    keep: Positive
    log_every: Positive
    validate_every: NonNegative
    tracking: Literal["none", "wandb"]


class Resources(Section):
    """What a training job asks of the machine."""

    gpus: NonNegative


SECTIONS: dict[str, type[Section]] = {
    "corpus": Corpus,
    "tokenizer": Tokenizer,
    "mixture": Mixture,
    "model": Model,
    "train": Train,
    "export": Export,
    "evaluation": Evaluation,
    "card": Card,
    "publish": Publish,
    "run": Run,
    "resources": Resources,
}


class LanguageEntry(Section):
    """An entry of `languages:`; what it leaves out comes from `config/languages.tsv`."""

    name: str = ""
    tier: Literal[1, 2, 3] | None = None
    script: str = ""
    byte_premium: Annotated[float, Field(gt=0)] | None = None
    tag: str = ""
    corpus: dict[str, Any] = {}


class ModelEntry(Section):
    """An entry of `models:`; its sections are laid over the user's configuration for this model alone."""

    languages: list[str] = []
    preset: str | None = None
    tokenizer: dict[str, Any] = {}
    mixture: dict[str, Any] = {}
    model: dict[str, Any] = {}
    train: dict[str, Any] = {}
    export: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    card: dict[str, Any] = {}
    publish: dict[str, Any] = {}
    run: dict[str, Any] = {}
    resources: dict[str, Any] = {}


class User(Section):
    """The top level of the user's configuration."""

    targets: list[str]
    preset: str
    batches: dict[str, list[str]]
    models: dict[str, ModelEntry]
    languages: dict[str, LanguageEntry]
