"""The one table of stages: what each is called, reads, writes, and what its settings file says.

Everything that has to know the stages takes them from here: the settings files, the helper functions of the rules,
`babelmill why`, `status` and `clean`, and the tests. To add a stage, add an entry, a rules file of the same name in
`workflow/rules/`, and a module of the same name beside this one (docs in CONTRIBUTING.md). The functions that entries
name are in `config/added_settings.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from babelmill.config import inputs, schema, suites
from babelmill.config.added_settings import (
    add_base_model,
    add_convert,
    add_corpus,
    add_download,
    add_evaluate,
    add_no_part,
    add_nothing,
    add_predict,
    add_publish,
    add_score,
    add_suite_scored,
    add_table,
    add_tokenizer,
    add_train,
    always,
    from_the_hub,
    has_labels,
    has_suites,
    how_codes_are_read,
    is_scored,
    tables_of,
    whole,
)
from babelmill.config.resolve import Configuration
from babelmill.core import code_digest, code_versions


class Settings(BaseModel):
    """What a stage is asked to do, as its settings file says.

    Fields whose type is a section of the configuration are sections that the stage reads; it reads no other. The others
    are what its entry in the table `adds`.

    Attributes:
        stage: its name.
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
        """The sections of the configuration that the stage reads."""
        types = {name: field.annotation for name, field in cls.model_fields.items()}
        return {n: t for n, t in types.items() if isinstance(t, type) and issubclass(t, schema.Section)}


class DownloadSettings(Settings):
    """Which datasets to fetch, and how much of them.

    Attributes:
        source: {"repository", "revision", "commit" (None if the stage resolves it)} of the dataset.
        parts: in its place, the entries of `corpus.hub`, each with the same keys.
        columns: keys of `corpus` that say which columns are read, and how, where they are not the usual ones.
        counted: with a budget (and the language's `byte_premium`), the keys of `corpus` that say what a file holds.
    """

    source: dict[str, Any] | None = None
    parts: list[dict[str, Any]] = []
    columns: dict[str, Any] = {}
    counted: dict[str, Any] | None = None
    byte_premium: float | None = None


class BaseModelSettings(Settings):
    """Where a model from elsewhere comes from.

    Attributes:
        source: the repository.
        sources: what a local folder holds.
        shape: what the configuration says beside it.
        auto_class: of transformers, whose weights it must have; None for a GPT-BERT.
    """

    source: dict[str, Any] | None
    sources: dict[str, Any]
    shape: dict[str, Any]
    auto_class: str | None = None


class CorpusSettings(Settings):
    """`sources`: what local text there is; `byte_premium`: the language's, where a budget needs it."""

    corpus: schema.Corpus
    sources: dict[str, Any]
    byte_premium: float | None = None


class TokenizerSettings(Settings):
    """`source`: the repository of an adopted tokenizer; `sources`: {path: sha256} of a local one; `of_model`: the
    `model.source` whose tokenizer it is; `characters`: how many a model reads that has no other tokens."""

    tokenizer: schema.Tokenizer
    mixture: schema.Mixture
    source: dict[str, Any] | None
    sources: dict[str, str]
    of_model: str | None = None
    characters: int | None = None


class ShardsSettings(Settings):
    """What labels mean, for a model that learns them; for others nothing: tokenizer and corpus decide all.

    `labelled`: whether it does; `code_list`: the sha256 of `labels.codes`.
    """

    labels: schema.Labels
    labelled: bool = False
    code_list: str | None = None


class TrainSettings(Settings):
    """The model and how it is trained.

    `begin_with`: the file of weights in the source's folder; None if they begin random. `shape`: what the configuration
    says of the source's shape.
    """

    model: schema.Model
    train: schema.Train
    labels: schema.Labels
    mixture: schema.Mixture
    begin_with: str | None = None
    shape: dict[str, Any] = {}


class RunSettings(Settings):
    """How a training run is looked after. No stage: the train rule takes it as an `ancient` input.

    `preset`: the model's, for the names of logs.
    """

    run: schema.Run
    preset: str = ""


class ExportSettings(Settings):
    """What the Hugging Face folder holds."""

    export: schema.Export


