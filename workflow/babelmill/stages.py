"""Define the stages: one class each, which says what a stage reads, what it is asked to do, and where its results go.

A class is also the type of its settings files: an object of it holds what one job is asked to do. Everything that needs
to know the stages uses `STAGES`: the graph, the rules, the commands and the tests. To add a stage, add a class here, a
rules file of the same name in `workflow/rules/`, and a module of the same name beside this one (see CONTRIBUTING.md).
"""

import csv
import hashlib
import json
import re
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import pydantic

from babelmill.config import datasets, identifiers, inputs, schema, submissions
from babelmill.config.layers import worded
from babelmill.config.models import OBJECTIVES
from babelmill.config.resolve import Configuration, ResolvedCorpus, ResolvedModel, check_known
from babelmill.config.schema import given
from babelmill.core import escape, manifest
from babelmill.core.files import UserError, not_found, read_json
from babelmill.core.formats import DELIMITERS
from babelmill.core.local_sources import hashes

RESULTS = Path("results")
SETTINGS = RESULTS / "settings"
CHECKPOINTS = RESULTS / "checkpoints"
UNFINISHED = RESULTS / "unfinished"  # {stage}/{result}: what jobs that were killed had done
LABEL = 40  # characters at most, before the key
DIGITS = 10  # hexadecimal digits of a key
KEY = re.compile(f"-([0-9a-f]{{{DIGITS}}})$")  # at the end of the name of a result
# Where a key cannot matter, settings files hold its smallest value, so that a change of it runs nothing.
SMALLEST_TOKENIZER = schema.Tokenizer(source=None, revision="", vocab_size=16 + 256, min_frequency=1)
OF_SUITES = ("suites", "max_items", "max_masked_items", "snapshot_suites")  # keys of `evaluation`
OF_TASKS = ("tasks", "task_seeds", "keep_tuned")
SMALLEST_EVALUATION = {"sequence_length": schema.MASKS, **schema.Evaluation.neutral("max_documents")}
# The keys of `evaluation` that other stages than `evaluate` read, and those of `predict` that stand beside a table.
OF_OTHER_STAGES = schema.Evaluation.neutral(*OF_SUITES, *OF_TASKS, "backend")
OF_TABLES = schema.Predict.neutral(
    *("tables", "text_column", "context_column", "context", "delimiter", "encoding", "quoting")
)
ONE_LANGUAGE = schema.Mixture(weights=1.0)  # there is nothing to weigh
NO_LABELS = schema.Labels()
HERE = "a model of this workflow"

# The jobs that a job reads, by what they are for it: {role: [(stage, language or model, part)]}.
Reads = dict[str, list[tuple[str, str, str]]]


