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

    Attributes:
        stage: the name of the stage.
        name: the language or the model.
        languages: codes of the model's languages, in order.
        code: version or digest of the stage's code.
        raw: the content of the settings file, for the manifest.
        modules: {module: digest} of the code that runs, for the manifest.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: str
    name: str
    languages: list[str] = []
    code: str = ""
    raw: dict[str, Any] = {}
    modules: dict[str, str] = {}

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
    """The settings of `download`: which datasets to fetch, and how much of them.

    Attributes:
        source: {"repository", "revision", "commit" (None if the stage resolves it)} of the dataset.
        parts: instead of `source`, the entries of `corpus.hub`, each with the same keys.
        columns: the keys of `corpus` that define which columns are read, and how, if they differ from the defaults.
        counted: with a budget, the keys of `corpus` that decide how much text a file yields.
        byte_premium: with a budget, the language's byte premium.
        chosen_again: whether an earlier release chose other files (see `earlier_results.py`).
    """

    source: dict[str, Any] | None = None
    parts: list[dict[str, Any]] = []
    columns: dict[str, Any] = {}
    counted: dict[str, Any] | None = None
    byte_premium: float | None = None
    chosen_again: bool = False


class BaseModelSettings(Settings):
    """The settings of `base_model`: where a model from elsewhere comes from.

    Attributes:
        source: the repository on the Hub; None for a local folder.
        sources: the content of a local folder.
        shape: the keys of its shape that the configuration sets beside `model.source`.
        auto_class: the Auto class of transformers that its weights must fit; None for our architectures.
        architecture: which of our architectures it is, if it has no `auto_class`.
    """

    source: dict[str, Any] | None
    sources: dict[str, Any]
    shape: dict[str, Any]
    auto_class: str | None = None
    architecture: str = "gpt_bert"


class IdentifierSettings(Settings):
    """The settings of `identifier`: which model finds the languages of a corpus.

    Attributes:
        source: its repository on the Hub, commit, file, and sha256 (None if only the Hub knows it).
    """

    source: dict[str, Any]


class CorpusSettings(Settings):
    """The settings of `corpus`: where the text comes from, and how it becomes documents.

    Attributes:
        sources: the local text.
        byte_premium: the language's, if there is a budget.
        raw_labels: whether labels stay as they stand (see `earlier_results.py`).
        identification: with `corpus.language_filter`, the language and the model (see `identifiers.py`).
    """

    corpus: schema.Corpus
    sources: dict[str, Any]
    byte_premium: float | None = None
    raw_labels: bool = False
    identification: dict[str, Any] = {}


class TokenizerSettings(Settings):
    """The settings of `tokenizer`: how to train or adopt a tokenizer.

    Attributes:
        source: the repository of an adopted tokenizer.
        sources: {path: sha256} of a local tokenizer.
        of_model: the `model.source` whose tokenizer is adopted.
        characters: how many characters a model reads, if its tokens are characters.
    """

    tokenizer: schema.Tokenizer
    mixture: schema.Mixture = ONE_LANGUAGE
    source: dict[str, Any] | None
    sources: dict[str, str]
    of_model: str | None = None
    characters: int | None = None


class ShardsSettings(Settings):
    """The settings of `shards`: how to read labels, for a model that learns them.

    For other models, only the tokenizer and the corpus matter.

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

    Attributes:
        preset: the model's preset, for the names of logs.
        like: the model that it inherits from, for `babelmill runs`.
        bytes_per_word: {code: bytes per word}, see `inputs.bytes_per_word`.
        set_aside: the share of the text that is set aside for validation, for advice.
    """

    run: schema.Run
    preset: str = ""
    like: str = ""
    bytes_per_word: dict[str, float] = {}
    set_aside: float = 0.0


class ExportSettings(Settings):
    """The settings of `export`: what the Hugging Face folder holds."""

    export: schema.Export


class EvaluateSettings(Settings):
    """The settings of `evaluate`: how the exported model is measured.

    Attributes:
        scores: the metrics for the model's objective.
        lossy: whether its tokenizer may lose text, since it is the tokenizer of `model.source`.
        labelled, code_list: see `ShardsSettings`.
    """

    evaluation: schema.Evaluation
    labels: schema.Labels = NO_LABELS
    scores: list[str]
    lossy: bool = False
    labelled: bool = False
    code_list: str | None = None


class SuiteSettings(Settings):
    """The settings of `suite`: which items a suite has for a language.

    Attributes:
        suite: its name.
        kind: its kind, see `schema.Suite`.
        items: the keys of `schema.Suite` that say what an item of this kind is; without those of `columns`.
        columns: the keys of `schema.Suite` that define how its files are read.
        files: globs in the dataset on the Hub.
        source: the dataset.
        sources: instead of `files` and `source`, the local files.
    """

    suite: str = ""
    kind: str = "pairs"
    columns: dict[str, str] = {}
    items: dict[str, Any] = {}
    files: list[str] = []
    source: dict[str, Any] | None = None
    sources: dict[str, Any] = {}


