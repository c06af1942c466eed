"""Define the types and bounds of every configuration key, one class per section, and what settings files say of a key.

This is the one source of truth for what a key may be. The values are in `config/defaults.yaml` (with their
documentation), `config/presets/*.yaml` and the user's files. `resolve.py` merges these layers, and `stage_settings.py`
says which stage reads which section.

A settings file holds all keys of a section, with two exceptions (see `canonical.py`):

* A key that came after a release has a default here: the behaviour from before it existed. Files leave the key out at
  this value, so that a new key repeats nothing until somebody uses it.
* A key that can matter only if another one has a certain value is marked with `OnlyIf`. Files leave it out otherwise.

Equal settings are equal values: the types change `8/16` to `1/2`, `size` to 1.0 (see `values.py`).
"""

import dataclasses
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Any, Literal, Self, get_args

import pydantic_core
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from babelmill.config.layers import nearest
from babelmill.config.snapshots import Snapshots
from babelmill.config.values import (
    budget,
    delimiter,
    document_unit,
    each_once,
    exponent,
    language_tag,
    licence,
    local_path,
    number,
    one_or_more,
    place_of_checkpoints,
    ratio,
    repo_template,
    typed,
    word_count,
)
from babelmill.core.formats import split_name
from babelmill.core.templates import columns_of

# These limits are far above all trainings so far, and far below any overflow of arithmetic.
MAX_STEPS = 10_000_000
MAX_LENGTH = 2**20
MAX_BATCH = 2**30
MASKS = 7  # passes of the masked score, each of which hides every seventh token
MASKING = ("hybrid", "masked")  # values of train.objective that hide tokens at a rate that changes over the run
UNKNOWN, TOGETHER = "unknown_key", "together"  # types of errors, see `mistakes.worded`
SPELT = ("general", "hisco", "occ1950")  # values of labels.code whose codes are also predicted symbol by symbol

# Keys that model.config may not set: the workflow does.
OF_THE_WORKFLOW = {"vocab_size", "max_position_embeddings", "n_positions"}

Integer = Annotated[int, BeforeValidator(number)]
Number = Annotated[float, BeforeValidator(number)]
Positive = Annotated[Integer, Field(gt=0)]
NonNegative = Annotated[Integer, Field(ge=0)]
Share = Annotated[Number, Field(ge=0, le=1)]
BelowOne = Annotated[Number, Field(ge=0, lt=1)]
Similarity = Annotated[Number, Field(ge=0.5, le=1)]  # of texts, see `corpus/near_copies.py`
Mark = Annotated[str, AfterValidator(delimiter)]  # the character between the fields of a .csv
Encoding = Literal["utf-8", "latin-1", "cp1252"]
LocalPath = Annotated[str, AfterValidator(local_path)]  # a file, a folder or a glob; ~ becomes the home folder
Quoting = Literal["format", "csv", "none"]  # whether quotation marks may enclose the fields of a .csv or .tsv
Names = Annotated[list[str], AfterValidator(each_once)]
Seeds = Annotated[list[Annotated[NonNegative, Field(le=2**32 - 1)]], AfterValidator(each_once)]
Text = Annotated[str, Field(min_length=1)]
Words = Annotated[int, BeforeValidator(word_count, json_schema_input_type=int | str), Field(gt=0, le=10**13)]
Presets = Annotated[Names, BeforeValidator(one_or_more, json_schema_input_type=list[str] | str)]


class Section(BaseModel):
    """A group of keys. Unknown keys are refused. The text "null" means None, since `--config` can pass only text."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, values: Any) -> Any:
        """Refuse an unknown key with the nearest known one; read the text null."""
        if not isinstance(values, dict):
            return values
        for key in values:
            if key not in cls.model_fields:
                meant = nearest(str(key), cls.model_fields)
                raise pydantic_core.PydanticCustomError(UNKNOWN, "{meant}", {"key": str(key), "meant": meant})
        optional = {name for name, field in cls.model_fields.items() if type(None) in get_args(field.annotation)}
        nulls = {key for key in optional & values.keys() if values[key] in ("null", "None", "~")}
        return values | dict.fromkeys(nulls)

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        for keys, allowed in self.contradictions():
            given = {key: getattr(self, key) for key in keys.split()}
            raise pydantic_core.PydanticCustomError(TOGETHER, "{allowed}", {"given": given, "allowed": allowed})
        return self

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield keys whose values do not go together, with spaces between them, and what is allowed instead."""
        yield from ()


OF_NORBERT4 = ("local_global_ratio", "local_window_length")  # keys of `model` that no other architecture has


class OnlyIf:
    """Marks a key that matters only if other keys of its section have the given values (one, or a tuple of several).

    Otherwise settings files leave the key out, and a stage reads the default of the class or, without one, `otherwise`.
    """

    def __init__(self, otherwise: Any = None, **keys: Any):
        self.otherwise = otherwise
        self._keys = {key: value if isinstance(value, tuple) else (value,) for key, value in keys.items()}

    def holds(self, values: dict[str, Any]) -> bool:
        """Return whether the key matters, given the values of its section."""
        return all(values[key] in allowed for key, allowed in self._keys.items())


