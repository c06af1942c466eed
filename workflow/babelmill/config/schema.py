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
import re
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

from babelmill.config.layers import nearest_key
from babelmill.config.snapshots import Snapshots
from babelmill.config.values import (
    budget,
    column_names,
    delimiter,
    document_unit,
    each_once,
    exponent,
    language_tag,
    licence,
    local_path,
    number,
    place_of_checkpoints,
    precision,
    ratio,
    repo_template,
    two_numbers,
    typed,
    word_count,
)
from babelmill.core.formats import split_name
from babelmill.core.templates import columns_of

# These limits are far above all trainings so far, and far below any overflow of arithmetic.
MAX_STEPS = 10_000_000
MAX_LENGTH = 2**20
MAX_BATCH = 2**30
MASKING = ("hybrid", "masked")  # values of train.objective that hide tokens at a rate that changes over the run
UNKNOWN = "unknown_key"  # the type of pydantic's error
SPELT = ("general", "hisco", "occ1950")  # values of labels.code whose codes are also predicted symbol by symbol

# Keys that model.config may not set, since the workflow does, and what to set instead.
OF_THE_WORKFLOW = {
    "vocab_size": "set tokenizer.vocab_size",
    "max_position_embeddings": "set model.max_position_embeddings",
    "n_positions": "set model.max_position_embeddings",
    "token_id": "the ids of special tokens come from the tokenizer",
}

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


class Section(BaseModel):
    """A group of keys. Unknown keys are refused. The text "null" means None, since `--config` can pass only text."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, values: Any) -> Any:
        """Refuse an unknown key with the nearest known one, which pydantic does not name (see `mistakes.worded`)."""
        for key in values if isinstance(values, dict) else ():
            if key not in cls.model_fields:
                meant = nearest_key(str(key), cls.model_fields)
                raise pydantic_core.PydanticCustomError(
                    UNKNOWN, "unknown key {key}{meant}", {"key": key, "meant": meant}
                )
        return values

    @model_validator(mode="before")
    @classmethod
    def _null_text(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        optional = {name for name, field in cls.model_fields.items() if type(None) in get_args(field.annotation)}
        return {
            key: None if key in optional and value in ("null", "None", "~") else value for key, value in values.items()
        }


OF_NORBERT4 = ("local_global_ratio", "local_window_length")  # keys of `model` that no other architecture has


class OnlyIf:
    """Marks a key that matters only if other keys of its section have the given values.

    Otherwise settings files leave the key out, and a stage reads the default of the class or, without one, `otherwise`.

    Args:
        otherwise: this value.
        keys: for each of the other keys its value, or a tuple of several.
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


@dataclasses.dataclass(frozen=True)
class Was:
    """Marks a key that has moved: settings files keep it in its old place, `section.key`."""

    key: str


# Values of `corpus.document`, for editors.
DOCUMENT_UNIT = Literal["file", "paragraph", "line"] | Annotated[str, Field(pattern=r"^[1-9][0-9]* words$")]

# Keys of `corpus` that name columns, and the end of the error for a source without columns.
TABLES = {
    "prompt_column": "prompts come from .jsonl, .csv, .tsv or .parquet",
    "label_columns": "labels come from .csv, .tsv, .jsonl or .parquet",
}


class DatasetPart(Section):
    """An entry of `corpus.hub`: files of a dataset on the Hub. A key that is null or empty has no effect.

    Attributes:
        repository: its name; {language} stands for the language's code.
        config: a configuration that the dataset's card declares, with its data files.
        files: globs inside the repository.
        text_column: replaces `corpus.text_column`.
    """

    repository: Text
    config: Text | None = None
    files: Names = []
    text_column: Text | None = None


PART = "[{repository: Salesforce/wikitext, config: wikitext-103-raw-v1}]"


def dataset_parts(value: Any) -> Any:
    """Return a name, or a list of entries with the keys of `DatasetPart`; a list of one bare name becomes the name."""
    if not isinstance(value, list):
        if isinstance(value, str | None):
            return value
        raise ValueError(f"a name or a list is expected, such as {PART}")
    parts = [{"repository": entry} if isinstance(entry, str) else entry for entry in value]
    for part in parts:
        if not isinstance(part, dict) or not isinstance(part.get("repository"), str) or not part["repository"]:
            raise ValueError(f"each entry needs a repository, such as {PART}")
        if unknown := part.keys() - DatasetPart.model_fields:
            raise ValueError(f"an entry has no key {min(unknown)}; its keys are {', '.join(DatasetPart.model_fields)}")
    return parts[0]["repository"] if len(parts) == 1 and parts[0].keys() == {"repository"} else parts