class Settings(pydantic.BaseModel):
    """What a settings file holds. Fields whose type is a section of the configuration are sections that are read."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    raw: dict[str, Any] = {}  # the content of the file, for the manifest

    @classmethod
    def sections(cls) -> dict[str, type[schema.Section]]:
        """Return the sections of the configuration among the fields."""
        types = {name: field.annotation for name, field in cls.model_fields.items()}
        return {n: t for n, t in types.items() if isinstance(t, type) and issubclass(t, schema.Section)}

    def written(self) -> dict[str, Any]:
        """Return the content of the file: the fields that were given, sections in canonical form."""
        fields = {key: getattr(self, key) for key in self.model_fields_set}
        return fields | {key: fields[key].written() for key in self.sections().keys() & fields.keys()}

    @classmethod
    def from_content(cls, content: dict[str, Any], where: str | Path) -> Self:
        """Return what a settings file or a manifest holds as an object; `where` begins the error of a wrong value."""
        values = {key: value for key, value in content.items() if key not in ("stage", "version")}
        values |= {name: kind.filled(content[name]) for name, kind in cls.sections().items() if name in content}
        try:
            return cls.model_validate(values | {"raw": content})
        except pydantic.ValidationError as error:
            raise UserError(f"{where}: {worded(error, values)[1]}") from None


def run_settings_of(settings: Path) -> Path:
    """Return the file of the run settings of a training, beside its settings file."""
    return SETTINGS / "run" / settings.name


class RunSettings(Settings):
    """How a training is monitored and saved: of the first model that asks for it. In no key, so it runs nothing."""

    name: str  # the model
    run: schema.Run
    gpus: int = 0  # for this training and what follows from it
    bytes_per_word: dict[str, float] = {}  # {code: bytes per word}, see `inputs.bytes_per_word`


class Stage(Settings):
    """A stage of the workflow; an object of it is the settings of one of its jobs."""

    stage: ClassVar[str]  # the name of the stage, its rule, its rules file and its module
    version: ClassVar[int] = 1  # raise it when the results of the stage change: it runs again, and what follows from it
    of: ClassVar[Literal["language", "model"]] = "model"  # whether its jobs belong to a language or to a model
    several: ClassVar[bool] = False  # whether a model may have a result for each of several suites or tasks
    # The path of results that carry the name of a model, as in "converted/{model}"; None for those named by their key.
    named: ClassVar[str | None] = None

    languages: list[str] = []  # the codes of the languages, in order
    made_from: dict[str, list[str]] = {}  # {role: the results that the job reads}

    @classmethod
    def parts(cls, resolved: ResolvedModel) -> list[str]:
        """Return the parts that a model has of this stage, such as suites; [""] for one job, [] for none."""
        return [""]

    @classmethod
    def refuse(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> None:
        """Raise a UserError if a model does not have a result that carries its name."""

    @classmethod
    def reads(cls, resolved: Any, part: str) -> Reads:
        """Return the jobs that a job reads; `resolved`: the settings of its language or model."""
        return {}

    @classmethod
    def asked(cls, configuration: Configuration, resolved: Any, part: str) -> dict[str, Any]:
        """Return the fields of a job's settings. A UserError says what is wrong in the configuration or its files."""
        raise NotImplementedError

    def label(self) -> str:
        """Return how the name of a result begins, for people: with its suite or task, and its languages."""
        subject = [getattr(self, key) for key in ("suite", "task") if hasattr(self, key)]
        return "_".join([*subject, "+".join(self.languages)])

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a settings file. A UserError says that it is another stage's, or was written for another version."""
        content = read_json(path)
        if not isinstance(content, dict) or content.get("stage") != cls.stage:
            found = content.get("stage") if isinstance(content, dict) else content
            raise UserError(f"{path}: these are settings of the stage {found!r}, not of {cls.stage!r}")
        if content.get("version") != cls.version:
            raise UserError(f"{path}: written for another version of stage {cls.stage}; run the workflow again")
        if (key := KEY.search(path.stem)) and key[1] != key_of(content):
            raise UserError(f"{path}: was changed after it was written; delete it and run the workflow again")
        return cls.from_content(content, path)

    @classmethod
    def path_of(cls, name: str) -> Path:
        """Return the path of a result by its name: label and key, or model and part."""
        if cls.named is None:
            return RESULTS / cls.stage / name
        model, _, part = name.partition(".")
        return Path(cls.named.format(model=model, part=part))

    def folders(self, role: str) -> list[Path]:
        """Return the results that the job reads in a role."""
        return [Path(path) for path in self.made_from.get(role, [])]

    def folder(self, role: str) -> Path:
        """Return the one result that the job reads in a role."""
        (found,) = self.folders(role)
        return found


class NamedStage(Stage):
    """A stage whose results carry the name of a model."""

    name: str  # the model
    keys: dict[str, str] = {}  # {a result that carries a name: the key of what it was made from}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a settings file. A UserError also says that a result which carries a name is another one now."""
        settings = super().read(path)
        for source, key in settings.keys.items():
            if Path(source).exists() and key_of(manifest.read(source)["settings"]) != key:
                raise UserError(f"{source}: is not the one that {path} is about; run the workflow again")
        return settings


def key_of(asked: dict[str, Any]) -> str:
    """Return the digest of the content of a settings file."""
    return hashlib.sha256(in_one_line(asked).encode()).hexdigest()[:DIGITS]