OURS = ("gpt_bert", "norbert4")  # values of model.architecture whose code is this workflow's


def new_gpt_bert(otherwise: Any) -> OnlyIf:
    """Mark a key that only a GPT-BERT has, and that a model which continues another (`source`) takes from it."""
    return OnlyIf(architecture="gpt_bert", source=None, otherwise=otherwise)


def new_model(otherwise: Any) -> OnlyIf:
    """Mark a key that our architectures have, and that a model which continues another (`source`) takes from it."""
    return OnlyIf(architecture=OURS, source=None, otherwise=otherwise)


# Values of `corpus.document`, for editors.
DOCUMENT_UNIT = Literal["file", "paragraph", "line"] | Annotated[str, Field(pattern=r"^[1-9][0-9]* words$")]


class DatasetPart(Section):
    """An entry of `corpus.hub`: files of a dataset on the Hub. A key that is null or empty has no effect."""

    repository: Text  # its name; {language} stands for the language's code
    config: Text | None = None  # a configuration that the dataset's card declares, with its data files
    files: Names = []  # globs inside the repository
    text_column: Text | None = None  # replaces `corpus.text_column`


def dataset_parts(value: Any) -> Any:
    """Return a name, or a list of entries with the keys of `DatasetPart`; a list of one bare name becomes the name."""
    if not isinstance(value, list):
        return value
    parts = [{"repository": entry} if isinstance(entry, str) else entry for entry in value]
    return parts[0]["repository"] if len(parts) == 1 and [*parts[0]] == ["repository"] else parts


class LanguageFilter(Section):
    """What is dropped because it is in another language (see `corpus/identification.py`)."""

    # A name of `config/identifiers.py`, or the path of a model of fastText.
    model: Annotated[LocalPath, Field(min_length=1)]
    at_least: Share = 0.8  # the least probability
    level: Literal["document", "line"] = "document"  # what is looked at


class Corpus(Section):
    """Where a language's text comes from and how it becomes documents."""

    files: list[LocalPath]
    builtin: Literal["python-docs"] | None
    hub: Annotated[
        Annotated[list[DatasetPart], Field(min_length=1)] | str | None,
        BeforeValidator(dataset_parts, json_schema_input_type=list[DatasetPart | str] | str | None),
    ]
    revision: str
    validation_files: list[LocalPath]
    text_column: str
    prompt_column: Text | None = None
    label_columns: Annotated[Names, BeforeValidator(one_or_more, json_schema_input_type=list[str] | str)] = []
    context_column: Text | None = None
    context: Text | None = None
    delimiter: Mark = ","
    encoding: Encoding = "utf-8"
    format: Literal["txt", "jsonl", "csv", "tsv", "parquet"] | None = None
    quoting: Quoting = "format"
    document: Annotated[str, BeforeValidator(document_unit, json_schema_input_type=DOCUMENT_UNIT)]
    validation_share: Annotated[BelowOne, OnlyIf(validation_files=[], otherwise=0.0)]
    on_error: Literal["stop", "skip"]
    normalization: Literal["none", "NFC"]
    control_characters: Literal["keep", "remove"]
    min_characters: NonNegative
    min_words: NonNegative = 0
    deduplicate: bool
    categories: list[str]
    repair: Literal["none", "ftfy"] = "none"
    cleaners: Literal["none", "by_category", "speech", "subtitles", "dialogue", "prose"] = "none"
    boilerplate: BelowOne = 0.0
    language_filter: LanguageFilter | None = None
    near_duplicates: Similarity | None = None
    near_duplicate_paragraphs: Similarity | None = None
    decontaminate: list[str] = []
    budget: Annotated[Annotated[Number, Field(gt=0)] | str | None, AfterValidator(budget)]

    def contradictions(self) -> Iterator[tuple[str, str]]:
        local = [*self.files, *self.validation_files]
        plain = self.builtin or any(split_name(path, self.format)[0] == ".txt" for path in local)
        if self.prompt_column == self.text_column:
            yield "prompt_column text_column", "different columns"
        for key in ("prompt_column", "label_columns"):
            if plain and getattr(self, key):
                yield key, "plain text has no columns"
        for key in ("text_column", "context_column"):
            if getattr(self, key) in self.label_columns:
                yield f"label_columns {key}", "different columns"
        if self.context_column is not None and self.context is not None:
            yield "context_column context", "one of the two"
        if (self.context_column, self.context) != (None, None) and not self.label_columns:
            yield "context_column context label_columns", "a context needs columns of labels"
        if self.label_columns and self.prompt_column:
            yield "prompt_column label_columns", "prompts or labels"
        if self.label_columns and (self.near_duplicates or self.near_duplicate_paragraphs):
            yield "near_duplicates near_duplicate_paragraphs label_columns", "near copies may have different labels"
        if self.prompt_column and self.near_duplicate_paragraphs:
            yield "near_duplicate_paragraphs prompt_column", "null with prompts: answers stay whole"