class ScoreSettings(Settings):
    """The settings of `score`: how a model is scored on a suite.

    Attributes:
        suite: its name.
        covered: the model's languages for which the suite has pairs.
        kind, scored, score, ties, unknown, headline: as in `schema.Suite`.
        methods: how sentences are scored.
        pairs, masked_pairs, within_word_l2r, snapshots: as the section `evaluation` says.
    """

    suite: str = ""
    covered: list[str] = []
    kind: str = "pairs"
    scored: Literal["whole", "completion"] = "whole"
    score: Literal["sum", "mean"] = "sum"
    ties: Literal["half", "first", "wrong"] = "half"
    unknown: Literal["scored", "wrong"] = "scored"
    headline: Literal["pairs", "paradigms", "phenomena"] = "pairs"
    methods: list[str]
    pairs: int | Literal["all"] = "all"
    masked_pairs: int | Literal["all"] = "all"
    within_word_l2r: bool = False
    snapshots: bool = False

    @property
    def asked(self) -> dict[str, Any]:
        """Return how many pairs of each paradigm are scored, as scores.json says it: `evaluation/suite_scores.py`."""
        return {"masked_pairs": self.masked_pairs} | ({} if self.pairs == "all" else {"pairs": self.pairs})


class TaskSettings(Settings):
    """The settings of `task`: which rows a task has for a language.

    Attributes:
        task: its name.
        kind: "tagging", or "" for a classification of texts.
        columns: the keys of `schema.Task` that define how its files are read.
        resplit: `schema.Resplit`, if the rows are divided anew.
        spans: whether the labels must mark spans.
        files: {split: globs in the dataset on the Hub}.
        source: the dataset.
        sources: instead of `files` and `source`, {split: the local files}.
    """

    task: str = ""
    kind: str = ""
    columns: dict[str, str] = {}
    resplit: dict[str, Any] | None = None
    spans: bool = False
    files: dict[str, list[str]] = {}
    source: dict[str, Any] | None = None
    sources: dict[str, dict[str, Any]] = {}


class TuneSettings(Settings):
    """The settings of `tune`: how a model is fine-tuned for a task with one seed.

    Attributes:
        task: its name.
        kind: "tagging", or "" for a classification of texts.
        covered: the model's languages for which the task has rows; the model is tuned for each alone.
        joint: whether it is tuned for all of them at once instead.
        metric: what counts as the score.
        protocol: the name of the protocol.
        tuning: the protocol, with the keys that the task changes.
        seed: the seed.
        keep: whether the tuned weights are kept.
    """

    task: str = ""
    kind: str = ""
    covered: list[str] = []
    joint: bool = False
    metric: str = "accuracy"
    protocol: str = ""
    tuning: dict[str, Any] = {}
    seed: int = 0
    keep: bool = False


class ConvertSettings(Settings):
    """The settings of `convert`: what the model card says beyond what was measured.

    Attributes:
        language_table: {code: {"name", "tag", "script"}} of the model's languages.
        suites: {name: {"title", "baselines"}} of the suites that the model is scored on.
        tasks: {name: {"title", "protocol", "baselines"}} of the tasks that it is fine-tuned for.
    """

    card: schema.Card
    language_table: dict[str, dict[str, str]]
    suites: dict[str, dict[str, Any]] = {}
    tasks: dict[str, dict[str, Any]] = {}


class PredictSettings(Settings):
    """The settings of `predict`: how the rows of a table are predicted. Each table in `predict.inputs` has a file.

    Attributes:
        input: the name of the table.
        table: the file, its sha256 (None if there is no such file), and how it is read.
    """

    predict: schema.Predict
    input: str = ""
    table: dict[str, Any] = {}


class PublishSettings(Settings):
    """The settings of `publish`. `repository`: where the model goes, `owner/name`."""

    publish: schema.Publish
    repository: str


class SubmissionSettings(Settings):
    """The settings of `submission`: what a challenge takes, and where the scores of its tasks are.

    Attributes:
        challenge: the title of the challenge.
        track: the challenge's name of the track.
        backend: the challenge's name of the scores that are submitted: causal or mlm.
        rules: the rules of the challenge (`submissions.Rules`).
        order: the order of their `tasks` and `numbers`, which a settings file does not keep.
        checkpoints: the names of the checkpoints that the challenge asks for.
        codes: {task: the language of the model that its scores are of}; other tasks have no scores.
        tuned: {task: {subtask: the job that fine-tunes for it, such as "rte.42"}}.
        own: suites and tasks of the challenge that the user's settings define themselves.
        missing: {task: why it has no scores}.
        missing_at_checkpoints: {task: why it has no scores at the checkpoints, though the final model has}.
    """

    challenge: str
    track: str
    backend: str
    rules: dict[str, Any]
    order: dict[str, list[str]]
    checkpoints: list[str]
    codes: dict[str, str]
    tuned: dict[str, dict[str, str]] = {}
    own: list[str] = []
    missing: dict[str, str] = {}
    missing_at_checkpoints: dict[str, str] = {}