def in_one_line(content: Any) -> str:
    """Return JSON in canonical form, for comparing. (Python writes it ten times as fast as that of files.)"""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def all_of(stage: str, names: Any, part: str = "") -> list[tuple[str, str, str]]:
    """Return the jobs of a stage for several languages."""
    return [(stage, name, part) for name in names]


class DownloadStage(Stage):
    """Fetch the text of a language from the Hub."""

    stage = "download"
    of = "language"

    source: dict[str, Any] | None = None  # {"repository", "revision"} of the dataset
    parts_of_text: list[dict[str, Any]] = []  # instead of `source`, the entries of `corpus.hub`, with the same keys
    # The keys of `corpus` that define which columns are read, and how, if they differ from the defaults.
    columns: dict[str, Any] = {}
    counted: dict[str, Any] | None = None  # with a budget, the keys of `corpus` that decide how much text a file yields
    byte_premium: float | None = None  # with a budget, the language's byte premium

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedCorpus, part: str) -> dict[str, Any]:
        """Name the datasets and, with a budget, the keys that decide when it is used up."""
        corpus, found = resolved.corpus, inputs.hub_datasets(resolved)
        if corpus.budget:
            how = {"counted": inputs.counted(corpus), "byte_premium": resolved.language.byte_premium}
        else:
            keys = {"text_column", "prompt_column", "label_columns", "context_column"}
            keys |= {"delimiter", "encoding", "format", "quoting"}
            how = {"columns": corpus.model_dump(include=keys, exclude_defaults=True)}
        return how | ({"source": found[0]} if isinstance(corpus.hub, str) else {"parts_of_text": found})


class IdentifierStage(Stage):
    """Fetch the model that finds the languages of a corpus from the Hub."""

    stage = "identifier"
    of = "language"

    source: dict[str, Any]  # its repository on the Hub, commit, file, and sha256

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedCorpus, part: str) -> dict[str, Any]:
        return {"languages": [], "source": identifiers.on_the_hub(resolved) or {}}

    def label(self) -> str:
        """Return the name of the repository: all languages may share it."""
        return str(self.source.get("repository", "model")).rpartition("/")[2]


class SuiteStage(Stage):
    """Read the items of a suite in a language."""

    stage = "suite"
    of = "language"
    version = 2
    several = True

    suite: str = ""
    kind: str = "pairs"  # its kind, see `entries.Suite`
    form: dict[str, str] = {}  # the keys of `entries.Suite` that define how its files are read
    # The keys of `entries.Suite` that say what an item is; of pairs, `options` stands for `good` and `bad`.
    items: dict[str, Any] = {}
    files: list[str] = []  # globs in the dataset on the Hub
    source: dict[str, Any] | None = None  # the dataset
    sources: dict[str, Any] = {}  # instead of `files` and `source`, the local files

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedCorpus, part: str) -> dict[str, Any]:
        return datasets.items_of_suite(configuration, resolved.name, part)


class TaskStage(Stage):
    """Read the rows of a task in a language."""

    stage = "task"
    version = 2
    of = "language"
    several = True

    task: str = ""
    kind: str = ""  # "tagging", or "" for a classification of texts
    columns: dict[str, str] = {}  # the keys of `entries.Task` that define how its files are read
    resplit: dict[str, Any] | None = None  # `entries.Resplit`, if the rows are divided anew
    spans: bool = False  # whether the labels must mark spans
    files: dict[str, list[str]] = {}  # {split: globs in the dataset on the Hub}
    source: dict[str, Any] | None = None  # the dataset
    sources: dict[str, dict[str, Any]] = {}  # instead of `files` and `source`, {split: the local files}

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedCorpus, part: str) -> dict[str, Any]:
        return datasets.rows_of_task(configuration, resolved.name, part)


class BaseModelStage(Stage):
    """Fetch the model that another one continues, if this workflow did not make it."""

    stage = "base_model"
    version = 2

    source: dict[str, Any] | None  # the repository on the Hub; None for a local folder
    sources: dict[str, Any]  # the content of a local folder
    shape: dict[str, Any]  # the keys of its shape that the configuration sets beside `model.source`
    # The Auto class of transformers that its weights must fit; None for our architectures.
    auto_class: str | None = None
    architecture: str = "gpt_bert"  # which of our architectures it is, if it has no `auto_class`
    unchanged: bool = False  # whether its files stay as they are, since it is not trained but measured

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        return {"languages": []} | inputs.base_model(resolved)

    def label(self) -> str:
        """Return the name of the repository or folder."""
        source = self.source["repository"] if self.source else next(iter(self.sources), "")
        return Path(source).name