class Tokenizer(Section):
    """The byte-level BPE tokenizer."""

    source: LocalPath | None
    revision: str
    vocab_size: Annotated[Integer, Field(ge=16 + 256, le=2**20), OnlyIf(source=None, otherwise=16 + 256)]
    min_frequency: Annotated[Positive, OnlyIf(source=None, otherwise=1)]
    prefix_space: bool = False


class Mixture(Section):
    """How a model of several languages weighs them: by the size of each to the power of `weights`."""

    weights: Annotated[Share, BeforeValidator(exponent, json_schema_input_type=Share | Literal["size", "uniform"])]


class Model(Section):
    """The architecture: one of ours, a class of transformers with its `config`, or the trained model that has it."""

    architecture: Literal["gpt_bert", "norbert4", "transformers"] = "gpt_bert"
    config: Annotated[dict[str, Any] | None, BeforeValidator(typed), OnlyIf(architecture="transformers")] = None
    source: Annotated[LocalPath, Field(min_length=1)] | None = None
    revision: str = "main"
    hidden_size: Annotated[Positive, Field(le=2**20), new_model(1)]
    intermediate_size: Annotated[Positive, Field(le=2**22), new_model(1)]
    num_attention_heads: Annotated[Positive, new_model(1)]
    num_hidden_layers: Annotated[Positive, Field(le=10_000), new_model(1)]
    max_position_embeddings: Annotated[Positive, Field(le=MAX_LENGTH), OnlyIf(source=None, otherwise=1)]
    position_bucket_size: Annotated[Integer, Field(ge=2, le=MAX_LENGTH), new_gpt_bert(2)]
    hidden_dropout_prob: Annotated[BelowOne, OnlyIf(architecture=OURS, otherwise=0.0)]
    attention_probs_dropout_prob: Annotated[BelowOne, OnlyIf(architecture=OURS, otherwise=0.0)]
    layer_norm_eps: Annotated[Number, Field(gt=0, le=1), new_model(1e-5)]
    gate: Annotated[bool, new_gpt_bert(True)]
    layer_mixing: Annotated[bool, new_gpt_bert(True)]
    local_global_ratio: Annotated[Positive, Field(le=10_000), OnlyIf(architecture="norbert4", source=None)] = 4
    local_window_length: Annotated[Positive, Field(le=MAX_LENGTH), OnlyIf(architecture="norbert4", source=None)] = 128

    def shape(self) -> dict[str, Any]:
        """Return the settings that define a GPT-BERT, without those that say where its weights come from."""
        return self.model_dump(exclude={"architecture", "config", "source", "revision", *OF_NORBERT4})

    def contradictions(self) -> Iterator[tuple[str, str]]:
        config, new = self.config or {}, self.source is None
        if config and not new:
            yield "source config", "config: null, since the source has one"
        if new and (self.architecture == "transformers") != (self.config is not None):
            yield (
                "architecture config",
                "transformers has a config, such as {model_type: gpt2, n_embd: 512}; others not",
            )
        if self.config is not None and not isinstance(config.get("model_type"), str):
            yield "config", "`model_type` is missing, such as gpt2"
        if any(key in OF_THE_WORKFLOW or key.endswith("_token_id") for key in config):
            yield (
                "config",
                "the workflow sets vocabulary (tokenizer.vocab_size), max_position_embeddings and ids of tokens",
            )
        if new and self.hidden_size % self.num_attention_heads:
            yield "num_attention_heads hidden_size", "num_attention_heads divides hidden_size"
        if new and self.architecture == "norbert4" and self.hidden_size // self.num_attention_heads % 2:
            yield "num_attention_heads hidden_size architecture", "norbert4 has heads of an even width"