class EvaluateSettings(Settings):
    """How the exported model is measured.

    Attributes:
        scores: the metrics that a model of its objective has.
        lossy: its tokenizer may lose text, for it is that of `model.source`.
        labelled, code_list: as those of `ShardsSettings`.
    """

    evaluation: schema.Evaluation
    labels: schema.Labels
    scores: list[str]
    lossy: bool = False
    labelled: bool = False
    code_list: str | None = None


class SuiteSettings(Settings):
    """Which pairs of sentences of a language a suite has.

    Attributes:
        suite: its name.
        columns: keys of `suite_section.Suite` that say how its files are read.
        files: globs in the dataset of the Hub.
        source: the dataset.
        sources: in their place, what local files there are.
    """

    suite: str = ""
    columns: dict[str, str] = {}
    files: list[str] = []
    source: dict[str, Any] | None = None
    sources: dict[str, Any] = {}


class ScoreSettings(Settings):
    """How a model is scored on a suite.

    Attributes:
        suite: its name.
        covered: the model's languages that it has pairs of.
        headline: whether the suite's score is the share of its pairs or the mean of its paradigms.
        methods: how sentences are scored.
        masked_pairs, within_word_l2r: as the section `evaluation` says.
    """

    suite: str = ""
    covered: list[str] = []
    headline: Literal["pairs", "paradigms"] = "pairs"
    methods: list[str]
    masked_pairs: int | Literal["all"] = "all"
    within_word_l2r: bool = False


class ConvertSettings(Settings):
    """What the model card says beyond what was measured.

    Attributes:
        language_table: {code: {"name", "tag", "script"}} of the model's languages.
        suites: {name: {"title", "baselines"}} of those that it is scored on.
    """

    card: schema.Card
    language_table: dict[str, dict[str, str]]
    suites: dict[str, dict[str, Any]] = {}


class PredictSettings(Settings):
    """How the rows of a table are predicted, but for `inputs`: there is a settings file for each of them.

    Attributes:
        input: its name.
        table: the file, its sha256 (None where there is no such file), and how it is read.
    """

    predict: schema.Predict
    input: str = ""
    table: dict[str, Any] = {}


class PublishSettings(Settings):
    """`repository`: where the model goes, `owner/name`."""

    publish: schema.Publish
    repository: str


@dataclass(frozen=True)
class Stage:
    """A stage of the workflow.

    Attributes:
        name: of the stage, its rule, its rules file and its module.
        of: whether its settings are a language's or a model's.
        settings: the type of its settings; it says which sections of the configuration the stage reads.
        folder: where its results are, with {language}, {model} or both; a stage with {language} has a job for each, and
            one with {input} or {suite} for each of its parts.
        reads: the stages whose results it reads.
        adds: what its settings say beyond its sections.
        applies: whether a language or model has this stage at all.
        parts: what it has a job and a settings file of its own for, by name; none: there is one settings file.
        adds_to_part: what the settings of a part say beyond.
        also: modules that it runs in another process, or ships, without importing them.
    """

    name: str
    of: Literal["language", "model"]
    settings: type[Settings]
    folder: str
    reads: tuple[str, ...]
    adds: Callable[[Configuration, str], dict[str, Any]] = add_nothing
    applies: Callable[[Configuration, str], bool] = always
    parts: Callable[[Configuration, str], list[str]] = whole
    adds_to_part: Callable[[Configuration, str, str], dict[str, Any]] = add_no_part
    also: tuple[str, ...] = ()

    @property
    def by_language(self) -> bool:
        """Whether the stage has a job for each language."""
        return "{language}" in self.folder

    def path(self, name: str, part: str) -> Path:
        """The folder of its results; `part`: the language, the input or the suite, where it has a job for each."""
        language = name if "{suite}" in self.folder else part
        return Path(self.folder.format(model=name, language=language, input=part, suite=part))

    def jobs(self, configuration: Configuration, model: str) -> list[tuple[str, str]]:
        """Return the jobs that a model needs: the language or model that each one's settings are of, and its part."""
        languages = configuration.languages_of(model)
        names = [n for n in (languages if self.of == "language" else [model]) if self.applies(configuration, n)]
        if self.parts is whole and self.of == "language":
            return [(code, code) for code in names]
        if self.parts is whole:
            return [(name, part) for name in names for part in (languages if self.by_language else [""])]
        scored = suites.suites_of_model(configuration, model)
        return [
            (name, part)
            for name in names
            for part in self.parts(configuration, name)
            if self.of == "model" or part in scored
        ]

    def settings_name(self, part: str) -> str:
        """Return what its settings file is called, without .json."""
        return self.name if self.parts is whole else f"{self.name}.{part}"

    @cached_property
    def modules(self) -> dict[str, str]:
        """{module: digest} of the stage's code."""
        return code_digest.modules(self.name, self.also)

    @cached_property
    def digest(self) -> str:
        """The digest of the stage's code."""
        return code_digest.combined(self.modules)

    @property
    def version(self) -> code_versions.Version | None:
        """The newest version of the stage's code."""
        return code_versions.newest(self.name)