class CorpusStage(Stage):
    """Make documents of a language's text."""

    stage = "corpus"
    of = "language"
    version = 3

    corpus: schema.Corpus
    sources: dict[str, Any]  # the local text
    byte_premium: float | None = None  # the language's, if there is a budget
    bytes_per_word: float | None = None  # of a language whose script does not separate words
    # With `corpus.language_filter`, the language and the model (see `identifiers.py`).
    identification: dict[str, Any] = {}

    @classmethod
    def reads(cls, resolved: ResolvedCorpus, part: str) -> Reads:
        """Return the download, the model that finds languages, and the suites of `corpus.decontaminate`."""
        return {
            "download": all_of("download", [resolved.name] if inputs.hub_datasets(resolved) else []),
            "identifier": all_of("identifier", [resolved.name] if identifiers.on_the_hub(resolved) else []),
            "suites": [("suite", resolved.name, suite) for suite in resolved.suites],
        }

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedCorpus, part: str) -> dict[str, Any]:
        """Describe the local text. Without a download, the dataset's name is left out: changing it reruns nothing."""
        corpus, language = resolved.corpus.model_copy(update={"decontaminate": resolved.suites}), resolved.language
        if not inputs.hub_datasets(resolved):
            corpus = corpus.model_copy(update={"hub": None, "revision": ""})
        fields = given(
            byte_premium=language.byte_premium if corpus.budget else None,
            bytes_per_word=language.bytes_per_word,
            identification=identifiers.identification(resolved),
        )
        return fields | {"corpus": corpus, "sources": inputs.corpus_sources(resolved)}


class TokenizerStage(Stage):
    """Train or adopt the tokenizer of a model."""

    stage = "tokenizer"
    version = 2

    tokenizer: schema.Tokenizer
    mixture: schema.Mixture = ONE_LANGUAGE
    source: dict[str, Any] | None  # the repository of an adopted tokenizer
    sources: dict[str, str]  # {path: sha256} of a local tokenizer
    of_model: str | None = None  # the `model.source` whose tokenizer is adopted
    characters: int | None = None  # how many characters a model reads, if its tokens are characters

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        """Return the corpora, and the tokenizer of the model that this one continues, if both use the same."""
        return {
            "corpora": all_of("corpus", resolved.languages),
            "source": source_of(resolved, "tokenizer") if resolved.has_tokenizer_of_source else [],
        }

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        """Say how to train a tokenizer, or which one is adopted: then no key about training matters."""
        of_source, positions = resolved.has_tokenizer_of_source, inputs.characters(resolved)
        if of_source or positions:
            adopted = {"tokenizer": SMALLEST_TOKENIZER, "source": None, "sources": {}}
            source = called(resolved) if of_source else None
            return adopted | given(of_model=source, characters=not of_source and positions)
        about, tokenizer = inputs.tokenizer_source(resolved), resolved.tokenizer
        kept = tokenizer if about["source"] else tokenizer.model_copy(update={"revision": ""})
        return {"tokenizer": kept} | about | ({} if tokenizer.source else mixture_of(resolved))


class ShardsStage(Stage):
    """Turn the corpus of a language into tokens.

    Without labels, only the tokenizer and the corpus matter. `labelled`: whether the model learns labels; `code_list`:
    the sha256 of the file `labels.codes`.
    """

    stage = "shards"
    version = 2

    labels: schema.Labels = NO_LABELS
    labelled: bool = False
    code_list: str | None = None

    @classmethod
    def parts(cls, resolved: ResolvedModel) -> list[str]:
        """Return the languages of a model."""
        return list(resolved.languages)

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        return {"tokenizer": [("tokenizer", resolved.name, "")], "corpus": [("corpus", part, "")]}

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        return {"languages": [part]} | inputs.how_codes_are_read(resolved)