class Train(Section):
    """Objective, data schedule and optimiser."""

    seed: Annotated[NonNegative, Field(lt=2**63)]
    epochs: Annotated[Number, Field(gt=0, le=1e6), OnlyIf(max_steps=None, words=None, otherwise=1.0)]
    max_steps: Annotated[Positive, Field(le=MAX_STEPS)] | None
    words: Words | None = None
    global_batch_tokens: Annotated[Positive, Field(le=MAX_BATCH)]
    batch_reduction: Annotated[Number, Field(ge=1, le=1e6)]
    micro_batch_tokens: Annotated[Positive, Field(le=MAX_BATCH)] | None = None
    sequence_lengths: Annotated[list[Annotated[Integer, Field(ge=2, le=MAX_LENGTH)]], Field(min_length=1)]
    phase_starts: Annotated[list[BelowOne], Field(min_length=1)]
    order: Literal["rows", "documents"] = "rows"
    objective: Literal["hybrid", "masked", "causal", "diffusion", "labels"]
    hybrid_ratio: Annotated[str, BeforeValidator(ratio), OnlyIf(objective="hybrid", otherwise="1/2")]
    token_weighted: Annotated[bool, OnlyIf(objective="hybrid", otherwise=False)]
    mask_rate_start: Annotated[Number, Field(gt=0, le=1), OnlyIf(objective=MASKING, otherwise=1.0)]
    mask_rate_end: Annotated[Number, Field(gt=0, le=1), OnlyIf(objective=MASKING, otherwise=1.0)]
    mask_random: Annotated[Share, OnlyIf(objective=MASKING)] = 0.1
    mask_keep: Annotated[Share, OnlyIf(objective=MASKING)] = 0.1
    noise: Annotated[Literal["uniform", "cosine"], OnlyIf(objective="diffusion")] = "uniform"
    optimizer: Literal["lamb", "adamw", "muon"]
    learning_rate: Annotated[Number, Field(gt=0, le=10)]
    learning_rate_floor: Share
    warmup: BelowOne
    cooldown: BelowOne
    betas: Annotated[list[BelowOne], Field(min_length=2, max_length=2)]
    eps: Annotated[Number, Field(gt=0, le=1)]
    weight_decay: Annotated[Number, Field(ge=0, le=10)]
    clip_norm: Annotated[Number, Field(gt=0)]
    z_loss_weight: Annotated[Number, Field(ge=0, le=10)]
    ema_decay: BelowOne
    average_last: Share = 0.0
    lora_rank: Annotated[NonNegative, Field(le=4096)] = 0
    lora_alpha: Positive | None = None
    freeze: Annotated[Literal["none", "encoder"], OnlyIf(objective="labels")] = "none"
    unknown_context: Annotated[Share, OnlyIf(objective="labels")] = 0.0
    typos: Share = 0.0
    precision: Literal["auto", "bf16", "fp32"]
    activation_checkpointing: bool
    non_finite: Literal["stop", "skip"]

    @property
    def averages(self) -> bool:
        """Return whether training keeps an average of the weights beside them."""
        return self.ema_decay > 0 or self.average_last > 0

    @field_validator("lora_alpha")
    @classmethod
    def _usual_alpha_is_null(cls, alpha: int | None, others: ValidationInfo) -> int | None:
        return None if alpha == 2 * others.data.get("lora_rank", 0) else alpha

    def contradictions(self) -> Iterator[tuple[str, str]]:
        starts, longest = self.phase_starts, max(self.sequence_lengths)
        if len(starts) != len(self.sequence_lengths):
            yield "phase_starts sequence_lengths", "one start for each length"
        if starts[0] != 0 or sorted(set(starts)) != starts:
            yield "phase_starts", "shares that begin with 0 and rise"
        if self.mask_random + self.mask_keep > 1:
            yield "mask_random mask_keep", "together 1 at most"
        if self.warmup + self.cooldown > 1 + 1e-9:
            yield "warmup cooldown", "together 1 at most"
        for key in ("global_batch_tokens", "micro_batch_tokens"):
            if (getattr(self, key) or MAX_BATCH) < longest:
                yield f"{key} sequence_lengths", "at least the longest row"
        if self.words and self.max_steps is not None:
            yield "words max_steps", "one of the two"
        if self.lora_alpha is not None and not self.lora_rank:
            yield "lora_alpha lora_rank", "an alpha needs a rank"
        if self.objective == "labels":
            if self.words:
                yield "words objective", "labels are trained for epochs"
            if len(self.sequence_lengths) > 1:
                yield "sequence_lengths objective", "one length with labels, such as [128]"
            if self.lora_rank:
                yield "lora_rank objective", "0 with labels"
            if self.order == "documents":
                yield "order objective", "rows with labels, which have a new order in each epoch anyway"
        elif self.typos:
            yield "typos objective", "0 unless the objective is labels"
        if self.objective == "hybrid" and min(self._first_batches()) < Fraction(self.hybrid_ratio).denominator:
            keys = "global_batch_tokens batch_reduction sequence_lengths hybrid_ratio"
            yield keys, "the smallest batch of a phase has as many rows as hybrid_ratio has parts, at least"

    def _first_batches(self) -> Iterator[int]:
        """Yield the number of rows of the first and smallest batch of each phase.

        Without `max_steps`, only those of the first phase are known; the training checks the later ones.
        """
        steps = self.max_steps or 1
        starts = [math.ceil(Fraction(str(share)) * steps) for share in self.phase_starts]  # as in `rows_by_step`
        for length, step, end in zip(self.sequence_lengths, starts, [*starts[1:], steps], strict=False):
            growth = (1 / self.batch_reduction) * (1 - step / steps) + step / steps
            if step < end:
                yield max(1, int(self.global_batch_tokens / length * growth + 0.5))