class LanguageFilter(Section):
    """What is dropped because it is in another language (see `corpus/identification.py`).

    Attributes:
        model: a name of `config/identifiers.py`, or the path of a model of fastText.
        at_least: the least probability.
        level: what is looked at.
    """

    model: Annotated[LocalPath, Field(min_length=1)]
    at_least: Share = 0.8
    level: Literal["document", "line"] = "document"


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
    label_columns: Annotated[Names, BeforeValidator(column_names, json_schema_input_type=list[str] | str)] = []
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
    parts: Annotated[Positive, Field(le=2000)] | Literal["auto"] = 1

    @model_validator(mode="after")
    def _prompts_have_columns(self) -> Self:
        if self.prompt_column is not None and self.prompt_column == self.text_column:
            name = f"corpus.prompt_column = {self.prompt_column!r}"
            raise ValueError(
                f"{name} is also corpus.text_column: set corpus.text_column to the column with the responses"
            )
        plain = [path for path in [*self.files, *self.validation_files] if split_name(path, self.format)[0] == ".txt"]
        found = plain[0] if plain else self.builtin
        for key, words in TABLES.items():
            if found and getattr(self, key):
                raise ValueError(f"corpus.{key} = {getattr(self, key)!r}: {found} has no columns; {words}")
        return self

    @model_validator(mode="after")
    def _columns_of_labels(self) -> Self:
        names = {"text_column": self.text_column, "context_column": self.context_column}
        for key, name in names.items():
            if name in self.label_columns:
                raise ValueError(f"corpus.label_columns names {name!r}, which is also corpus.{key}: remove one of them")
        if self.context_column is not None and self.context is not None:
            raise ValueError(
                f"corpus.context_column = {self.context_column!r} and corpus.context = {self.context!r}: a text has one"
                " context; leave one of them out"
            )
        for key in ("context_column", "context"):
            if getattr(self, key) is not None and not self.label_columns:
                raise ValueError(
                    f"corpus.{key} = {getattr(self, key)!r} is for labelled text: also set corpus.label_columns"
                )
        if self.label_columns and self.prompt_column is not None:
            raise ValueError(
                f"corpus.prompt_column = {self.prompt_column!r} and corpus.label_columns = {self.label_columns}: text"
                " has prompts or labels, not both; for a context of labelled text, set corpus.context_column"
            )
        return self

    @model_validator(mode="after")
    def _near_copies_of_plain_text(self) -> Self:
        if self.label_columns and (self.near_duplicates or self.near_duplicate_paragraphs):
            raise ValueError(
                "corpus.near_duplicates is for text without labels: two texts that are nearly the same may have"
                " different labels; leave it out"
            )
        if self.prompt_column is not None and self.near_duplicate_paragraphs:
            raise ValueError(
                "corpus.near_duplicate_paragraphs would cut paragraphs out of answers (corpus.prompt_column); leave it"
                " out, or use corpus.near_duplicates, which drops whole documents"
            )
        return self

    @model_validator(mode="after")
    def _boilerplate_in_one_job(self) -> Self:
        if self.boilerplate and self.parts != 1:
            raise ValueError(
                f"corpus.parts = {self.parts!r}: with corpus.boilerplate, one job must have read all text before the"
                " lines that stand in many documents are known; set corpus.parts: 1, or leave corpus.boilerplate out"
            )
        return self


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

    @model_validator(mode="after")
    def _config_of_its_architecture(self) -> Self:
        if self.source is not None and self.config is not None:
            raise ValueError(f"model.config: a model that continues {self.source} takes its config; leave the key out")
        wanted = self.architecture == "transformers" and self.source is None
        if wanted != (self.config is not None):
            needed = "needs model.config" if self.config is None else "does not use model.config"
            raise ValueError(
                f"model.architecture = {self.architecture!r} {needed}: the transformers model and its sizes, such as"
                " {model_type: gpt2, n_embd: 512, n_layer: 8, n_head: 8}, under model.architecture: transformers"
            )
        config = self.config or {"model_type": ""}
        if not isinstance(config.get("model_type"), str):
            raise ValueError("model.config needs `model_type`, the name of a transformers model, such as gpt2 or bert")
        for key in config:
            if setting := OF_THE_WORKFLOW.get("token_id" if str(key).endswith("_token_id") else key):
                raise ValueError(f"model.config has {key}, which the workflow sets: {setting}")
        return self

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.source is None and self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"model.num_attention_heads = {self.num_attention_heads} does not divide"
                f" model.hidden_size = {self.hidden_size}; choose a divisor"
            )
        if self.source is None and self.architecture == "norbert4" and self.hidden_size // self.num_attention_heads % 2:
            raise ValueError(
                f"model.num_attention_heads = {self.num_attention_heads} gives heads of width"
                f" {self.hidden_size // self.num_attention_heads}; model.architecture = 'norbert4' rotates pairs of"
                " numbers, so the width must be even"
            )
        return self


