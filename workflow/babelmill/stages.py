"""Define the table of stages: each stage's name, what it reads and writes, and what its settings file contains.

Everything that needs to know the stages uses this table: the settings files, the helper functions of the rules,
`babelmill why`, `status` and `clean`, and the tests. To add a stage, add an entry, a rules file of the same name in
`workflow/rules/`, and a module of the same name beside this one (see CONTRIBUTING.md). The functions that entries name
are in `config/added_settings.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from babelmill.config import inputs, stage_settings, suites
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
from babelmill.core import code_digest, code_versions, manifest


@dataclass(frozen=True)
class Stage:
    """A stage of the workflow.

    Attributes:
        name: the name of the stage, its rule, its rules file and its module.
        of: whether its settings belong to a language or to a model.
        settings: the type of its settings; it says which sections of the configuration the stage reads.
        folder: the path of its results, with {language}, {model} or both. A stage with {language} has one job per
            language, and one with {input} or {suite} has one job per part.
        reads: the stages whose results it reads.
        adds: returns the content of its settings in addition to its sections.
        applies: returns whether a language or model has this stage at all.
        parts: returns the names of the parts; each part has its own job and settings file. A stage without parts has
            one settings file.
        adds_to_part: returns the additional content of a part's settings.
        also: modules that it runs in another process or ships, without importing them.
        gives_folder: whether its rule declares the folder of its results as its output, and not the files in it.
        undeclared: files of its manifest that are no output of its rule, since a released rule never gains outputs.
    """

    name: str
    of: Literal["language", "model"]
    settings: type[stage_settings.Settings]
    folder: str
    reads: tuple[str, ...]
    adds: Callable[[Configuration, str], dict[str, Any]] = add_nothing
    applies: Callable[[Configuration, str], bool] = always
    parts: Callable[[Configuration, str], list[str]] = whole
    adds_to_part: Callable[[Configuration, str, str], dict[str, Any]] = add_no_part
    also: tuple[str, ...] = ()
    gives_folder: bool = False
    undeclared: tuple[str, ...] = ()

    @property
    def by_language(self) -> bool:
        """Return whether the stage has a job for each language."""
        return "{language}" in self.folder

    def path(self, name: str, part: str) -> Path:
        """Return the folder of its results; `part`: the language, input or suite, for a stage with one job for each."""
        return self._fill_in(Path(self.folder), name, part)

    def _fill_in(self, template: Path, name: str, part: str) -> Path:
        language = name if "{suite}" in self.folder else part
        return Path(str(template).format(model=name, language=language, input=part, suite=part))

    def record(self, name: str, part: str) -> Path:
        """Return the file that says what its results were made from: their manifest, or the single file that it is."""
        path = self.path(name, part)
        return path if path.suffix == ".json" else path / manifest.NAME

    def benchmark(self, name: str, part: str) -> Path:
        """Return the file in which Snakemake notes the time and the memory of the job."""
        wildcards = [word for word in Path(self.folder).with_suffix("").parts if "{" in word]
        template = Path("results/benchmarks", self.name, *wildcards).with_suffix(".tsv")
        return self._fill_in(template, name, part)

    def jobs(self, configuration: Configuration, model: str) -> list[tuple[str, str]]:
        """Return the jobs that a model needs, each as (language or model that its settings belong to, part)."""
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
        """Return the name of its settings file, without .json."""
        return self.name if self.parts is whole else f"{self.name}.{part}"

    def modules(self, labelled: bool = False) -> dict[str, str]:
        """Return {module: digest} of the stage's code; `labelled`: of a model of labels (see `code_digest.py`)."""
        return code_digest.modules(self.name, self.also, labelled)

    def digest(self, labelled: bool = False) -> str:
        """Return the digest of the stage's code; `labelled`: for a model of labels."""
        return code_digest.digest(self.name, self.also, labelled)

    @property
    def digests(self) -> list[str]:
        """Return all digests of the stage's code: one, or two if it runs other code for models of labels."""
        return list(dict.fromkeys([self.digest(), self.digest(labelled=True)]))

    @property
    def version(self) -> code_versions.Version | None:
        """Return the newest version of the stage's code."""
        return code_versions.newest(self.name)


TABLE = (
    Stage(
        name="download",
        of="language",
        settings=stage_settings.DownloadSettings,
        folder="results/downloads/{language}",
        reads=(),
        gives_folder=True,
        adds=add_download,
        applies=from_the_hub,
    ),
    Stage(
        name="suite",
        of="language",
        settings=stage_settings.SuiteSettings,
        folder="results/suites/{suite}/{language}",
        reads=(),
        applies=has_suites,
        parts=suites.suites_of_language,
        adds_to_part=suites.pairs_of_suite,
    ),
    Stage(
        name="base_model",
        of="model",
        settings=stage_settings.BaseModelSettings,
        folder="results/base_models/{model}",
        reads=(),
        gives_folder=True,
        adds=add_base_model,
        applies=inputs.has_base_model,
    ),
    Stage(
        name="corpus",
        of="language",
        settings=stage_settings.CorpusSettings,
        folder="results/corpora/{language}",
        reads=("download",),
        adds=add_corpus,
    ),
    Stage(
        name="tokenizer",
        of="model",
        settings=stage_settings.TokenizerSettings,
        folder="results/tokenizers/{model}",
        reads=("corpus", "base_model"),
        adds=add_tokenizer,
    ),
    Stage(
        name="shards",
        of="model",
        settings=stage_settings.ShardsSettings,
        folder="results/shards/{model}/{language}",
        reads=("tokenizer", "corpus"),
        adds=how_codes_are_read,
    ),
    Stage(
        name="train",
        of="model",
        settings=stage_settings.TrainSettings,
        folder="results/models/{model}",
        reads=("tokenizer", "shards", "base_model"),
        adds=add_train,
    ),
    Stage(
        name="export",
        of="model",
        settings=stage_settings.ExportSettings,
        folder="results/exports/{model}",
        reads=("train", "tokenizer", "shards"),
        gives_folder=True,
        also=(
            "labels.folder",
            "release.folder.prove",
            "model.transformers.modeling_gpt_bert",
            "model.transformers.modeling_gpt_bert_codes",
        ),
    ),
    Stage(
        name="evaluate",
        of="model",
        settings=stage_settings.EvaluateSettings,
        folder="results/evaluations/{model}",
        reads=("export", "corpus", "shards"),
        undeclared=("documents.parquet",),
        adds=add_evaluate,
    ),
    Stage(
        name="score",
        of="model",
        settings=stage_settings.ScoreSettings,
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
        settings=stage_settings.ConvertSettings,
        folder="converted/{model}",
        reads=("export", "evaluate", "score", "corpus", "tokenizer", "train"),
        gives_folder=True,
        adds=add_convert,
    ),
    Stage(
        name="predict",
        of="model",
        settings=stage_settings.PredictSettings,
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
        settings=stage_settings.PublishSettings,
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


# The stages that make the deliverable: `why`, `status` and the summary after a run show these.
TO_CONVERTED = leading_to("convert")