class Labels(Section):
    """What the labels of a labelled corpus mean, and what predicts them (`train.objective: labels`)."""

    code: Literal["classes", "general", "hisco", "occ1950"] = "classes"
    block_size: Annotated[Positive, Field(le=64), OnlyIf(code="general")] = 5
    symbol_separator: Text | None = None
    separator: Text | None = None
    codes: LocalPath | None = None
    on_error: Literal["stop", "skip"] = "stop"
    blocks_weight: Annotated[Share, OnlyIf(code=SPELT)] = 0.5
    decoder_layers: Annotated[Positive, Field(le=48), OnlyIf(code=SPELT)] = 3
    class_weights: Literal["none", "balanced"] = "none"

    def contradictions(self) -> Iterator[tuple[str, str]]:
        if self.symbol_separator and self.code != "general":
            yield "symbol_separator code", "null unless code is general"
        if self.symbol_separator and self.symbol_separator == self.separator:
            yield "symbol_separator separator", "two different texts"


class Export(Section):
    """What the Hugging Face folder holds."""

    variants: Annotated[list[Literal["main", "ema"]], Field(min_length=1), AfterValidator(each_once)]
    default_variant: Literal["main", "ema"]
    logits_alignment: Literal["mlm", "mntp"] = "mlm"
    adapter: Literal["none", "also", "only"] = "none"
    include_raw: bool

    def contradictions(self) -> Iterator[tuple[str, str]]:
        if self.default_variant not in self.variants:
            yield "default_variant variants", "one of the variants"


class Evaluation(Section):
    """How the exported model is measured."""

    sequence_length: Annotated[Integer, Field(ge=MASKS, le=MAX_LENGTH)]
    diffusion_samples: Annotated[Integer, Field(ge=1, le=1024)] = 16
    documents: Annotated[Integer, Field(ge=2)] | None = None
    suites: Names = []
    pairs: Annotated[Positive, Field(le=MAX_BATCH)] | Literal["all"] = "all"
    masked_pairs: Annotated[Positive, Field(le=MAX_BATCH)] | Literal["all"] = "all"
    snapshots: bool = False
    snapshot_suites: Names = []
    backend: Literal["causal", "mlm"] | None = None
    tasks: Names = []
    task_seeds: Seeds = []
    keep_tuned: bool = False


class Card(Section):
    """What only the author knows about the model."""

    license: Annotated[str, AfterValidator(licence)]
    authors: list[str]
    description: str
    carbon_grams: Annotated[Number, Field(ge=0)] | None


class PredictInput(Section):
    """An entry of `predict.inputs`. For a key that is null, the value of the section `predict` applies."""

    file: Annotated[LocalPath, Field(min_length=1)]  # the table
    text_column: str | None = None
    context_column: str | None = None
    context: str | None = None
    delimiter: Mark | None = None
    encoding: Encoding | None = None
    quoting: Quoting | None = None


def prediction_inputs(value: Any) -> Any:
    """Return {name: table with the keys of `PredictInput`}; a path alone means the table's file."""
    if not isinstance(value, dict):
        return value
    for name in value:
        if not re.fullmatch(r"[a-zA-Z0-9]+(_[a-zA-Z0-9]+)*", str(name)):
            raise ValueError(f"{name!r}: names are letters and digits in groups joined by underscores")
    each_once([str(name) for name in value])
    return {str(name): {"file": table} if isinstance(table, str) else table for name, table in value.items()}


class Predict(Section):
    """Tables whose rows a label model predicts."""

    inputs: Annotated[
        dict[str, PredictInput],
        BeforeValidator(prediction_inputs, json_schema_input_type=dict[str, PredictInput | str]),
    ] = {}
    top: Annotated[Positive, Field(le=1000)] = 5
    method: Literal["blocks", "linear"] = "blocks"
    threshold: Share | None = None
    review: Positive = 100
    text_column: str | None = None
    context_column: str | None = None
    context: str | None = None
    delimiter: Mark | None = None
    encoding: Encoding = "utf-8"
    quoting: Quoting = "format"

    def contradictions(self) -> Iterator[tuple[str, str]]:
        for table in (self, *self.inputs.values()):
            if table.context_column is not None and table.context is not None:
                yield (
                    "context_column context" if table is self else "inputs",
                    "one of the two, context_column and context",
                )


class Publish(Section):
    """The repository on the Hugging Face Hub."""

    username: str | None
    repo_template: Annotated[str, AfterValidator(repo_template)]
    private: bool


class Run(Section):
    """How a training run is monitored and saved. Changing these keys never repeats a run."""

    checkpoint_every: Positive | None
    checkpoint_minutes: Annotated[Number, Field(gt=0)]
    keep: Positive
    log_every: Positive
    validate_every: NonNegative
    validation_tokens: Positive | Literal["auto"] = "auto"
    validation_documents: Positive | None
    snapshots: Snapshots = []
    micro_batch_tokens: Annotated[Positive, Field(le=MAX_BATCH)] = 16_384
    compile: Literal["auto", "always", "never"] = "auto"
    checkpoints: Annotated[str, AfterValidator(place_of_checkpoints)] | None = None
    tracking: Literal["none", "wandb"]


class Resources(Section):
    """What a training job asks of the machine."""

    gpus: Annotated[NonNegative, Field(le=100_000)]