TABLE = (
    Stage(
        name="download",
        of="language",
        settings=DownloadSettings,
        folder="results/downloads/{language}",
        reads=(),
        adds=add_download,
        applies=from_the_hub,
    ),
    Stage(
        name="suite",
        of="language",
        settings=SuiteSettings,
        folder="results/suites/{suite}/{language}",
        reads=(),
        applies=has_suites,
        parts=suites.suites_of_language,
        adds_to_part=suites.pairs_of_suite,
    ),
    Stage(
        name="base_model",
        of="model",
        settings=BaseModelSettings,
        folder="results/base_models/{model}",
        reads=(),
        adds=add_base_model,
        applies=inputs.has_base_model,
    ),
    Stage(
        name="corpus",
        of="language",
        settings=CorpusSettings,
        folder="results/corpora/{language}",
        reads=("download",),
        adds=add_corpus,
    ),
    Stage(
        name="tokenizer",
        of="model",
        settings=TokenizerSettings,
        folder="results/tokenizers/{model}",
        reads=("corpus", "base_model"),
        adds=add_tokenizer,
    ),
    Stage(
        name="shards",
        of="model",
        settings=ShardsSettings,
        folder="results/shards/{model}/{language}",
        reads=("tokenizer", "corpus"),
        adds=how_codes_are_read,
    ),
    Stage(
        name="train",
        of="model",
        settings=TrainSettings,
        folder="results/models/{model}",
        reads=("tokenizer", "shards", "base_model"),
        adds=add_train,
    ),
    Stage(
        name="export",
        of="model",
        settings=ExportSettings,
        folder="results/exports/{model}",
        reads=("train", "tokenizer", "shards"),
        also=("release.prove", "model.transformers.modeling_gpt_bert", "model.transformers.modeling_gpt_bert_codes"),
    ),
    Stage(
        name="evaluate",
        of="model",
        settings=EvaluateSettings,
        folder="results/evaluations/{model}",
        reads=("export", "corpus", "shards"),
        adds=add_evaluate,
    ),
    Stage(
        name="score",
        of="model",
        settings=ScoreSettings,
        folder="results/scores/{model}/{suite}",
        reads=("export", "suite"),
        adds=add_score,
        applies=is_scored,
        parts=suites.suites_of_model,
        adds_to_part=add_suite_scored,
    ),
    Stage(
        name="convert",
        of="model",
        settings=ConvertSettings,
        folder="converted/{model}",
        reads=("export", "evaluate", "score", "corpus", "tokenizer", "train"),
        adds=add_convert,
    ),
    Stage(
        name="predict",
        of="model",
        settings=PredictSettings,
        folder="predictions/{model}/{input}.json",
        reads=("convert",),
        adds=add_predict,
        applies=has_labels,
        parts=tables_of,
        adds_to_part=add_table,
    ),
    Stage(
        name="publish",
        of="model",
        settings=PublishSettings,
        folder="published/{model}.json",
        reads=("convert",),
        adds=add_publish,
    ),
)
STAGES = {stage.name: stage for stage in TABLE}


def leading_to(name: str) -> dict[str, Stage]:
    """Return a stage and all stages that it depends on, in the order of the table."""
    found = {name}
    for stage in reversed(TABLE):
        if stage.name in found:
            found.update(stage.reads)
    return {stage.name: stage for stage in TABLE if stage.name in found}


# The stages that make the deliverable: what `why`, `status` and the summary after a run are about.
TO_CONVERTED = leading_to("convert")
