"""Define the content of each stage's settings file, one type per stage. `stages.py` fills them in.

A file holds what is given when a type is filled in. A default is what a stage reads where its file says nothing.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from babelmill.config import schema
from babelmill.config.canonical import to_file

ONE_LANGUAGE = schema.Mixture(weights=1.0)  # there is nothing to weigh
NO_LABELS = schema.Labels()


class Settings(BaseModel):
    """The settings of a stage: what it is asked to do, as its settings file says.

    Fields whose type is a section of the configuration are the sections that the stage reads; it reads no others.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: str
    name: str  # the language or the model
    languages: list[str] = []  # codes of the model's languages, in order
    version: int = 1  # of the stage, see `stages.Stage`
    raw: dict[str, Any] = {}  # the content of the settings file, for the manifest

    @classmethod
    def sections(cls) -> dict[str, type[schema.Section]]:
        """Return the sections of the configuration that the stage reads."""
        types = {name: field.annotation for name, field in cls.model_fields.items()}
        return {n: t for n, t in types.items() if isinstance(t, type) and issubclass(t, schema.Section)}

    def written(self) -> dict[str, Any]:
        """Return the content of the settings file: the fields that were given, sections in canonical form."""
        given = {key: getattr(self, key) for key in self.model_fields_set}
        return given | to_file({key: given[key] for key in self.sections() if key in given})


class DownloadSettings(Settings):
    """The settings of `download`: which datasets to fetch, and how much of them."""

    # {"repository", "revision"} of the dataset.
    source: dict[str, Any] | None = None
    parts: list[dict[str, Any]] = []  # instead of `source`, the entries of `corpus.hub`, each with the same keys
    # The keys of `corpus` that define which columns are read, and how, if they differ from the defaults.
    columns: dict[str, Any] = {}
    counted: dict[str, Any] | None = None  # with a budget, the keys of `corpus` that decide how much text a file yields
    byte_premium: float | None = None  # with a budget, the language's byte premium


class BaseModelSettings(Settings):
    """The settings of `base_model`: where a model from elsewhere comes from."""

    source: dict[str, Any] | None  # the repository on the Hub; None for a local folder
    sources: dict[str, Any]  # the content of a local folder
    shape: dict[str, Any]  # the keys of its shape that the configuration sets beside `model.source`
    # The Auto class of transformers that its weights must fit; None for our architectures.
    auto_class: str | None = None
    architecture: str = "gpt_bert"  # which of our architectures it is, if it has no `auto_class`


class IdentifierSettings(Settings):
    """The settings of `identifier`: which model finds the languages of a corpus."""

    source: dict[str, Any]  # its repository on the Hub, commit, file, and sha256 (None if only the Hub knows it)


class CorpusSettings(Settings):
    """The settings of `corpus`: where the text comes from, and how it becomes documents."""

    corpus: schema.Corpus
    sources: dict[str, Any]  # the local text
    byte_premium: float | None = None  # the language's, if there is a budget
    # With `corpus.language_filter`, the language and the model (see `identifiers.py`).
    identification: dict[str, Any] = {}


class TokenizerSettings(Settings):
    """The settings of `tokenizer`: how to train or adopt a tokenizer."""

    tokenizer: schema.Tokenizer
    mixture: schema.Mixture = ONE_LANGUAGE
    source: dict[str, Any] | None  # the repository of an adopted tokenizer
    sources: dict[str, str]  # {path: sha256} of a local tokenizer
    of_model: str | None = None  # the `model.source` whose tokenizer is adopted
    characters: int | None = None  # how many characters a model reads, if its tokens are characters


class ShardsSettings(Settings):
    """The settings of `shards`: how to read labels. For models without labels, only tokenizer and corpus matter.

    `labelled`: whether the model learns labels; `code_list`: the sha256 of the file `labels.codes`.
    """

    labels: schema.Labels = NO_LABELS
    labelled: bool = False
    code_list: str | None = None


class TrainSettings(Settings):
    """The settings of `train`: the model, and how it is trained.

    `begin_with`: the file of weights in the source's folder; None for random weights. `shape`: the keys of the source's
    shape that the configuration sets. `bytes_per_word`: with `train.words`, see `inputs.bytes_per_word`.
    """

    model: schema.Model
    train: schema.Train
    labels: schema.Labels = NO_LABELS
    mixture: schema.Mixture = ONE_LANGUAGE
    begin_with: str | None = None
    shape: dict[str, Any] = {}
    bytes_per_word: dict[str, float] = {}


class RunSettings(Settings):
    """The settings that say how a training run is monitored and saved.

    These settings belong to no stage: the rule `train` takes the file as an `ancient` input.
    """

    run: schema.Run
    preset: str = ""  # the model's preset, for the names of logs
    bytes_per_word: dict[str, float] = {}  # {code: bytes per word}, see `inputs.bytes_per_word`
    set_aside: float = 0.0  # the share of the text that is set aside for validation, for advice


class ExportSettings(Settings):
    """The settings of `export`: what the Hugging Face folder holds."""

    export: schema.Export