@dataclasses.dataclass(frozen=True)
class ModelSections:
    """The sections of a model. (A language has only the section `corpus`.)"""

    tokenizer: Tokenizer
    mixture: Mixture
    model: Model
    train: Train
    labels: Labels
    export: Export
    evaluation: Evaluation
    card: Card
    predict: Predict
    publish: Publish
    run: Run
    resources: Resources


SECTIONS: dict[str, type[Section]] = {"corpus": Corpus, **ModelSections.__annotations__}
MODEL_SECTIONS = [*ModelSections.__annotations__]


class Baseline(Section):
    """A published score, which reports show beside ours."""

    language: Text  # the code of the language, as in this workflow
    model: Text  # the model that was scored
    pipeline: Text  # the program that scored it; a model's scores differ between pipelines
    score: Annotated[Number, Field(ge=0, le=100)]  # percent of the pairs that are right


# The keys of a suite that only some kinds have, and those of them that a kind needs.
ITEM_KEYS: dict[str, tuple[str, ...]] = {
    "pairs": ("good", "bad"),
    "choices": (*("prompt", "options", "right", "scored", "score", "ties", "unknown", "drop", "ratio", "harness_ids"),),
    "reading": (),
    "acquisition": (),
}
REQUIRED_ITEM_KEYS: dict[str, tuple[str, ...]] = {"pairs": ("good", "bad"), "choices": ("options", "scored")}


class Dataset(Section):
    """What suites and tasks have in common."""

    title: str = ""  # its name in reports
    repository: Text | None = None  # a dataset on the Hub; without one, the files are local
    revision: Text = "main"
    language: Text | None = None  # the language of all rows
    languages: dict[str, str] = {}  # instead: {code: what `{language}` stands for in the names of its files}
    delimiter: Mark | None = None  # of .csv and .tsv files, as `encoding`
    encoding: Encoding = "utf-8"
    license: str = ""  # the licence of the rows; those without a licence are not copied
    note: str = ""  # what a reader of a score must know
    baselines: list[Baseline] = []

    def contradictions(self) -> Iterator[tuple[str, str]]:
        if (self.language is None) == (not self.languages):
            yield "language languages", "one of the two"

    @property
    def covered(self) -> dict[str, str]:
        """Return its languages: {code: the language's name in the names of the files}."""
        return {self.language: self.language} if self.language else self.languages


class Suite(Dataset):
    """A set of items whose sentences a model scores: minimal pairs, or prompts with two or more options.

    config/README.md explains the keys. Those from `prompt` to `harness_ids` are of choices.
    """

    kind: Literal["pairs", "choices", "reading", "acquisition"] = "pairs"
    files: list[Annotated[LocalPath, Field(min_length=1)]] = []
    challenge_files: list[Text] = []  # in the folder `evaluation_data`; if it is known, these are read, not `files`
    good: Text | None = None
    bad: Text | None = None
    prompt: str | list[str] = ""
    options: Text | Annotated[list[Text], Field(min_length=2)] | None = None
    right: Annotated[int, Field(ge=0)] | Text = 0
    scored: Literal["whole", "completion"] | None = None
    score: Literal["sum", "mean"] = "sum"
    ties: Literal["half", "first", "wrong"] = "half"
    unknown: Literal["scored", "wrong"] = "scored"
    drop: str = ""
    ratio: Text | None = None
    harness_ids: bool = False
    phenomenon: Text | None = None  # the column that says what is tested; of choices, a template, too
    paradigm: Text | None = None  # the same for the finer group
    quoting: Quoting = "format"
    # The score is the share of all pairs, or the mean over paradigms or phenomena.
    headline: Literal["pairs", "paradigms", "phenomena"] = "pairs"

    def contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super().contradictions()
        if self.languages and any("{language}" not in pattern for pattern in self.files + self.challenge_files):
            yield "languages files challenge_files", "with `languages`, each of the files has {language} in its name"
        if not (self.files or self.challenge_files):
            yield "files", "at least one"
        kinds = {key: kind for kind, names in ITEM_KEYS.items() for key in names}
        for key in sorted(kinds.keys() & self.model_fields_set - {*ITEM_KEYS[self.kind]}):
            yield f"{key} kind", f"only suites of the kind {kinds[key]} have {key}"
        for key in REQUIRED_ITEM_KEYS.get(self.kind, ()):
            if getattr(self, key) is None:
                yield f"{key} kind", f"a suite of this kind has {key}"
        if self.kind == "pairs" and self.good == self.bad:
            yield "good bad", "different columns"
        if isinstance(self.prompt, list) and len(self.prompt) != self.number_of_options:
            yield "prompt options", "a list of prompts has one for each option"
        if isinstance(self.right, int) and self.right >= (self.number_of_options or self.right + 1):
            yield "right options", "the number of an option, from 0"
        if len({key: columns_of(each) for key, each in self.templates.items()}.get("options", ["one"])) != 1:
            yield "options", "a template with one column that holds a list, or a list with a template for each option"

    @property
    def number_of_options(self) -> int | None:
        """Return the number of options of every item, if they are templates; else items may have different numbers."""
        return len(self.options) if isinstance(self.options, list) else None

    @property
    def templates(self) -> dict[str, str]:
        """Return the templates of the texts of choices: {key, with its number in a list: template}."""
        found: dict[str, str] = {}
        for key in ("prompt", "options"):
            if isinstance(value := getattr(self, key), list):
                found |= {f"{key}[{number}]": template for number, template in enumerate(value)}
            elif key == "prompt" or "{" in (value or ""):
                found[key] = value
        groups = ("phenomenon", "paradigm") if self.kind == "choices" else ()
        return found | {key: value for key in groups if "{" in (value := getattr(self, key) or "")}

    def files_of(self, code: str) -> list[str]:
        """Return the globs of a language's files."""
        return [pattern.replace("{language}", self.covered[code]) for pattern in self.files]

    def challenge_files_of(self, code: str) -> list[str]:
        """Return the globs of a language's files in the challenge's folder."""
        return [pattern.replace("{language}", self.covered[code]) for pattern in self.challenge_files]


