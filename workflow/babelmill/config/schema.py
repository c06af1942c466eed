"""Define the types and bounds of every key of a section, and what settings files say of it.

This is the one source of truth for what a key may be. The values are in `config/defaults.yaml` (with their
documentation), `config/presets/*.yaml` and the user's files. `resolve.py` merges these layers, and `stages.py`
says which stage reads which section.

A settings file decides what runs again, so it holds only what matters. Of a section, it leaves out:

* A key at its default here: the behaviour from before the key existed. So a new key repeats nothing until it is used.
* A key marked with `OnlyIf` that cannot matter, such as the mask rate of a causal run.

Equal settings are equal values: the types change `8/16` to `1/2`, `size` to 1.0.
"""

import dataclasses
import functools
import math
import os
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

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

from babelmill.config.layers import TOGETHER, UNKNOWN, nearest
from babelmill.core.formats import split_name

# These limits are far above all trainings so far, and far below any overflow of arithmetic.
MAX_STEPS = 10_000_000
MAX_LENGTH = 2**20
MAX_BATCH = 2**30
MASKS = 7  # passes of the masked score, each of which hides every seventh token
MASKING = ("hybrid", "masked")  # values of train.objective that hide tokens at a rate that changes over the run
SECRET = re.compile(r"(^|_)(token|api_key|secret|password)$", re.IGNORECASE)
SPELT = ("general", "hisco", "occ1950")  # values of labels.code whose codes are also predicted symbol by symbol

# Keys that model.config may not set: the workflow does.
OF_THE_WORKFLOW = {"vocab_size", "max_position_embeddings", "n_positions"}

# Checks of values beyond what types can say, which also give equal settings one spelling: `8/16` becomes `1/2`. A
# ValueError says what is allowed.


def number(value: Any) -> Any:
    """Refuse true and false, which pydantic takes for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("a number is expected")
    return value


def each_once(names: list[Any]) -> list[Any]:
    """Refuse a list with a repeated entry, since it would be read or built twice."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} appears {names.count(twice)} times")
    return names


def one_or_more(value: Any) -> Any:
    """Return a list of names; a single name becomes a list of one."""
    return [value] if isinstance(value, str) else value


def delimiter(text: str) -> str:
    """Refuse a text that cannot separate the fields of a .csv."""
    if len(text) != 1 or text in '"\r\n':
        raise ValueError("one character that can separate fields is expected, such as ';' or \"\\t\"")
    return text


def ratio(value: object) -> str:
    """Reduce "8/16" to "1/2", so that equal ratios are equal settings."""
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", str(value))
    if not match or not 0 < int(match[1]) < int(match[2]):
        raise ValueError("a ratio n/d with 0 < n < d is expected, such as 15/16")
    return str(Fraction(int(match[1]), int(match[2])))


FACTORS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
AMOUNT = r"\s*([1-9]\d*(?:\.\d+)?|0\.\d+)\s*"


def word_count(value: Any) -> Any:
    """Return a number of words: 100M and "100M words" are 100,000,000."""
    match = re.fullmatch(rf"{AMOUNT}([kMG])\s*(words)?\s*", str(value))
    if match:
        return round(float(match[1]) * FACTORS[match[2]])
    if isinstance(value, str) and not re.fullmatch(r"\d+", value):
        raise ValueError("a number of words is expected, such as 10M, 500k or 100000000")
    return number(value)


def document_unit(value: Any) -> Any:
    """Return what one document of a text file is; raise a ValueError if it is none of the possible units."""
    if value not in ("file", "paragraph", "line") and not words_of_document(str(value)):
        raise ValueError("file, paragraph, line or a number of words is expected, such as 300 words")
    return value


def words_of_document(unit: str) -> int | None:
    """Return how many words the lines of one document have together; None if a document is something else."""
    match = re.fullmatch(r"([1-9]\d*) words", unit)
    return int(match[1]) if match else None