class Train(Section):
    """Objective, data schedule and optimiser."""

    seed: Annotated[NonNegative, Field(lt=2**63)]
    epochs: Annotated[Number, Field(gt=0, le=1e6), OnlyIf(max_steps=None, words=None, otherwise=1.0)]
    max_steps: Annotated[Positive, Field(le=MAX_STEPS)] | None
    words: Annotated[int, BeforeValidator(word_count), Field(gt=0, le=10**13)] | None = None
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
    masking: Annotated[Literal["spans", "words"], OnlyIf(objective=MASKING)] = "spans"
    noise: Annotated[Literal["uniform", "cosine"], OnlyIf(objective="diffusion")] = "uniform"
    rarity: Annotated[Number, Field(ge=0, le=0.5), OnlyIf(objective="diffusion")] = 0.0
    optimizer: Literal["lamb", "adamw", "muon"]
    learning_rate: Annotated[Number, Field(gt=0, le=10)]
    learning_rate_floor: Share
    warmup: BelowOne
    cooldown: BelowOne
    betas: Annotated[list[BelowOne], BeforeValidator(two_numbers)]
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
    precision: Annotated[Literal["bf16", "fp32"], BeforeValidator(precision)]
    gradient_reduction: Literal["bf16", "fp32"] = "fp32"  # see REMOVED
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
        if self.mask_random + self.mask_keep > 1:
            raise ValueError(
                f"train.mask_random = {self.mask_random:g} and train.mask_keep = {self.mask_keep:g} are shares of the"
                " hidden tokens: together they may be 1 at most"
            )
        longest = max(self.sequence_lengths)
        for name in ("global_batch_tokens", "micro_batch_tokens"):
            tokens = getattr(self, name)
            if tokens is not None and tokens < longest:
                raise ValueError(f"train.{name} = {tokens} must hold at least one row of {longest} tokens")
        return self

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.words and self.max_steps is not None:
            raise ValueError(
                f"train.words = {self.words:,} and train.max_steps = {self.max_steps:,} both say when training ends;"
                " set one of them to null"
            )
        if self.words and self.objective == "labels":
            raise ValueError(
                f"train.words = {self.words:,}: a label model reads no running text (train.objective: labels); set"
                " train.epochs"
            )
        return self

    @model_validator(mode="after")
    def _labels_have_one_length(self) -> Self:
        if self.objective != "labels":
            return self
        if len(self.sequence_lengths) > 1:
            raise ValueError(
                f"train.sequence_lengths = {self.sequence_lengths}: with train.objective: labels there is only one"
                " length, the most tokens of a text; set one, such as [128], and train.phase_starts: [0]"
            )
        if self.lora_rank:
            raise ValueError(
                f"train.lora_rank = {self.lora_rank}: label models have no adapters; train.freeze: encoder trains"
                " only the heads"
            )
        return self

    @model_validator(mode="after")
    def _labelled_documents_are_rows(self) -> Self:
        if self.order == "documents" and self.objective == "labels":
            raise ValueError(
                "train.order = 'documents': with train.objective: labels, each row is a document, in a new order in"
                " each epoch anyway; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _typos_are_in_labelled_text(self) -> Self:
        if self.typos and self.objective != "labels":
            raise ValueError(
                f"train.typos = {self.typos:g} changes only labelled texts (train.objective: labels), not the text of"
                f" train.objective: {self.objective}; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _adapters_have_a_rank(self) -> Self:
        if self.lora_alpha is not None and not self.lora_rank:
            raise ValueError(
                f"train.lora_alpha = {self.lora_alpha} scales adapters, but train.lora_rank = 0 means no adapters; set"
                " a rank"
            )
        return self

    @model_validator(mode="after")
    def _adapters_have_no_muon(self) -> Self:
        if self.lora_rank and self.optimizer == "muon":
            raise ValueError(
                f"train.optimizer = muon updates whole matrices, but train.lora_rank = {self.lora_rank} trains only"
                " adapters; set train.optimizer: adamw, or train.lora_rank: 0"
            )
        return self

    @model_validator(mode="after")
    def _warmup_and_cooldown(self) -> Self:
        together = self.warmup + self.cooldown
        if together > 1 + 1e-9:
            raise ValueError(
                f"train.warmup = {self.warmup:g} and train.cooldown = {self.cooldown:g} add up to {together:g} of"
                " all steps; together they may be 1 at most"
            )
        return self

    @model_validator(mode="after")
    def _first_batch_has_both_objectives(self) -> Self:
        """Check the first batch; the training checks the later ones, since it knows the number of steps."""
        length, needed = self.sequence_lengths[0], Fraction(self.hybrid_ratio).denominator
        rows = max(1, int(self.global_batch_tokens / length * (1 / self.batch_reduction) + 0.5))
        if self.objective == "hybrid" and rows < needed:
            raise ValueError(
                f"train.global_batch_tokens = {self.global_batch_tokens} with train.batch_reduction ="
                f" {self.batch_reduction:g} gives {rows} rows of {length} tokens (train.sequence_lengths) at the first"
                f" step, fewer than the {needed} that train.hybrid_ratio = {self.hybrid_ratio} needs; raise"
                " global_batch_tokens, lower batch_reduction or simplify the ratio"
            )
        return self


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

    @model_validator(mode="after")
    def _symbols_of_codes(self) -> Self:
        setting = f"labels.symbol_separator = {self.symbol_separator!r}"
        if self.symbol_separator and self.code != "general":
            raise ValueError(f"{setting} is only for labels.code: general, not for {self.code}; leave it out")
        if self.symbol_separator and self.symbol_separator == self.separator:
            raise ValueError(f"{setting} is also labels.separator, which separates the codes of a column; change one")
        return self


class Export(Section):
    """What the Hugging Face folder holds."""

    variants: Annotated[list[Literal["main", "ema"]], Field(min_length=1), AfterValidator(each_once)]
    default_variant: Literal["main", "ema"]
    logits_alignment: Literal["mlm", "mntp"] = "mlm"
    adapter: Literal["none", "also", "only"] = "none"
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

    sequence_length: Annotated[Integer, Field(ge=2, le=MAX_LENGTH)]
    disjoint_masks: Annotated[Integer, Field(ge=2)]  # see REMOVED
    diffusion_samples: Annotated[Integer, Field(ge=1, le=1024)] = 16
    documents: Annotated[Integer, Field(ge=2)] | None = None
    suites: Names = []
    pairs: Annotated[Positive, Field(le=MAX_BATCH)] | Literal["all"] = "all"
    masked_pairs: Annotated[Positive, Field(le=MAX_BATCH)] | Literal["all"] = "all"
    within_word_l2r: bool = False  # see REMOVED
    snapshots: bool = False
    snapshot_suites: Names = []
    backend: Literal["causal", "mlm"] | None = None
    tasks: Names = []
    task_seeds: Seeds = []
    keep_tuned: bool = False

    @model_validator(mode="after")
    def _masks_are_in_a_row(self) -> Self:
        if self.disjoint_masks > self.sequence_length:
            raise ValueError(
                f"evaluation.sequence_length = {self.sequence_length} is less than {self.disjoint_masks}: the masked"
                f" score hides every {self.disjoint_masks}th token, so some passes would hide nothing"
            )
        return self


class Card(Section):
    """What only the author knows about the model."""

    license: Annotated[str, AfterValidator(licence)]
    authors: list[str]
    description: str
    carbon_grams: Annotated[Number, Field(ge=0)] | None


class PredictInput(Section):
    """An entry of `predict.inputs`. For a key that is null, the value of the section `predict` applies.

    Attributes:
        file: the table.
    """

    file: Annotated[LocalPath, Field(min_length=1)]
    text_column: str | None = None
    context_column: str | None = None
    context: str | None = None
    delimiter: Mark | None = None
    encoding: Encoding | None = None
    quoting: Quoting | None = None


def prediction_inputs(value: Any) -> Any:
    """Return {name: table with the keys of `PredictInput`}; a path alone means the table's file."""
    if not isinstance(value, dict):
        raise ValueError("tables with their names are expected, such as {census1880: data/census.parquet}")
    for name in value:
        if not re.fullmatch(r"[a-zA-Z0-9]+(_[a-zA-Z0-9]+)*", str(name)):
            raise ValueError(
                f"{name!r} cannot be the name of a table: a name has letters and digits in groups joined by underscores"
            )
    if twice := [name for name in value if not isinstance(name, str) and str(name) in value]:
        raise ValueError(f"{twice[0]} is the name of two tables, with quotes and without; choose another name for one")
    tables = {str(name): {"file": table} if isinstance(table, str) else table for name, table in value.items()}
    for name, table in tables.items():
        if not isinstance(table, dict) or not table.get("file"):
            raise ValueError(f"{name} needs a file, such as {{{name}: data/{name}.csv}}")
        if unknown := table.keys() - PredictInput.model_fields:
            raise ValueError(f"{name} has no key {min(unknown)}; its keys are {', '.join(PredictInput.model_fields)}")
    return tables


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

    @model_validator(mode="after")
    def _one_context(self) -> Self:
        for name, table in {"": self, **self.inputs}.items():
            if table.context_column is not None and table.context is not None:
                where = f"predict.inputs.{name}" if name else "predict"
                raise ValueError(
                    f"{where}: context_column names a column, and context says it for all rows: choose one"
                )
        return self


class Publish(Section):
    """The repository on the Hugging Face Hub."""

    username: str | None
    repo_template: Annotated[str, AfterValidator(repo_template)]
    private: bool


class Run(Section):
    """How a training run is monitored and saved. Changing these keys never repeats a run."""

    checkpoint_every: Positive
    checkpoint_share: Annotated[Number, Field(gt=0, le=1)]
    keep: Positive
    log_every: Positive
    validate_every: NonNegative
    validation_tokens: Positive | Literal["auto"] = "auto"
    validation_documents: Positive | None
    snapshots: Snapshots = []
    micro_batch_tokens: Annotated[Positive, Field(le=MAX_BATCH)] | Literal["auto"] = "auto"
    compile: Literal["auto", "always", "never"] = "auto"
    tasks_at_once: Positive = 1
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
    """A published score, which reports show beside ours.

    Attributes:
        language: the code of the language, as in this workflow.
        model: the model that was scored.
        pipeline: the program that scored it; a model's scores differ between pipelines.
        score: percent of the pairs that are right.
    """

    language: Text
    model: Text
    pipeline: Text
    score: Annotated[Number, Field(ge=0, le=100)]


# The keys of a suite that only some kinds have, and those of them that a kind needs.
ITEM_KEYS: dict[str, tuple[str, ...]] = {
    "pairs": ("good", "bad"),
    "choices": (*("prompt", "options", "right", "scored", "score", "ties", "unknown", "drop", "ratio", "harness_ids"),),
    "reading": (),
    "acquisition": (),
}
REQUIRED_ITEM_KEYS: dict[str, tuple[str, ...]] = {"pairs": ("good", "bad"), "choices": ("options", "scored")}


class Suite(Section):
    """A set of items whose sentences a model scores: minimal pairs, or prompts with two or more options.

    Attributes:
        kind: "pairs" (a good sentence, and a bad one that differs in little), "choices", "reading" (words with the
            times that people take to read them) or "acquisition" (words with the age at which children know them).
            The files of the last two are those of the BabyLM challenge, or have the same form.
        title: its name in reports.
        repository: a dataset on the Hub; without one, the files are local.
        revision: the revision of the repository.
        files: globs; `{language}` stands for the value that `languages` has for a language.
        challenge_files: globs in the folder `evaluation_data` of the BabyLM challenge; if the key of this name says
            where that folder is, they are read instead of `files`.
        language: the language of all items.
        languages: instead of `language`, {code in this workflow: the language's name in the names of the files}.
        good, bad: the columns of the sentences of pairs.
        prompt: of choices: the text before the options. This is a template, such as "{context}", or a list with a
            template for each option. A prompt and an option are put together as they are, so a space between them
            stands in a template.
        options: of choices: a list of templates, or the column that holds a list of options. Text around this column
            in braces, such as " {choices}", is put around each option of the list.
        right: of choices: the number of the right option, the first being 0, or the column that holds it.
        scored: of choices: whether all tokens are scored, or only those of the option ("completion").
        score: of choices: whether an option's score is the sum over its scored tokens, or their mean.
        ties: of choices: if the right option and others have the best score, they share the point ("half"), the first
            of them is what the model chose ("first"), or nothing is right ("wrong").
        unknown: of choices: "wrong" if an item with a token that the tokenizer does not know counts as wrong.
        drop: of choices: items with an option that contains this text are left out.
        ratio: of choices: the column of a number, such as how many people prefer the first option. The suite's score is
            then the rank correlation (Spearman) of this number with the probability of the first option.
        harness_ids: of choices: whether each item keeps the name that lm-evaluation-harness gives it in its logs.
        phenomenon: the column that says what is tested; of choices, a template, too.
        paradigm: the same for the finer group; "{file}" means the file's name without its ending.
        delimiter, encoding, quoting: those of .csv and .tsv files.
        headline: what counts as the score: the share of all items, the mean of the paradigms' shares, or the mean over
            phenomena of the mean of their paradigms' shares.
        license: the licence of the items; items without a licence are not copied.
        note: what a reader of a score must know.
        baselines: published scores.
    """

    kind: Literal["pairs", "choices", "reading", "acquisition"] = "pairs"
    title: str = ""
    repository: Text | None = None
    revision: Text = "main"
    files: list[Annotated[LocalPath, Field(min_length=1)]] = []
    challenge_files: list[Text] = []
    language: Text | None = None
    languages: dict[str, str] = {}
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
    phenomenon: Text | None = None
    paradigm: Text | None = None
    delimiter: Mark | None = None
    encoding: Encoding = "utf-8"
    quoting: Quoting = "format"
    headline: Literal["pairs", "paradigms", "phenomena"] = "pairs"
    license: str = ""
    note: str = ""
    baselines: list[Baseline] = []

    @model_validator(mode="after")
    def _languages_are_named(self) -> Self:
        if (self.language is None) == (not self.languages):
            raise ValueError(
                "set `language`; or set `languages`, if the names of the files contain each language's code"
            )
        if self.languages and any("{language}" not in pattern for pattern in self.files + self.challenge_files):
            raise ValueError(
                "with `languages`, each of `files` needs {language}: else all languages have the same pairs"
            )
        if not (self.files or self.challenge_files):
            raise ValueError("set `files`: the suite has none")
        return self

    @model_validator(mode="after")
    def _items_are_of_its_kind(self) -> Self:
        names = ITEM_KEYS[self.kind]
        for kind, others in ITEM_KEYS.items():
            if foreign := sorted((set(others) - set(names)) & self.model_fields_set):
                raise ValueError(f"`{foreign[0]}` belongs to suites of `kind: {kind}`; this one is `kind: {self.kind}`")
        for key in REQUIRED_ITEM_KEYS.get(self.kind, ()):
            if getattr(self, key) is None:
                values = get_args(get_args(type(self).model_fields[key].annotation)[0])
                allowed = f" to {' or '.join(values)}" if values and isinstance(values[0], str) else ""
                raise ValueError(f"set `{key}`{allowed}: a suite of {self.kind} needs it")
        if self.kind == "pairs" and self.good == self.bad:
            raise ValueError(f"good and bad are both the column {self.good!r}")
        if isinstance(self.prompt, list) and len(self.prompt) != self.number_of_options:
            raise ValueError(
                f"`prompt` has {len(self.prompt)} templates, `options` has {self.number_of_options or 'no list of'}"
                " templates: a list of prompts needs one for each option"
            )
        if isinstance(self.right, int) and self.options and self.right >= (self.number_of_options or self.right + 1):
            raise ValueError(f"`right` is {self.right}, but the last option has the number {len(self.options) - 1}")
        named = {key: columns_of(template) for key, template in self.templates.items()}
        if len(named.get("options", ["one"])) != 1:
            raise ValueError(
                f"`options` is {self.options!r}; a single template names one column, which holds a list of options; for"
                " several columns, write a list with a template for each option"
            )
        return self

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

    @property
    def columns(self) -> dict[str, list[str]]:
        """Return the columns that its files must have: {key that names them: columns}."""
        named = {key: getattr(self, key) for key in ("good", "bad", "phenomenon", "paradigm", "ratio")}
        named |= {key: value for key in ("options", "right") if isinstance(value := getattr(self, key), str)}
        found = {key: [column] for key, column in named.items() if column and "{" not in column}
        return found | {key: columns_of(template) for key, template in self.templates.items()}

    @property
    def covered(self) -> dict[str, str]:
        """Return the languages of the suite: {code: the language's name in the names of the files}."""
        return {self.language: self.language} if self.language else self.languages

    def files_of(self, code: str) -> list[str]:
        """Return the globs of a language's files."""
        return [pattern.replace("{language}", self.covered[code]) for pattern in self.files]

    def challenge_files_of(self, code: str) -> list[str]:
        """Return the globs of a language's files in the challenge's folder."""
        return [pattern.replace("{language}", self.covered[code]) for pattern in self.challenge_files]


class Tuning(Section):
    """How a model is fine-tuned for a task: a protocol of `config/protocols/`, some of whose keys a task may change.

    Attributes:
        title: what scores by this protocol are called.
        head: the challenge's head on the state of one position, or for words on the mean of each word's pieces
            (`challenge`); or the model's own class for sequence or token classification (`model`).
        pooling: the position that the challenge's head reads; `last` needs padding on the left. For words, the piece of
            each word that the model's own class labels.
        padding: the side of the padding.
        config_padding: the token that a decoder's own classifier takes for padding, to find the last token before it:
            `pad`, with which rows are padded, or `eos`.
        dropout: that of the challenge's head.
        longest: the most tokens of a row; longer rows are cut.
        same_length: whether all batches are as long as `longest`.
        epochs: how often the training rows are read.
        batch: rows per step; the last incomplete batch of an epoch is left out.
        learning_rate, weight_decay: of AdamW with betas 0.9 and 0.999.
        warmup: the share of the steps in which the rate rises.
        schedule, floor: the form in which the rate falls, and the share of its peak at which it ends.
        clip_norm: the largest norm of the gradients; null for no limit.
        shuffle: where the order of rows comes from: `state`, the global random numbers, as PyTorch's DataLoader does
            it; `epoch`, the seed and the number of the epoch, as accelerate does it.
        select: which weights are scored: those of the `best` epoch, or the `last`.
        held_out: the share of the training rows that choose the best epoch instead of being trained on; 0: the test
            rows choose it, as the challenge does.
        patience, threshold: after how many epochs without an improvement of more than the threshold training stops.
        test_batch: if set, the last incomplete batch of so many test rows is not scored, as in the multilingual track.
        words_cut: words beyond the longest row count as `wrong`, or are `left_out`, as in the multilingual track.
        seeds: one run for each.
    """

    title: str = ""
    head: Literal["challenge", "model"]
    pooling: Literal["first", "last"] = "first"
    padding: Literal["left", "right"] = "right"
    config_padding: Literal["pad", "eos"] = "pad"
    dropout: BelowOne = 0.1
    longest: Annotated[Integer, Field(ge=8, le=MAX_LENGTH)]
    same_length: bool = False
    epochs: Annotated[Positive, Field(le=1000)]
    batch: Annotated[Positive, Field(le=4096)]
    learning_rate: Annotated[Number, Field(gt=0, le=1)]
    weight_decay: Annotated[Number, Field(ge=0, le=10)] = 0.0
    warmup: Share = 0.0
    schedule: Literal["cosine", "linear"]
    floor: Share = 0.0
    clip_norm: Annotated[Number, Field(gt=0)] | None = None
    shuffle: Literal["state", "epoch"]
    select: Literal["best", "last"]
    held_out: BelowOne = 0.0
    patience: Positive | None = None
    threshold: Annotated[Number, Field(ge=0)] = 0.0
    test_batch: Positive | None = None
    words_cut: Literal["wrong", "left_out"] = "wrong"
    seeds: Annotated[Seeds, Field(min_length=1)]

    @model_validator(mode="after")
    def _last_position_is_a_token(self) -> Self:
        if self.head == "challenge" and (self.pooling == "last") != (self.padding == "left"):
            raise ValueError(
                f"pooling = {self.pooling} with padding = {self.padding}: the head would read padding; set"
                " {pooling: last, padding: left} or {pooling: first, padding: right}"
            )
        return self


CONLL = (".conllu", ".conll", ".iob", ".iob2", ".bio", ".conll2003")  # ends of names of files for the kind tagging


class Resplit(Section):
    """How a task's rows are divided anew, as the multilingual track of the BabyLM challenge does it.

    All rows of `train` and `test` are shuffled. Of those that are kept, 80 % are trained on, 10 % scored, and 10 % only
    predicted: a submission holds their predictions.

    Attributes:
        rows: how many rows are kept at most.
        seed: the seed of the shuffling.
    """

    rows: Annotated[Integer, Field(ge=10)]
    seed: NonNegative = 42


class Task(Section):
    """A task that models are fine-tuned for: each text, pair of texts, or word of a sentence has one of some classes.

    Attributes:
        title: its name in reports.
        kind: `classification` of texts or pairs of texts, or `tagging` of the words of sentences.
        repository, revision: a dataset on the Hub; without one, the files are local.
        train, test: globs of the rows to train on, and to score. `{language}` stands for the value that `languages` has
            for a language; a local path that begins with `{evaluation_data}/` is in the folder of that key.
        language, languages: as of a suite.
        text, pair: of a classification, templates of the text, and of the second text of a pair, with columns in
            braces.
        label: the column of the class. Of a tagging: `upos` or `xpos` of .conllu files, or the number of a column.
        word: of a tagging, the number of the column of the word in files that are not .conllu.
        resplit: whether, and how, the rows are divided anew.
        joint: whether one model learns equal shares of all languages, instead of one model for each.
        metric: what counts as the score; `span_f1` is that of names and other spans, with labels such as B-PER.
        protocol: how the model is fine-tuned, a file of `config/protocols/`.
        tuning: keys of the protocol that are different for this task.
        delimiter, encoding: those of .csv and .tsv files.
        license: the licence of the rows.
        note: what a reader of a score must know.
        baselines: published scores.
    """

    title: str = ""
    kind: Literal["classification", "tagging"] = "classification"
    repository: Text | None = None
    revision: Text = "main"
    train: Annotated[list[Annotated[LocalPath, Field(min_length=1)]], Field(min_length=1)]
    test: Annotated[list[Annotated[LocalPath, Field(min_length=1)]], Field(min_length=1)]
    language: Text | None = None
    languages: dict[str, str] = {}
    text: Text | None = None
    pair: Text | None = None
    label: Text | Positive = "label"
    word: Positive | None = None
    resplit: Resplit | None = None
    joint: bool = False
    metric: Literal["accuracy", "f1", "mcc", "span_f1"] = "accuracy"
    protocol: Text = "sound"
    tuning: dict[str, Any] = {}
    delimiter: Mark | None = None
    encoding: Encoding = "utf-8"
    license: str = ""
    note: str = ""
    baselines: list[Baseline] = []

    @model_validator(mode="before")
    @classmethod
    def _words_are_of_universal_dependencies(cls, values: Any) -> Any:
        of_words = isinstance(values, dict) and values.get("kind") == "tagging"
        return {"label": "upos", **values} if of_words else values

    @model_validator(mode="after")
    def _keys_are_of_the_kind(self) -> Self:
        of_words = self.kind == "tagging"
        conll = [path for path in (*self.train, *self.test) if split_name(path)[0] in CONLL]
        if conll and not of_words:
            raise ValueError(f"{conll[0]} has words with labels, a line per word: set `kind: tagging`")
        foreign = ("text", "pair", "delimiter") if of_words else ("word", "resplit")
        if given := [key for key in foreign if getattr(self, key) is not None]:
            raise ValueError(f"a task of the kind {self.kind} has no `{given[0]}`; remove it, or set another `kind`")
        if of_words and self.encoding != "utf-8":
            raise ValueError(f"encoding = {self.encoding}: files of the kind tagging are read as UTF-8; convert them")
        if not of_words and self.text is None:
            raise ValueError("set `text`: a template of the text, with columns in braces")
        if not of_words and not isinstance(self.label, str):
            raise ValueError(f"label = {self.label}: write the name of the column")
        if self.metric in (("f1", "mcc") if of_words else ("span_f1",)):
            allowed = "accuracy or span_f1" if of_words else "accuracy, f1 or mcc"
            raise ValueError(f"metric = {self.metric}: a task of the kind {self.kind} has {allowed}")
        return self

    @model_validator(mode="after")
    def _languages_are_named(self) -> Self:
        if (self.language is None) == (not self.languages):
            raise ValueError("set `language`; or `languages`, if the names of the files contain each language's code")
        for template in filter(None, (self.text, self.pair)):
            if not columns_of(template):
                raise ValueError(f"{template!r} names no column; write it in braces, such as {{{template}}}")
        return self

    @property
    def covered(self) -> dict[str, str]:
        """Return the languages of the task: {code: the language's name in the names of the files}."""
        return {self.language: self.language} if self.language else self.languages


# Keys that releases had, by their dotted names: the one value that they may still have, and why they are gone. Settings
# files and stages go on as if the key had this value, so that nothing runs again.
REMOVED: dict[str, tuple[Any, str]] = {
    "train.gradient_reduction": (
        "fp32",
        "GPUs always sum their gradients in fp32: in bf16, rounding depends on their number",
    ),
    "evaluation.disjoint_masks": (7, "masked scores always hide every seventh token, so that models can be compared"),
    "evaluation.within_word_l2r": (False, "masked scores of suites hide one token at a time, as published scores do"),
}


class LanguageEntry(Section):
    """An entry of `languages:`; what it leaves out comes from `config/languages.tsv`.

    Attributes:
        language: the language that it is in: an entry with a name of its own is another text of this language.
    """

    name: str = ""
    language: str = ""
    tier: Literal[1, 2, 3] | None = None
    script: str = ""
    byte_premium: Annotated[Number, Field(gt=0, le=100)] | None = None
    tag: Annotated[str, AfterValidator(language_tag)] = ""
    corpus: dict[str, Any] = {}


class ModelEntry(Section):
    """An entry of `models:`; its sections are laid over the user's configuration for this model alone.

    Attributes:
        languages: its languages.
        like: another model: what this entry leaves out is as in the entry of that model, key by key.
        preset: its preset.
        recipe: its recipe.
        challenge: a file in `config/challenges/`: the text, the length, the snapshots and the suites of a challenge.
    """

    languages: Names = []
    like: str | None = None
    preset: str | None = None
    recipe: str | None = None
    challenge: str | None = None
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


class Challenge(Section):
    """A file in `config/challenges/`: what a challenge asks of the models that take part (`models.NAME.challenge`).

    Attributes:
        title: its name for readers.
        track: the name of the track in the challenge's own files.
        words: the most words that a model may read while it learns; a text that is read ten times counts ten times.
        epochs: the most passes over the text.
        text: the most words of text.
        languages: its corpora, with names of their own. They exist like any language, also for other models.
        settings: sections of its models.
        submission: a file in `config/submissions/`: what is handed in.
    """

    title: Text
    track: Literal["strict-small", "strict", "multilingual"]
    words: Annotated[int, BeforeValidator(word_count), Field(gt=0)]
    epochs: Positive
    text: Annotated[int, BeforeValidator(word_count), Field(gt=0)]
    languages: Annotated[dict[str, LanguageEntry], Field(min_length=1)]
    settings: dict[str, dict[str, Any]]
    submission: str = ""


class Recipe(Section):
    """A file in `config/recipes/`: how models are trained; its sections are laid over the preset.

    Attributes:
        only: values that a model must have, by dotted key: one, or a list of several; the recipe is refused for other
            models.
        least_epochs: fewer epochs get a warning.
        model, train: sections of its models.
    """

    only: dict[str, Any] = {}
    least_epochs: Annotated[Number, Field(ge=0)] = 0
    model: dict[str, Any] = {}
    train: dict[str, Any] = {}


class Experiment(Section):
    """An entry of `experiments:`: models that differ in a few keys, and in their seeds.

    Attributes:
        base: the model, batch or list of these that all cells inherit from.
        vary: what differs, by dotted key: lists of values, all combined with each other; or a list of mappings, one a
            cell. Without it, the base itself is the only cell.
        seeds: how many models each cell has; they differ in train.seed alone.
        compare_with: the values of the cell that the others are compared with.
        sweep: whether all cells are trained to the end, or the worse half is dropped at a third of the steps and again
            at two thirds (`experiments/halving.py`).
        limit: the largest number of models, against mistakes.
    """

    base: Text | Annotated[list[Text], Field(min_length=1)]
    vary: (
        dict[str, Annotated[list[Any], Field(min_length=1)]] | Annotated[list[dict[str, Any]], Field(min_length=1)]
    ) = {}
    seeds: Positive = 1
    compare_with: dict[str, Any] | None = None
    sweep: Literal["all", "halving"] = "all"
    limit: Positive = 1000

    @property
    def bases(self) -> list[str]:
        """Return `base` as a list."""
        return [self.base] if isinstance(self.base, str) else self.base


class User(Section):
    """The top level of the user's configuration."""

    targets: Names
    preset: str
    recipe: str
    batches: dict[str, Names]
    suites: dict[str, Suite]
    tasks: dict[str, Task]
    models: dict[str, ModelEntry]
    languages: dict[str, LanguageEntry]
    experiments: dict[str, Experiment]
    evaluation_data: LocalPath = ""