class Tuning(Section):
    """How a model is fine-tuned for a task: a protocol of `config/protocols/`, some of whose keys a task may change."""

    title: str = ""  # what scores by this protocol are called
    # The challenge's head on the state of one position, or for words on the mean of each word's pieces (`challenge`);
    # or the model's own class for sequence or token classification (`model`).
    head: Literal["challenge", "model"]
    # The position that the challenge's head reads; `last` needs padding on the left. For words, the piece of each word
    # that the model's own class labels.
    pooling: Literal["first", "last"] = "first"
    padding: Literal["left", "right"] = "right"
    # The token that a decoder's own classifier takes for padding, to find the last token before it: `pad`, with which
    # rows are padded, or `eos`.
    config_padding: Literal["pad", "eos"] = "pad"
    dropout: BelowOne = 0.1  # that of the challenge's head
    longest: Annotated[Integer, Field(ge=8, le=MAX_LENGTH)]  # the most tokens of a row; longer rows are cut
    same_length: bool = False  # whether all batches are as long as `longest`
    epochs: Annotated[Positive, Field(le=1000)]  # how often the training rows are read
    batch: Annotated[Positive, Field(le=4096)]  # rows per step; the last incomplete batch of an epoch is left out
    # learning_rate, weight_decay: of AdamW with betas 0.9 and 0.999.
    learning_rate: Annotated[Number, Field(gt=0, le=1)]
    weight_decay: Annotated[Number, Field(ge=0, le=10)] = 0.0
    warmup: Share = 0.0  # the share of the steps in which the rate rises
    # schedule, floor: the form in which the rate falls, and the share of its peak at which it ends.
    schedule: Literal["cosine", "linear"]
    floor: Share = 0.0
    clip_norm: Annotated[Number, Field(gt=0)] | None = None  # the largest norm of the gradients; null for no limit
    # Where the order of rows comes from: `state`, the global random numbers, as PyTorch's DataLoader does it; `epoch`,
    # the seed and the number of the epoch, as accelerate does it.
    shuffle: Literal["state", "epoch"]
    select: Literal["best", "last"]  # which weights are scored: those of the `best` epoch, or the `last`
    # The share of the training rows that choose the best epoch instead of being trained on; 0: the test rows choose it,
    # as the challenge does.
    held_out: BelowOne = 0.0
    # patience, threshold: after how many epochs without an improvement of more than the threshold training stops.
    patience: Positive | None = None
    threshold: Annotated[Number, Field(ge=0)] = 0.0
    # If set, the last incomplete batch of so many test rows is not scored, as in the multilingual track.
    test_batch: Positive | None = None
    # Words beyond the longest row count as `wrong`, or are `left_out`, as in the multilingual track.
    words_cut: Literal["wrong", "left_out"] = "wrong"
    seeds: Annotated[Seeds, Field(min_length=1)]  # one run for each

    def contradictions(self) -> Iterator[tuple[str, str]]:
        if self.head == "challenge" and (self.pooling == "last") != (self.padding == "left"):
            yield "pooling padding head", "last with padding on the left, or first with padding on the right"


CONLL = (".conllu", ".conll", ".iob", ".iob2", ".bio", ".conll2003")  # ends of names of files for the kind tagging


class Resplit(Section):
    """How a task's rows are divided anew, as the multilingual track of the BabyLM challenge does it.

    All rows of `train` and `test` are shuffled. Of those that are kept, 80 % are trained on, 10 % scored, and 10 % only
    predicted: a submission holds their predictions.
    """

    rows: Annotated[Integer, Field(ge=10)]  # how many rows are kept at most
    seed: NonNegative = 42  # the seed of the shuffling