def budget(value: float | str | None) -> float | str | None:
    """Return megabytes as a number, or "N words", "N exact words" or "N documents"; 500k and 5M mean words."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(rf"{AMOUNT}([kMG]?)\s*(MB|words|exact words|documents|)\s*", value)
    digits, factor, unit = match.groups() if match else ("0", "", "")
    amount = float(digits) * FACTORS[factor]
    if not amount or (factor and unit == "MB"):
        raise ValueError("megabytes are expected, or a text such as 500k words, 10M exact words or 5M documents")
    if unit == "MB" or not (factor or unit):
        return amount
    return f"{round(amount)} {unit or 'words'}"


def place_of_checkpoints(url: str) -> str:
    """Return a place for checkpoints, if it is one of the two kinds and holds no keys (`key:secret@bucket`)."""
    if re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]+(/[^/@?#\s]+)*/?|file://(/[^/?#%]+)+/?", url):
        return url.rstrip("/")
    raise ValueError(
        "s3://bucket/prefix or file:///path is expected, without keys of the store, with spaces as they are"
    )


def names_once(tables: Any) -> Any:
    """Check that the names of tables are different as text, too: 1880 and "1880" are one name. Return the tables."""
    each_once([*map(str, tables)]) if isinstance(tables, dict) else None
    return tables


def repo_template(text: str) -> str:
    """Check that a template is `owner/name`, with known fields in braces, and return it."""
    filled = re.sub("{(" + "|".join(REPO_FIELDS) + ")}", "x", text)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", filled, re.ASCII):
        raise ValueError(f"owner/name is expected, with fields of {', '.join(REPO_FIELDS)} in braces")
    return text


def exponent(value: Any) -> float:
    """Return the exponent that a word stands for, so that `size` and 1 are equal settings."""
    try:
        return {"size": 1.0, "uniform": 0.0}[value] if value in ("size", "uniform") else float(number(value))
    except (TypeError, ValueError):
        raise ValueError("size, uniform or a number from 0 to 1 is expected") from None


def language_tag(tag: str) -> str:
    """Return the tag of a language; raise a ValueError if the Hub does not accept it. "" means the usual tag."""
    if tag and not re.fullmatch("[a-z]{2,3}|code|multilingual", tag):
        raise ValueError("a code of ISO 639 is expected, such as en or gsw, or code or multilingual")
    return tag


def snapshot_points(value: Any) -> Any:
    """Return the points in order, each once; raise a ValueError for any other value."""
    if value == "babylm":
        return value
    try:
        found = sorted({float(number(point)) for point in value})
    except (TypeError, ValueError):
        found = [0.0]
    if isinstance(value, str) or any(not 0 < point <= 1e6 for point in found):
        raise ValueError("expected babylm, or a list of millions of words, such as [1, 10, 100]")
    return found


Integer = Annotated[int, BeforeValidator(number)]
Number = Annotated[float, BeforeValidator(number)]
Positive = Annotated[Integer, Field(gt=0)]
NonNegative = Annotated[Integer, Field(ge=0)]
Share = Annotated[Number, Field(ge=0, le=1)]
BelowOne = Annotated[Number, Field(ge=0, lt=1)]
Similarity = Annotated[Number, Field(ge=0.5, le=1)]  # of texts, see `corpus/near_copies.py`
Mark = Annotated[str, AfterValidator(delimiter)]  # the character between the fields of a .csv
Encoding = Literal["utf-8", "latin-1", "cp1252"]
LocalPath = Annotated[str, AfterValidator(os.path.expanduser)]  # a file, a folder or a glob; ~ becomes the home folder
Quoting = Literal["format", "csv", "none"]  # whether quotation marks may enclose the fields of a .csv or .tsv
Names = Annotated[list[str], AfterValidator(each_once)]
Name = Annotated[str, Field(pattern="^[a-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*$")]  # of a model, a group and so on
TableName = Annotated[str, Field(pattern="^[A-Za-z0-9]+(_[A-Za-z0-9]+)*$", coerce_numbers_to_str=True)]
Seeds = Annotated[list[Annotated[NonNegative, Field(le=2**32 - 1)]], AfterValidator(each_once)]
Text = Annotated[str, Field(min_length=1)]
Words = Annotated[int, BeforeValidator(word_count, json_schema_input_type=int | str), Field(gt=0, le=10**13)]
Snapshots = Annotated[Literal["babylm"] | list[float], BeforeValidator(snapshot_points)]
Presets = Annotated[Names, BeforeValidator(one_or_more, json_schema_input_type=list[str] | str)]


class Section(BaseModel):
    """A group of keys. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, values: Any) -> Any:
        """Refuse an unknown key with the nearest known one."""
        if not isinstance(values, dict):
            return values
        for key in values:
            if key not in cls.model_fields:
                meant = instead(str(key), cls.model_fields)
                raise pydantic_core.PydanticCustomError(UNKNOWN, "{meant}", {"key": str(key), "meant": meant})
        return values

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        for rule, holds in self.rules().items():
            if not holds:
                keys, _, allowed = rule.partition(": ")
                given = {key: getattr(self, key) for key in keys.split()}
                raise pydantic_core.PydanticCustomError(TOGETHER, "{allowed}", {"given": given, "allowed": allowed})
        return self

    def rules(self) -> dict[str, Any]:
        """Return how keys go together, as {"some keys: what is allowed": whether their values are}."""
        return {}

    def written(self) -> dict[str, Any]:
        """Return the section as a settings file holds it: without keys at their default or that cannot matter."""
        values, given = self.model_dump(), self.model_dump(exclude_defaults=True)
        only_if = marks(type(self))
        return {key: value for key, value in given.items() if key not in only_if or only_if[key].holds(values)}

    @classmethod
    def filled(cls, written: dict[str, Any]) -> dict[str, Any]:
        """Return the values of a section of which `written` is in a settings file, with the left-out keys."""
        fields = cls.model_fields.items()
        otherwise = {key: mark.otherwise for key, mark in marks(cls).items()}
        return otherwise | {key: field.default for key, field in fields if not field.is_required()} | written

    @classmethod
    def neutral(cls, *keys: str) -> dict[str, Any]:
        """Return the defaults of keys, to put them in the place of values that a stage does not read."""
        return {key: cls.model_fields[key].default for key in keys}