class EvaluateSettings(Settings):
    """The settings of `evaluate`: how the exported model is measured."""

    evaluation: schema.Evaluation
    labels: schema.Labels = NO_LABELS
    scores: list[str]  # the metrics for the model's objective
    lossy: bool = False  # whether its tokenizer may lose text, since it is the tokenizer of `model.source`
    # labelled, code_list: see `ShardsSettings`.
    labelled: bool = False
    code_list: str | None = None


class SuiteSettings(Settings):
    """The settings of `suite`: which items a suite has for a language."""

    suite: str = ""
    kind: str = "pairs"  # its kind, see `schema.Suite`
    columns: dict[str, str] = {}  # the keys of `schema.Suite` that define how its files are read
    # The keys of `schema.Suite` that say what an item of this kind is; without those of `columns`.
    items: dict[str, Any] = {}
    files: list[str] = []  # globs in the dataset on the Hub
    source: dict[str, Any] | None = None  # the dataset
    sources: dict[str, Any] = {}  # instead of `files` and `source`, the local files


class ScoreSettings(Settings):
    """The settings of `score`: how a model is scored on a suite."""

    suite: str = ""
    covered: list[str] = []  # the model's languages for which the suite has pairs
    # kind, scored, score, ties, unknown, headline: as in `schema.Suite`.
    kind: str = "pairs"
    scored: Literal["whole", "completion"] = "whole"
    score: Literal["sum", "mean"] = "sum"
    ties: Literal["half", "first", "wrong"] = "half"
    unknown: Literal["scored", "wrong"] = "scored"
    headline: Literal["pairs", "paradigms", "phenomena"] = "pairs"
    methods: list[str]  # how sentences are scored
    # pairs, masked_pairs, snapshots: as the section `evaluation` says.
    pairs: int | Literal["all"] = "all"
    masked_pairs: int | Literal["all"] = "all"
    snapshots: bool = False

    @property
    def asked(self) -> dict[str, Any]:
        """Return how many pairs of each paradigm are scored, as scores.json says it: `evaluation/suite_scores.py`."""
        return {"masked_pairs": self.masked_pairs} | ({} if self.pairs == "all" else {"pairs": self.pairs})


class TaskSettings(Settings):
    """The settings of `task`: which rows a task has for a language."""

    task: str = ""
    kind: str = ""  # "tagging", or "" for a classification of texts
    columns: dict[str, str] = {}  # the keys of `schema.Task` that define how its files are read
    resplit: dict[str, Any] | None = None  # `schema.Resplit`, if the rows are divided anew
    spans: bool = False  # whether the labels must mark spans
    files: dict[str, list[str]] = {}  # {split: globs in the dataset on the Hub}
    source: dict[str, Any] | None = None  # the dataset
    sources: dict[str, dict[str, Any]] = {}  # instead of `files` and `source`, {split: the local files}


class TuneSettings(Settings):
    """The settings of `tune`: how a model is fine-tuned for a task with one seed."""

    task: str = ""
    kind: str = ""  # "tagging", or "" for a classification of texts
    covered: list[str] = []  # the model's languages for which the task has rows; the model is tuned for each alone
    joint: bool = False  # whether it is tuned for all of them at once instead
    metric: str = "accuracy"  # what counts as the score
    protocol: str = ""
    tuning: dict[str, Any] = {}  # the protocol, with the keys that the task changes
    seed: int = 0
    keep: bool = False  # whether the tuned weights are kept


class ConvertSettings(Settings):
    """The settings of `convert`: what the model card says beyond what was measured."""

    card: schema.Card
    language_table: dict[str, dict[str, str]]  # {code: {"name", "tag", "script"}} of the model's languages
    suites: dict[str, dict[str, Any]] = {}  # {name: {"title", "baselines"}} of the suites that the model is scored on
    # {name: {"title", "protocol", "baselines"}} of the tasks that it is fine-tuned for.
    tasks: dict[str, dict[str, Any]] = {}


class PredictSettings(Settings):
    """The settings of `predict`: how the rows of a table are predicted. Each table in `predict.inputs` has a file."""

    predict: schema.Predict
    input: str = ""  # the name of the table
    table: dict[str, Any] = {}  # the file, its sha256 (None if there is no such file), and how it is read


class PublishSettings(Settings):
    """The settings of `publish`. `repository`: where the model goes, `owner/name`."""

    publish: schema.Publish
    repository: str


class SubmissionSettings(Settings):
    """The settings of `submission`: what a challenge takes, and where the scores of its tasks are."""

    challenge: str  # the title of the challenge
    track: str  # the challenge's name of the track
    backend: str  # the challenge's name of the scores that are submitted: causal or mlm
    rules: dict[str, Any]  # the rules of the challenge (`submissions.Rules`)
    order: dict[str, list[str]]  # the order of their `tasks` and `numbers`, which a settings file does not keep
    checkpoints: list[str]  # the names of the checkpoints that the challenge asks for
    codes: dict[str, str]  # {task: the language of the model that its scores are of}; other tasks have no scores
    tuned: dict[str, dict[str, str]] = {}  # {task: {subtask: the job that fine-tunes for it, such as "rte.42"}}
    own: list[str] = []  # suites and tasks of the challenge that the user's settings define themselves
    missing: dict[str, str] = {}  # {task: why it has no scores}
    # {task: why it has no scores at the checkpoints, though the final model has}.
    missing_at_checkpoints: dict[str, str] = {}