class TrainStage(Stage):
    """Train a model.

    `begin_with`: the file of weights in the source's folder; None for random weights. `shape`: the keys of the source's
    shape that the configuration sets. `bytes_per_word`: with `train.max_words`, see `inputs.bytes_per_word`.
    """

    stage = "train"
    version = 2

    model: schema.Model
    train: schema.Train
    labels: schema.Labels = NO_LABELS
    mixture: schema.Mixture = ONE_LANGUAGE
    begin_with: str | None = None
    shape: dict[str, Any] = {}
    bytes_per_word: dict[str, float] = {}

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        return {
            "tokenizer": [("tokenizer", resolved.name, "")],
            "shards": [("shards", resolved.name, code) for code in resolved.languages],
            "source": source_of(resolved, "train"),
        }

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        """Name the weights that training begins with; for a model of this workflow, the default ones of its export."""
        continued, begin_with = resolved.continued, None
        if resolved.model.source:
            average = continued and continued.export.default_variant == "ema"
            begin_with = "ema.safetensors" if average else "model.safetensors"
        model = resolved.model.model_copy(update={"source": called(resolved), **schema.Model.neutral("revision")})
        fields = {"model": model, "train": resolved.train} | mixture_of(resolved)
        fields |= {"labels": resolved.labels} if resolved.learns_labels else {}
        return fields | given(
            begin_with=begin_with,
            shape=resolved.beside,
            bytes_per_word=resolved.train.max_words and inputs.bytes_per_word(resolved),
        )


class ExportStage(Stage):
    """Write the Hugging Face folder, and prove that it computes the same."""

    stage = "export"
    version = 3

    export: schema.Export

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        """Return the weights, tokenizer and shards, and frozen weights on which adapters or heads were trained."""
        frozen = resolved.train.lora_rank or resolved.train.freeze != "none"
        return {
            "train": [("train", resolved.name, "")],
            "tokenizer": [("tokenizer", resolved.name, "")],
            "shards": [("shards", resolved.name, code) for code in resolved.languages],
            "source": source_of(resolved, "train") if frozen else [],
        }

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        return {"export": resolved.export}


class EvaluateStage(Stage):
    """Measure the exported model on the validation text."""

    stage = "evaluate"
    version = 4

    evaluation: schema.Evaluation
    labels: schema.Labels = NO_LABELS
    scores: list[str]  # the metrics for the model's objective; [] for those of its class
    lossy: bool = False  # whether its tokenizer may lose text, since it is the tokenizer of `model.source`
    # labelled, code_list: see `ShardsStage`.
    labelled: bool = False
    code_list: str | None = None

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        return {
            "export": exported(resolved),
            "corpora": all_of("corpus", resolved.languages),
            "shards": [("shards", resolved.name, code) for code in resolved.languages if resolved.trained],
        }

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        """Say which metrics to compute, whether the tokenizer may lose text, and how codes are read."""
        evaluation = resolved.evaluation.model_copy(update=OF_OTHER_STAGES)
        if resolved.learns_labels:  # the whole validation text is predicted, unchanged
            evaluation = evaluation.model_copy(update=SMALLEST_EVALUATION)
        scores = list(OBJECTIVES[resolved.train.objective].scores) if resolved.trained else []
        fields = {"evaluation": evaluation, "scores": scores}
        fields |= given(lossy=not resolved.trained or resolved.has_tokenizer_of_source)
        return fields | inputs.how_codes_are_read(resolved)