def instead(key: str, known: Iterable[str]) -> str:
    """Return what to write instead of an unknown key of a section; `known`: the keys that this has."""
    if SECRET.search(key):
        return "; secrets are environment variables: HF_TOKEN, WANDB_API_KEY"
    section, _, inner = key.partition(".")
    if inner and section in SECTIONS:
        return f"; nested keys are written as {section}: {{{inner}: ...}}"
    elsewhere = [f"{name}.{key}" for name, each in SECTIONS.items() if key in each.model_fields]
    return f"; did you mean {' or '.join(elsewhere)}?" if elsewhere else nearest(key, known)


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not empty: settings files leave the others out."""
    return {key: value for key, value in fields.items() if value}


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


@functools.cache
def marks(section: type[Section]) -> dict[str, OnlyIf]:
    """Return the marks of the keys of a section that may not matter."""
    fields = section.model_fields.items()
    return {key: mark for key, field in fields for mark in field.metadata if isinstance(mark, OnlyIf)}


REPO_FIELDS = ("username", "architecture", "model", "causal_suffix", "variant_suffix")
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
    language_filter: LanguageFilter | None = None
    near_duplicates: Similarity | None = None
    decontaminate: list[str] = []
    budget: Annotated[Annotated[Number, Field(gt=0)] | str | None, AfterValidator(budget)]

    def rules(self) -> dict[str, Any]:
        local, labels = [*self.files, *self.validation_files], self.label_columns
        plain = self.builtin or any(split_name(path, self.format)[0] == ".txt" for path in local)
        context = [each for each in (self.context_column, self.context) if each is not None]
        return {
            "prompt_column text_column: different columns": self.prompt_column != self.text_column,
            "prompt_column: plain text has no columns": not (plain and self.prompt_column),
            "label_columns: plain text has no columns": not (plain and labels),
            "label_columns text_column: different columns": self.text_column not in labels,
            "label_columns context_column: different columns": self.context_column not in labels,
            "context_column context: one of the two": len(context) < 2,
            "context_column context label_columns: a context needs columns of labels": labels or not context,
            "prompt_column label_columns: prompts or labels": not (labels and self.prompt_column),
            "near_duplicates label_columns: near copies may have different labels": not (
                self.near_duplicates and labels
            ),
        }


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
    config: Annotated[dict[str, Any] | None, OnlyIf(architecture="transformers")] = None
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

    def rules(self) -> dict[str, Any]:
        config, new = self.config or {}, self.source is None
        ours = any(key in OF_THE_WORKFLOW or key.endswith("_token_id") for key in config)
        asked = not new or (self.architecture == "transformers") == (self.config is not None)
        width, rest = divmod(self.hidden_size, self.num_attention_heads)
        odd = new and self.architecture == "norbert4" and width % 2
        typed = self.config is None or isinstance(config.get("model_type"), str)
        return {
            "source config: config: null, since the source has one": new or not config,
            "architecture config: transformers has a config, such as {model_type: gpt2}; others not": asked,
            "config: `model_type` is missing, such as gpt2": typed,
            "config: the workflow sets tokenizer.vocab_size, max_position_embeddings and ids of tokens": not ours,
            "num_attention_heads hidden_size: num_attention_heads divides hidden_size": not (new and rest),
            "num_attention_heads hidden_size architecture: norbert4 has heads of an even width": not odd,
        }


class Train(Section):
    """Objective, data schedule and optimiser."""

    seed: Annotated[NonNegative, Field(lt=2**63)]
    epochs: Annotated[Number, Field(gt=0, le=1e6), OnlyIf(max_steps=None, max_words=None, otherwise=1.0)]
    max_steps: Annotated[Positive, Field(le=MAX_STEPS)] | None
    max_words: Words | None = None
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

    def rules(self) -> dict[str, Any]:
        starts, longest, labels = self.phase_starts, max(self.sequence_lengths), self.objective == "labels"
        micro = self.micro_batch_tokens or longest
        parts = Fraction(self.hybrid_ratio).denominator if self.objective == "hybrid" else 1
        return {
            "phase_starts sequence_lengths: one start for each length": len(starts) == len(self.sequence_lengths),
            "phase_starts: shares that begin with 0 and rise": starts[0] == 0 and sorted(set(starts)) == starts,
            "mask_random mask_keep: together 1 at most": self.mask_random + self.mask_keep <= 1,
            "warmup cooldown: together 1 at most": self.warmup + self.cooldown <= 1 + 1e-9,
            "global_batch_tokens sequence_lengths: at least the longest row": self.global_batch_tokens >= longest,
            "micro_batch_tokens sequence_lengths: at least the longest row": micro >= longest,
            "max_words max_steps: one of the two; the other is null": not self.max_words or self.max_steps is None,
            "lora_alpha lora_rank: an alpha needs a rank": self.lora_alpha is None or self.lora_rank,
            "max_words objective: labels are trained for epochs": not (labels and self.max_words),
            "sequence_lengths objective: one length with labels, such as [128]": not labels or len(starts) == 1,
            "lora_rank objective: 0 with labels": not (labels and self.lora_rank),
            "order objective: rows with labels, in a new order each epoch": not labels or self.order == "rows",
            "typos objective: 0 unless the objective is labels": labels or not self.typos,
            "global_batch_tokens batch_reduction sequence_lengths hybrid_ratio: the smallest batch of a phase has as"
            " many rows as hybrid_ratio has parts, at least": min(self._first_batches(), default=parts) >= parts,
        }

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
    separator: Text | None = None
    codes: LocalPath | None = None
    blocks_weight: Annotated[Share, OnlyIf(code=SPELT)] = 0.5
    decoder_layers: Annotated[Positive, Field(le=48), OnlyIf(code=SPELT)] = 3


class Export(Section):
    """What the Hugging Face folder holds."""

    variants: Annotated[list[Literal["main", "ema"]], Field(min_length=1), AfterValidator(each_once)]
    default_variant: Literal["main", "ema"]
    logits_alignment: Literal["mlm", "mntp"] = "mlm"

    def rules(self) -> dict[str, Any]:
        return {"default_variant variants: one of the variants": self.default_variant in self.variants}


class Evaluation(Section):
    """How the exported model is measured."""

    sequence_length: Annotated[Integer, Field(ge=MASKS, le=MAX_LENGTH)]
    max_documents: Annotated[Integer, Field(ge=2)] | None = None
    suites: Names = []
    max_items: Annotated[Positive, Field(le=MAX_BATCH)] | Literal["all"] = "all"
    max_masked_items: Annotated[Positive, Field(le=MAX_BATCH)] | Literal["all"] = "all"
    snapshot_suites: Names = []
    backend: Literal["causal", "mlm"] | None = None
    tasks: Names = []
    task_seeds: Seeds = []
    keep_tuned: bool = False


class Card(Section):
    """What only the author knows about the model."""

    license: Annotated[str, Field(pattern=r"^[a-z0-9.+-]+$")]  # the Hub knows which names there are
    authors: list[str]
    description: str


class Predict(Section):
    """Tables whose rows a label model predicts."""

    tables: Annotated[dict[TableName, Annotated[LocalPath, Field(min_length=1)]], BeforeValidator(names_once)] = {}
    top: Annotated[Positive, Field(le=1000)] = 5
    method: Literal["blocks", "linear"] = "blocks"
    threshold: Annotated[Share, OnlyIf(method="linear")] = 0.5
    review: Positive = 100
    text_column: str | None = None
    context_column: str | None = None
    context: str | None = None
    delimiter: Mark | None = None
    encoding: Encoding = "utf-8"
    quoting: Quoting = "format"

    def rules(self) -> dict[str, Any]:
        return {
            "threshold method: linear, which alone has a threshold": self.method == "linear" or self.threshold == 0.5,
            "context_column context: one of the two": None in (self.context_column, self.context),
        }


class Publish(Section):
    """The repository on the Hugging Face Hub."""

    username: str | None
    repo_template: Annotated[str, AfterValidator(repo_template)]
    private: bool


class Run(Section):
    """How a training run is monitored and saved. Changing these keys never repeats a run."""

    checkpoint_every: Positive | None
    checkpoint_minutes: Annotated[Number, Field(gt=0)]
    log_every: Positive
    validate_every: NonNegative
    validation_tokens: Positive | Literal["auto"] = "auto"
    snapshots: Snapshots = []
    micro_batch_tokens: Annotated[Positive, Field(le=MAX_BATCH)] = 16_384
    compile: Literal["auto", "never"] = "auto"
    checkpoint_mirror: Annotated[str, AfterValidator(place_of_checkpoints)] | None = None
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
