"""Define the entries of a configuration file: suites, tasks, languages, presets, models and experiments.

Their keys are those of files in `config/suites/`, `config/tasks/`, `config/protocols/` and `config/presets/`, too. The
sections in them are checked for each model (`schema.py`).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, create_model, model_validator

from babelmill.config.schema import (
    MAX_LENGTH,
    MODEL_SECTIONS,
    BelowOne,
    Encoding,
    Integer,
    LocalPath,
    Mark,
    Name,
    Names,
    NonNegative,
    Number,
    Positive,
    Presets,
    Quoting,
    Section,
    Seeds,
    Share,
    Text,
    language_tag,
)
from babelmill.core.formats import split_name

# Templates of suites and tasks, such as "{context} {answer}": a name in braces stands for the cell of this column in a
# row, `{file}` for the name of the file, and two braces for one.
OF_FILE = "file"
PARTS = re.compile(r"{{|}}|{([^{}]+)}|[{}]")


def columns_of(template: str) -> list[str]:
    """Return the columns that a template names. Raise a ValueError if a brace has no partner."""
    found = []
    for part in PARTS.finditer(template):
        if part[1] is not None:
            found.append(part[1])
        elif part[0] in "{}":
            raise ValueError(f"the template {template!r} has a single {part[0]!r}; write it twice if you mean a brace")
    return [column for column in dict.fromkeys(found) if column != OF_FILE]


def fill(template: str, cells: Mapping[str, str]) -> str:
    """Return a template with the cells in place of the names of their columns."""
    return PARTS.sub(lambda part: cells[part[1]] if part[1] is not None else part[0][0], template)


# The keys of a suite that only some kinds have, and those of them that a kind needs.
ITEM_KEYS: dict[str, tuple[str, ...]] = {
    "pairs": ("good", "bad"),
    "choices": (*("prompt", "options", "right", "scored", "score", "ties", "unknown", "drop", "harness_ids"),),
    "reading": (),
    "acquisition": (),
}
REQUIRED_ITEM_KEYS: dict[str, tuple[str, ...]] = {"pairs": ("good", "bad"), "choices": ("options", "scored")}


UNTRAINED = "none"  # the value of `train` of a model of another project


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

    def rules(self) -> dict[str, Any]:
        return {"language languages: one of the two": (self.language is None) == bool(self.languages)}

    @property
    def covered(self) -> dict[str, str]:
        """Return its languages: {code: the language's name in the names of the files}."""
        return {self.language: self.language} if self.language else self.languages

    def of_language(self, patterns: list[str], code: str) -> list[str]:
        """Return the globs of a language's files: with its name in place of `{language}`."""
        return [pattern.replace("{language}", self.covered[code]) for pattern in patterns]


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
    harness_ids: bool = False
    phenomenon: Text | None = None  # the column or template that says what is tested
    paradigm: Text | None = None  # the same for the finer group
    quoting: Quoting = "format"
    # The score is the share of all pairs, or the mean over paradigms or phenomena.
    headline: Literal["pairs", "paradigms", "phenomena"] = "pairs"

    def rules(self) -> dict[str, Any]:
        files = self.files + self.challenge_files
        options = len(self.options) if isinstance(self.options, list) else None  # else items may have different numbers
        kinds = {key: kind for kind, names in ITEM_KEYS.items() for key in names}
        others = sorted(kinds.keys() & self.model_fields_set - {*ITEM_KEYS[self.kind]})
        needed = REQUIRED_ITEM_KEYS.get(self.kind, ())
        columns = {key: columns_of(each) for key, each in self.templates.items()}
        return super().rules() | {
            "languages files challenge_files: with `languages`, each of the files has {language} in its name": (
                not self.languages or all("{language}" in pattern for pattern in files)
            ),
            "files: at least one": files,
            **{f"{key} kind: only suites of the kind {kinds[key]} have {key}": False for key in others},
            **{f"{key} kind: a suite of this kind has {key}": getattr(self, key) is not None for key in needed},
            "good bad: names of two columns": self.kind != "pairs" or len(columns_of(self.pair[0] + self.pair[1])) == 2,
            "prompt options: a list of prompts has one for each option": not isinstance(self.prompt, list)
            or len(self.prompt) == options,
            "right options: the number of an option, from 0": isinstance(self.right, str)
            or self.right < (options or self.right + 1),
            "options: a template with one column that holds a list, or a list with a template for each option": (
                len(columns.get("options", ["one"])) == 1
            ),
        }

    @property
    def pair(self) -> list[str]:
        """Return the templates of the two sentences of a pair."""
        return [f"{{{self.good}}}", f"{{{self.bad}}}"]

    @property
    def templates(self) -> dict[str, str]:
        """Return the templates of the texts of choices: {key, with its number in a list: template}."""
        found: dict[str, str] = {}
        for key in ("prompt", "options"):
            if isinstance(value := getattr(self, key), list):
                found |= {f"{key}[{number}]": template for number, template in enumerate(value)}
            elif key == "prompt" or "{" in (value or ""):
                found[key] = value
        return found | {key: value for key in ("phenomenon", "paradigm") if "{" in (value := getattr(self, key) or "")}


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
    # Whether the name of a special token in a text, such as <mask>, is plain text, as in training.
    plain_text: bool = True
    seeds: Annotated[Seeds, Field(min_length=1)]  # one run for each

    def rules(self) -> dict[str, Any]:
        same_side = (self.pooling == "last") == (self.padding == "left")
        allowed = "last with padding on the left, or first with padding on the right"
        return {f"pooling padding head: {allowed}": self.head == "model" or same_side}


TABLES = (".jsonl", ".json", ".csv", ".parquet")  # ends of names of files that the kind tagging does not read
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

    def rules(self) -> dict[str, Any]:
        of_words = self.kind == "tagging"
        word_files = any(split_name(path)[0] in CONLL for path in (*self.train, *self.test))
        others = ("text", "pair", "delimiter") if of_words else ("word", "resplit")
        shown = [columns_of(template) for template in (self.text, self.pair) if template is not None]
        templates = of_words or (self.text is not None and all(shown))
        metrics = ("accuracy", "span_f1") if of_words else ("accuracy", "f1", "mcc")
        return super().rules() | {
            "kind train test: tagging: these files have words with labels": of_words or not word_files,
            "kind train test: with tagging, CoNLL-U or CoNLL files, which have a word and its label per line": not (
                of_words and any(split_name(path)[0] in TABLES for path in (*self.train, *self.test))
            ),
            "label text pair: a column that the texts do not show": all(self.label not in each for each in shown),
            **{f"{key} kind: null with this kind": getattr(self, key) is None for key in others},
            "encoding kind: utf-8 with tagging": not of_words or self.encoding == "utf-8",
            "label kind: the name of a column": of_words or isinstance(self.label, str),
            f"metric kind: {', '.join(metrics)}": self.metric in metrics,
            "text pair: templates with columns in braces, such as {sentence}": templates,
        }


class LanguageEntry(Section):
    """An entry of `languages:`; what it leaves out comes from `config/languages.tsv`."""

    name: str = ""
    language: str = ""  # the language that it is in: an entry with a name of its own is another text of this language
    tier: Literal[1, 2, 3] | None = None
    script: str = ""
    byte_premium: Annotated[Number, Field(gt=0, le=100)] | None = None
    tag: Annotated[str, AfterValidator(language_tag)] = ""
    corpus: dict[str, Any] = {}


# The sections of a model, as a file has them: each with some of its keys, which are checked for each model.
_sections: Any = dict.fromkeys(MODEL_SECTIONS, (dict[str, Any], {}))
Sections = create_model("Sections", __base__=Section, **_sections)


class Preset(Sections):
    """A file of `config/presets/`: values of the models that name it."""

    languages: Names = []  # their languages, unless they name some
    submission: str | None = None  # what they submit to a challenge: a file of `config/submissions/`


class ModelEntry(Preset):
    """An entry of `models:`; it is laid over presets and the user's values for all models."""

    # Or `none`: `model.source`, a model of another project, is measured as it is, and not trained.
    train: dict[str, Any] | Literal["none"] = {}
    like: str | None = None  # another model: what this entry leaves out is as in the entry of that model, key by key
    preset: Presets = []


class Experiment(Section):
    """An entry of `experiments:`: models that differ in a few keys, and in their seeds."""

    # The model, group or list of these that all cells inherit from.
    base: Text | Annotated[list[Text], Field(min_length=1)]
    # What differs, by dotted key: lists of values, all combined with each other; or a list of mappings, one a cell.
    # Without it, the base itself is the only cell.
    vary: (
        dict[str, Annotated[list[Any], Field(min_length=1)]] | Annotated[list[dict[str, Any]], Field(min_length=1)]
    ) = {}
    seeds: Positive = 1  # how many models each cell has; they differ in train.seed alone
    compare_with: dict[str, Any] | None = None  # the values of the cell that the others are compared with

    @property
    def bases(self) -> list[str]:
        return [self.base] if isinstance(self.base, str) else self.base


class User(Sections):
    """A configuration file."""

    targets: Names
    preset: Presets
    groups: dict[Name, Names]
    suites: dict[Name, Suite]
    tasks: dict[Name, Task]
    models: dict[Name, ModelEntry]
    languages: dict[Name, LanguageEntry]
    experiments: dict[Name, Experiment]
    evaluation_data: LocalPath = ""
    corpus: dict[str, Any] = {}