class Task(Dataset):
    """A task that models are fine-tuned for: texts, pairs of texts, or words of sentences have one of some classes."""

    kind: Literal["classification", "tagging"] = "classification"  # of texts; of the words of sentences
    # Globs of the rows to train on, and to score; a local path that begins with `{evaluation_data}/` is in that folder.
    train: Annotated[list[Annotated[LocalPath, Field(min_length=1)]], Field(min_length=1)]
    test: Annotated[list[Annotated[LocalPath, Field(min_length=1)]], Field(min_length=1)]
    text: Text | None = None  # of a classification, a template with columns in braces
    pair: Text | None = None  # the same for the second text of a pair
    # The column of the class. Of a tagging: `upos` or `xpos` of .conllu files, or the number of a column.
    label: Text | Positive = "label"
    word: Positive | None = None  # of a tagging, the number of the column of the word in files that are not .conllu
    resplit: Resplit | None = None
    joint: bool = False  # whether one model learns equal shares of all languages, instead of one model for each
    metric: Literal["accuracy", "f1", "mcc", "span_f1"] = "accuracy"  # span_f1: of names, with labels such as B-PER
    protocol: Text = "sound"  # how the model is fine-tuned, a file of `config/protocols/`
    tuning: dict[str, Any] = {}  # keys of the protocol that are different for this task

    @model_validator(mode="before")
    @classmethod
    def _words_are_of_universal_dependencies(cls, values: Any) -> Any:
        of_words = isinstance(values, dict) and values.get("kind") == "tagging"
        return {"label": "upos", **values} if of_words else values

    def contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super().contradictions()
        of_words = self.kind == "tagging"
        if not of_words and any(split_name(path)[0] in CONLL for path in (*self.train, *self.test)):
            yield "kind train test", "tagging: these files have words with labels"
        for key in ("text", "pair", "delimiter") if of_words else ("word", "resplit"):
            if getattr(self, key) is not None:
                yield f"{key} kind", "null with this kind"
        if of_words and self.encoding != "utf-8":
            yield "encoding kind", "utf-8 with tagging"
        if not of_words and not isinstance(self.label, str):
            yield "label kind", "the name of a column"
        if self.metric in (("f1", "mcc") if of_words else ("span_f1",)):
            yield "metric kind", "accuracy or span_f1 with tagging, else accuracy, f1 or mcc"
        if not of_words and not all(map(columns_of, [self.text or "", *filter(None, [self.pair])])):
            yield "text pair", "templates with columns in braces, such as {sentence}"


class LanguageEntry(Section):
    """An entry of `languages:`; what it leaves out comes from `config/languages.tsv`."""

    name: str = ""
    language: str = ""  # the language that it is in: an entry with a name of its own is another text of this language
    tier: Literal[1, 2, 3] | None = None
    script: str = ""
    byte_premium: Annotated[Number, Field(gt=0, le=100)] | None = None
    tag: Annotated[str, AfterValidator(language_tag)] = ""
    corpus: dict[str, Any] = {}


class Sections(Section):
    """The sections of a model, as a file has them: each with some of its keys, which are checked for each model."""

    tokenizer: dict[str, Any] = {}
    mixture: dict[str, Any] = {}
    model: dict[str, Any] = {}
    train: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    export: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    card: dict[str, Any] = {}
    predict: dict[str, Any] = {}
    publish: dict[str, Any] = {}
    run: dict[str, Any] = {}
    resources: dict[str, Any] = {}


class Preset(Sections):
    """A file of `config/presets/`: values of the models that name it."""

    languages: Names = []  # their languages, unless they name some
    submission: str | None = None  # what they submit to a challenge: a file of `config/submissions/`


class ModelEntry(Preset):
    """An entry of `models:`; it is laid over presets and the user's values for all models."""

    like: str | None = None  # another model: what this entry leaves out is as in the entry of that model, key by key
    preset: Presets = []


class Experiment(Section):
    """An entry of `experiments:`: models that differ in a few keys, and in their seeds."""

    # The model, batch or list of these that all cells inherit from.
    base: Text | Annotated[list[Text], Field(min_length=1)]
    # What differs, by dotted key: lists of values, all combined with each other; or a list of mappings, one a cell.
    # Without it, the base itself is the only cell.
    vary: (
        dict[str, Annotated[list[Any], Field(min_length=1)]] | Annotated[list[dict[str, Any]], Field(min_length=1)]
    ) = {}
    seeds: Positive = 1  # how many models each cell has; they differ in train.seed alone
    compare_with: dict[str, Any] | None = None  # the values of the cell that the others are compared with
    limit: Positive = 1000  # the largest number of models, against mistakes

    @property
    def bases(self) -> list[str]:
        return [self.base] if isinstance(self.base, str) else self.base


class User(Sections):
    """A configuration file."""

    targets: Names
    preset: Presets
    batches: dict[str, Names]
    suites: dict[str, Suite]
    tasks: dict[str, Task]
    models: dict[str, ModelEntry]
    languages: dict[str, LanguageEntry]
    experiments: dict[str, Experiment]
    evaluation_data: LocalPath = ""
    corpus: dict[str, Any] = {}