class ScoreStage(Stage):
    """Score the exported model on a suite."""

    stage = "score"
    several = True
    version = 3

    suite: str = ""
    covered: list[str] = []  # the model's languages for which the suite has pairs
    # kind, scored, score, ties, unknown, headline: as in `entries.Suite`.
    kind: str = "pairs"
    scored: Literal["whole", "completion"] = "whole"
    score: Literal["sum", "mean"] = "sum"
    ties: Literal["half", "first", "wrong"] = "half"
    unknown: Literal["scored", "wrong"] = "scored"
    headline: Literal["pairs", "paradigms", "phenomena"] = "pairs"
    methods: list[str]  # how sentences are scored; [] for what the class of the model can do
    # max_items, max_masked_items, snapshots: as the section `evaluation` says.
    max_items: int | Literal["all"] = "all"
    max_masked_items: int | Literal["all"] = "all"
    snapshots: bool = False
    origin: dict[str, Any] = {}  # where the model is from, if a user names it for a command

    @property
    def how_many(self) -> dict[str, Any]:
        """Return how many pairs of each paradigm are scored, as scores.json says it: `evaluation/suite_scores.py`."""
        return {"max_masked_items": self.max_masked_items} | (
            {} if self.max_items == "all" else {"max_items": self.max_items}
        )

    @classmethod
    def parts(cls, resolved: ResolvedModel) -> list[str]:
        """Return the suites that a model is scored on."""
        return list(resolved.scored)

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        """Return the export, the items, and the training text, in which the items are looked for, if it is here."""
        return {
            "export": exported(resolved),
            "suites": all_of("suite", resolved.scored[part], part),
            "corpora": all_of("corpus", resolved.languages if resolved.trained else ()),
        }

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        """Say how sentences are scored, and which of the model's languages the suite covers."""
        evaluation, methods = resolved.evaluation, OBJECTIVES[resolved.train.objective].sentences
        suite = configuration.suite(part)
        methods = methods if resolved.trained else ()
        snapshots = resolved.trained and part in evaluation.snapshot_suites
        how: dict[str, Any] = given(snapshots=snapshots)
        if evaluation.max_items != "all":
            how["max_items"] = evaluation.max_items
        if "masked" in methods or not methods:
            how["max_masked_items"] = evaluation.max_masked_items
        covered = resolved.scored[part]
        fields = {"suite": part, "covered": covered, "headline": suite.headline, "methods": list(methods)}
        return fields | datasets.how_scored(suite) | how


class TuneStage(Stage):
    """Fine-tune the exported model for a task, with one seed."""

    stage = "tune"
    version = 2
    several = True

    task: str = ""
    kind: str = ""  # "tagging", or "" for a classification of texts
    covered: list[str] = []  # the model's languages for which the task has rows; the model is tuned for each alone
    joint: bool = False  # whether it is tuned for all of them at once instead
    metric: str = "accuracy"  # what counts as the score
    protocol: str = ""
    tuning: dict[str, Any] = {}  # the protocol, with the keys that the task changes
    seed: int = 0
    keep: bool = False  # whether the tuned weights are kept
    origin: dict[str, Any] = {}  # where the model is from, if a user names it for a command

    @classmethod
    def parts(cls, resolved: ResolvedModel) -> list[str]:
        return [f"{task}.{seed}" for task, seeds in resolved.seeds.items() for seed in seeds]

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        task = part.rpartition(".")[0]
        return {
            "export": exported(resolved),
            "tasks": all_of("task", resolved.tuned[task], task),
        }

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        """Say how the model is tuned, and which of its languages the task covers."""
        task, _, seed = part.rpartition(".")
        fields = {"covered": resolved.tuned[task], "seed": int(seed)}
        return datasets.how_tuned(configuration, task) | fields | given(keep=resolved.evaluation.keep_tuned)


class ConvertStage(NamedStage):
    """Add the model card to the exported folder."""

    stage = "convert"
    named = "converted/{model}"
    version = 2

    card: schema.Card
    language_table: dict[str, dict[str, str]]  # {code: {"name", "tag", "script"}} of the model's languages
    suites: dict[str, str] = {}  # {name: title} of the suites that the model is scored on
    tasks: dict[str, dict[str, str]] = {}  # {name: {"title", "protocol"}} of the tasks that it is fine-tuned for
    source: str | None = None  # the model of this workflow that it continues

    @classmethod
    def refuse(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> None:
        """Refuse a model of another project, and one of a challenge that would read more words than this allows."""
        if not resolved.trained:
            name = resolved.name
            raise UserError(f"model {name} is not trained here (train: none): the target is baselines/{name}.json")
        submissions.refuse_more_words(resolved)

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        return {
            "export": [("export", resolved.name, "")],
            "evaluation": [("evaluate", resolved.name, "")],
            **scores_of(resolved),
            "train": [("train", resolved.name, "")],
            "tokenizer": [("tokenizer", resolved.name, "")],
            "corpora": all_of("corpus", resolved.languages),
        }

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        """Give what the card says: names, tags and scripts of languages, titles of suites and tasks."""
        titles = {suite: configuration.suite(suite).title or suite for suite in resolved.scored}
        tuned = {task: datasets.about_task(configuration, task) for task in resolved.tuned}
        table = {c: {"name": row.name, "tag": row.tag, "script": row.script} for c, row in resolved.rows.items()}
        of_here = resolved.continued and resolved.continued.name
        return {"card": resolved.card, "language_table": table} | given(suites=titles, tasks=tuned, source=of_here)


class BaselineStage(NamedStage):
    """List what was measured of a model of another project: it is not converted."""

    stage = "baseline"
    named = "baselines/{model}.json"

    @classmethod
    def refuse(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> None:
        if resolved.trained:
            raise UserError(f"model {resolved.name} is trained here: the target is converted/{resolved.name}")

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        return {"evaluation": [("evaluate", resolved.name, "")], **scores_of(resolved)}

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        return {}


class PredictStage(NamedStage):
    """Predict the codes of a table's rows."""

    stage = "predict"
    version = 3
    named = "predictions/{model}/{part}.json"
    at_once: ClassVar[int] = 4096  # texts that are predicted, and kept for an interruption, together

    predict: schema.Predict
    input: str = ""  # the name of the table
    table: dict[str, Any] = {}  # the file, its sha256 (None if there is no such file), and how it is read

    @classmethod
    def parts(cls, resolved: ResolvedModel) -> list[str]:
        """Return the tables in `predict.tables` of a model that learns labels."""
        return list(resolved.predict.tables) if resolved.learns_labels else []

    @classmethod
    def refuse(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> None:
        """Refuse a model without labels, and a table that is not there or lacks a column: else after the training."""
        if not resolved.learns_labels:
            raise UserError(f"model {resolved.name} learns no labels (train.objective): there are no codes to predict")
        table = cls.asked(configuration, resolved, part)["table"]
        path, where = table["file"], f"predict.tables.{part} of model {resolved.name}"
        if not Path(path).is_file():
            raise UserError(f"{where}: {path}: {not_found(path)}")
        if (suffix := Path(path).suffix) in DELIMITERS:  # other files are looked at by the stage alone
            mark = table.get("delimiter", ",") if suffix == ".csv" else DELIMITERS[suffix]
            with open(path, encoding=table["encoding"], errors="replace", newline="") as file:
                heading = next(csv.reader(file, delimiter=mark), [])
            for key in ("text_column", "context_column"):
                if (column := table.get(key)) and column not in [name.lstrip("\ufeff") for name in heading]:
                    expected = f"a column of {path} is expected: {escape.some(heading)}"
                    raise UserError(f"{where}: {key} = {column!r}: {expected}")

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        return {"converted": [("convert", resolved.name, "")]}

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        """Say which table is predicted, and how it is read: what `predict` leaves open is as in the model's corpora.

        It stands beside the table's file, so other tables do not matter.
        """
        section = resolved.predict
        check_known(part, section.tables, f"model {resolved.name}: predict.tables has no table {part!r}")
        corpora = [configuration.corpus(code).corpus for code in resolved.languages]
        table = {key: getattr(section, key) for key in OF_TABLES if key != "tables"}
        unset = ["text_column"] if section.text_column is None else []
        unset += ["context_column", "context"] if section.context_column is None and section.context is None else []
        for key in unset:
            values = list(dict.fromkeys(getattr(corpus, key) for corpus in corpora))
            if len(values) > 1:
                where = f"predict.{key} of model {resolved.name}"
                raise UserError(f"{where}: a value is expected: its corpora differ: {values}")
            (table[key],) = values
        file = section.tables[part]
        digest = hashes([file])[file] if Path(file).is_file() else None
        table = {"file": file, "sha256": digest} | {key: value for key, value in table.items() if value}
        return {"predict": section.model_copy(update=OF_TABLES), "input": part, "table": table}


class SubmissionStage(NamedStage):
    """Make what a challenge takes of a model's scores, and check it."""

    stage = "submission"
    named = "submissions/{model}.json"

    backend: str  # the challenge's name of the scores that are submitted: causal or mlm
    rules: str  # the rules of the challenge (`submissions.Rules`) as JSON, whose order the file of a challenge has
    codes: dict[str, str]  # {task: the language of the model that its scores are of}; other tasks have no scores
    tuned: dict[str, dict[str, str]] = {}  # {task: {subtask: the job that fine-tunes for it, such as "rte.42"}}
    own: list[str] = []  # suites and tasks of the challenge that the user's settings define themselves
    missing: dict[str, str] = {}  # {task: why it has no scores}
    # {task: why it has no scores at the checkpoints, though the final model has}.
    missing_at_checkpoints: dict[str, str] = {}

    @classmethod
    def parts(cls, resolved: ResolvedModel) -> list[str]:
        """Return one part for a model that has scores for its challenge."""
        return [""] if resolved.trained and submissions.backend_of(resolved) else []

    @classmethod
    def refuse(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> None:
        """Refuse a model of no challenge, and say what one lacks."""
        submissions.refuse_submission(resolved)

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        return {
            "converted": [("convert", resolved.name, "")],
            **scores_of(resolved),
            "train": [("train", resolved.name, "")],
        }

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        """Say what the challenge takes, and which of it the model has."""
        return submissions.submission_of(configuration, resolved.name)


class PublishStage(NamedStage):
    """Publish the converted model on the Hub. `repository`: where the model goes, `owner/name`."""

    stage = "publish"
    named = "published/{model}.json"

    publish: schema.Publish
    repository: str

    @classmethod
    def refuse(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> None:
        """Refuse a model of another project."""
        ConvertStage.refuse(configuration, resolved, part)

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        """Return the converted model, and the submission of a model of a challenge."""
        submitted = [("submission", resolved.name, part) for part in SubmissionStage.parts(resolved)]
        return {"converted": [("convert", resolved.name, "")], "submission": submitted}

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        """Name the repository on the Hub."""
        return {"publish": resolved.publish, "repository": inputs.repository(resolved)}


# What several stages are asked.


def source_of(resolved: ResolvedModel, stage: str) -> list[tuple[str, str, str]]:
    """Return the job that makes what a model continues: a stage of a model of this workflow, or `base_model`."""
    if resolved.continued:
        return [(stage, resolved.continued.name, "")]
    return [("base_model", resolved.name, "")] if resolved.model.source else []


def exported(resolved: ResolvedModel) -> list[tuple[str, str, str]]:
    """Return the job that makes the folder which is measured: `base_model` for a model of another project."""
    return [("export" if resolved.trained else "base_model", resolved.name, "")]


def scores_of(resolved: ResolvedModel) -> Reads:
    """Return the jobs that score a model on its suites, and that fine-tune it for its tasks."""
    return {
        "scores": [("score", resolved.name, suite) for suite in ScoreStage.parts(resolved)],
        "tuned": [("tune", resolved.name, tuned) for tuned in TuneStage.parts(resolved)],
    }


def deliverable(configuration: Configuration, model: str) -> type[Stage]:
    """Return the stage whose result a model is made for."""
    return ConvertStage if configuration.is_trained(model) else BaselineStage


def called(resolved: ResolvedModel) -> str | None:
    """Return what settings call the source of a model: one of this workflow may be renamed, and is known by its key."""
    return HERE if resolved.continued else resolved.model.source


def mixture_of(resolved: ResolvedModel) -> dict[str, Any]:
    """Return the section `mixture` of a model of several languages; one language has nothing to weigh."""
    return {"mixture": resolved.mixture} if len(resolved.languages) > 1 else {}


# All classes above, in the order in which they run.
STAGES: dict[str, type[Stage]] = {
    stage.stage: stage for stage in (*Stage.__subclasses__(), *NamedStage.__subclasses__()) if hasattr(stage, "stage")
}
