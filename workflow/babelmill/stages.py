"""Define the stages: what each is asked to do, what it reads and writes, and which languages and models have it.

Everything that needs to know the stages uses `STAGES`: the settings files, the rules, `babelmill why`, `status` and
`clean`, and the tests. To add a stage, add a class here, a rules file of the same name in `workflow/rules/`, and a
module of the same name beside this one (see CONTRIBUTING.md).
"""

import re
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from babelmill.config import identifiers, inputs, schema, stage_settings, submissions, suites, tasks
from babelmill.config.canonical import at_neutral
from babelmill.config.objectives import OBJECTIVES
from babelmill.config.resolve import Configuration, Resolved, ResolvedModel
from babelmill.core import manifest
from babelmill.core.files import UserError, not_found, sha256

DOWNLOADS = Path("results/downloads")
# Where a key cannot matter, settings files hold its smallest value, so that a change of it runs nothing.
SMALLEST_TOKENIZER = schema.Tokenizer(source=None, revision="", vocab_size=16 + 256, min_frequency=1)
OF_SUITES = ("suites", "pairs", "masked_pairs", "snapshots", "snapshot_suites")  # of `score` alone
OF_TASKS = ("tasks", "task_seeds", "keep_tuned")  # of `tune` alone
SUITE_TABLES = ("pairs.parquet", "items.parquet")  # the kind of a suite says which of them it has
TABLE_OF_TASK = ("predicted.parquet",)  # tasks with `resplit` have it
SMALLEST_ROWS = {"sequence_length": schema.MASKS}


class Named(Protocol):
    """A job: its stage, the language or model that its settings belong to, and its part (see `Stage`)."""

    stage: "Stage"
    name: str
    part: str


class Stage:
    """A stage of the workflow. Each has a class that says what follows, and overrides what is different for it.

    A stage has one job for each language or model, or several: one for each of its parts. A part is what the wildcards
    of its folder stand for besides the language or model: "eng" for `shards` of the model `two`, "blimp" for its
    `score`, "mnli.1" if there are two such wildcards, and "" if there are none.
    """

    name: str  # the name of the stage, its rule, its rules file and its module
    version: int = 1  # raise it when the results of the stage change: it runs again, and what follows from it
    of: Literal["language", "model"] = "model"  # whether its settings belong to a language or to a model
    settings: type[stage_settings.Settings]  # the type of its settings
    # The path of its results, with {language}, {model} or both. If it has another wildcard, such as {suite}, each part
    # has a settings file of its own.
    folder: str
    reads: tuple[str, ...] = ()  # the stages whose results it reads
    # Whether its rule declares the folder of its results as its output, and not the files in it.
    gives_folder: bool = False
    # Whether its rule also declares the folder that has the name of its .json file as its output.
    folder_beside: bool = False
    # Files of its manifest that are no output of its rule: not every result has them.
    undeclared: tuple[str, ...] = ()

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.Settings:
        """Return what it is asked to do for a language or model: its settings file holds the fields given here.

        A UserError says what is wrong in the configuration or its files.
        """
        raise NotImplementedError

    def parts(self, configuration: Configuration, name: str) -> list[str]:
        """Return the parts with a settings file of their own; [""] for one file, [] if there is nothing to do."""
        return [""]

    def refuse(self, configuration: Configuration, name: str, part: str) -> None:
        """Raise a UserError if a language or model does not have the job that somebody asks for."""
        known = self.parts(configuration, name)
        if not known or (self._of_parts and part not in known):
            raise UserError(self.no_job(name, part, known))

    def no_job(self, name: str, part: str, known: list[str]) -> str:
        """Return why a language or model does not have a job, and what to do; `known`: the parts that it has."""
        return f"{name} has no {self.name} {part}".rstrip()

    def reads_job(self, configuration: Configuration, job: Named, other: Named) -> bool:
        """Return whether a job of this stage reads the results of another job.

        It reads those of the same language or suite, and those of the whole model.
        """
        return other.stage.name in self.reads and (not job.part or other.part in ("", job.part))

    def written(self, configuration: Configuration, name: str, part: str) -> dict[str, Any]:
        """Return the content of the settings file."""
        return self.asked(configuration, name, part).written()

    def whose(self, resolved: Resolved) -> dict[str, Any]:
        """Return the fields of its settings that say whose they are, and its version."""
        whose = {"stage": self.name, "name": resolved.name, "languages": list(resolved.languages)}
        return whose | {"version": self.version}

    def resolved(self, configuration: Configuration, name: str) -> Resolved:
        """Return the configuration of a language or model."""
        return configuration.corpus(name) if self.of == "language" else configuration.model(name)

    def applies(self, configuration: Configuration, name: str) -> bool:
        """Return whether a language or model has this stage at all."""
        return bool(self.parts(configuration, name))

    def jobs(self, configuration: Configuration, model: str) -> list[tuple[str, str]]:
        """Return the jobs that a model needs, each as (language or model that its settings belong to, part)."""
        languages = configuration.languages_of(model)
        if self.of == "language":
            return [(code, part or code) for code in languages for part in self.parts(configuration, code)]
        each = languages if "language" in self.wildcards else [""]
        return [(model, part or code) for part in self.parts(configuration, model) for code in each]

    # Paths. `part` is ignored where all parts have the same.

    @cached_property
    def wildcards(self) -> list[str]:
        """Return the wildcards of its folder, in order."""
        return re.findall(r"{(\w+)}", self.folder)

    @cached_property
    def _of_parts(self) -> list[str]:
        """Return the wildcards whose values have a settings file each."""
        return [each for each in self.wildcards if each not in ("language", "model")]

    def part_of(self, wildcards: Any) -> str:
        """Return the part that the wildcards of a rule stand for, if it has a settings file of its own; else ""."""
        return ".".join(getattr(wildcards, each) for each in self._of_parts)

    def path_of(self, wildcards: dict[str, str]) -> Path:
        """Return the folder of the results of a rule's job, from its wildcards."""
        return Path(self.folder.format(**wildcards))

    def path(self, name: str, part: str) -> Path:
        """Return the folder of its results, or the file that is its only result."""
        return self._fill_in(self.folder, name, part)

    def _fill_in(self, template: str, name: str, part: str) -> Path:
        others = [each for each in self.wildcards if each != self.of]
        return Path(template.format(**{self.of: name}, **dict(zip(others, part.split("."), strict=False))))

    def record(self, name: str, part: str) -> Path:
        """Return the file that says what its results were made from: their manifest, or the single file that it is."""
        path = self.path(name, part)
        return path if path.suffix == ".json" else path / manifest.NAME

    def benchmark(self, name: str, part: str) -> Path:
        """Return the file in which Snakemake notes the time and the memory of the job."""
        wildcards = "/".join(f"{{{each}}}" for each in self.wildcards)
        return self._fill_in(f"results/benchmarks/{self.name}/{wildcards}.tsv", name, part)

    def settings_name(self, part: str) -> str:
        """Return the name of its settings file, without .json."""
        return f"{self.name}.{part}" if self._of_parts else self.name

    def settings_file(self, name: str, part: str) -> Path:
        return inputs.SETTINGS / name / f"{self.settings_name(part)}.json"


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not empty: settings files leave the others out."""
    return {key: value for key, value in fields.items() if value}


class DownloadStage(Stage):
    """Fetch the text of a language from the Hub."""

    name = "download"
    of = "language"
    settings = stage_settings.DownloadSettings
    folder = "results/downloads/{language}"
    gives_folder = True

    def parts(self, configuration: Configuration, name: str) -> list[str]:
        """Return one part if the text comes from the Hub."""
        return [""] if inputs.hub_datasets(configuration, name) else []

    def no_job(self, name: str, part: str, known: list[str]) -> str:
        return (
            f"the text of {name} does not come from the Hub: there is nothing to download;"
            f" its corpus is results/corpora/{name}/manifest.json"
        )

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.DownloadSettings:
        """Name the datasets and, with a budget, the keys that decide when it is used up."""
        resolved = configuration.corpus(name)
        inputs.check_budget(configuration, name)
        corpus, found = resolved.corpus, inputs.hub_datasets(configuration, name)
        if corpus.budget:
            how = {"counted": inputs.counted(corpus), "byte_premium": configuration.table[name].byte_premium}
        else:
            usual = {"text_column": "text", "prompt_column": None, "label_columns": [], "context_column": None}
            usual |= {"delimiter": ",", "encoding": "utf-8", "format": None, "quoting": "format"}
            values = {key: getattr(corpus, key) for key in usual}
            how = given(columns={key: value for key, value in values.items() if value != usual[key]})
        how |= {"source": found[0]} if isinstance(corpus.hub, str) else {"parts": found}
        return stage_settings.DownloadSettings(**self.whose(resolved), **how)


class IdentifierStage(Stage):
    """Fetch the model that finds the languages of a corpus from the Hub."""

    name = "identifier"
    of = "language"
    settings = stage_settings.IdentifierSettings
    folder = "results/identifiers/{language}"
    gives_folder = True

    def parts(self, configuration: Configuration, name: str) -> list[str]:
        """Return one part if the corpus has a language filter whose model is on the Hub."""
        return [""] if identifiers.on_the_hub(configuration, name) else []

    def no_job(self, name: str, part: str, known: list[str]) -> str:
        models = " or ".join(identifiers.HUB)
        return f"corpus.language_filter of {name} names no model of the Hub ({models}): nothing to fetch"

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.IdentifierSettings:
        whose = self.whose(configuration.corpus(name))
        return stage_settings.IdentifierSettings(**whose, source=identifiers.on_the_hub(configuration, name) or {})


class SuiteStage(Stage):
    """Read the pairs of a suite in a language."""

    name = "suite"
    of = "language"
    settings = stage_settings.SuiteSettings
    folder = "results/suites/{suite}/{language}"
    undeclared = SUITE_TABLES

    def parts(self, configuration: Configuration, name: str) -> list[str]:
        """Return the suites that cover a language and that its corpus, or the score of some model of it, needs."""
        return suites.suites_of_language(configuration, name)

    def jobs(self, configuration: Configuration, model: str) -> list[tuple[str, str]]:
        """Return the jobs of the suites that this model is scored on, or that its corpora need."""
        scored, jobs = suites.suites_of_model(configuration, model), super().jobs(configuration, model)
        return [job for job in jobs if job[1] in scored or job[1] in suites.suites_of_corpus(configuration, job[0])]

    def no_job(self, name: str, part: str, known: list[str]) -> str:
        return (
            f"no model of {name} is scored on {part}; add it to evaluation.suites, or to corpus.decontaminate, if"
            f" it covers {name}"
        )

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.SuiteSettings:
        resolved = configuration.corpus(name)
        return stage_settings.SuiteSettings(**self.whose(resolved), **suites.pairs_of_suite(configuration, name, part))


class TaskStage(Stage):
    """Read the rows of a task in a language."""

    name = "task"
    of = "language"
    settings = stage_settings.TaskSettings
    folder = "results/tasks/{task}/{language}"
    undeclared = TABLE_OF_TASK

    def parts(self, configuration: Configuration, name: str) -> list[str]:
        """Return the tasks that cover a language and that some model of it is tuned for."""
        return tasks.tasks_of_language(configuration, name)

    def jobs(self, configuration: Configuration, model: str) -> list[tuple[str, str]]:
        """Return the jobs of the tasks that this model is tuned for."""
        tuned = tasks.tasks_of_model(configuration, model)
        return [(code, task) for code, task in super().jobs(configuration, model) if task in tuned]

    def no_job(self, name: str, part: str, known: list[str]) -> str:
        return f"no model of {name} is tuned for {part}; add it to evaluation.tasks if it covers {name}"

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.TaskSettings:
        resolved = configuration.corpus(name)
        return stage_settings.TaskSettings(**self.whose(resolved), **tasks.rows_of_task(configuration, name, part))


class BaseModelStage(Stage):
    """Fetch the model that another one continues, if this workflow did not make it."""

    name = "base_model"
    settings = stage_settings.BaseModelSettings
    folder = "results/base_models/{model}"
    gives_folder = True

    def parts(self, configuration: Configuration, name: str) -> list[str]:
        """Return one part for a model that continues a folder or repository."""
        return [""] if inputs.has_base_model(configuration, name) else []

    def no_job(self, name: str, part: str, known: list[str]) -> str:
        return f"model {name} continues no folder or repository (model.source): nothing to fetch"

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.BaseModelSettings:
        about = inputs.base_model(configuration, name)
        return stage_settings.BaseModelSettings(**self.whose(configuration.model(name)), **about)


class CorpusStage(Stage):
    """Make documents of a language's text."""

    name = "corpus"
    of = "language"
    settings = stage_settings.CorpusSettings
    folder = "results/corpora/{language}"
    reads = ("download", "identifier", "suite")

    def reads_job(self, configuration: Configuration, job: Named, other: Named) -> bool:
        """Return whether it reads another job: that of a suite only if `corpus.decontaminate` names the suite."""
        if other.stage.name != "suite":
            return super().reads_job(configuration, job, other)
        return other.name == job.name and other.part in suites.suites_of_corpus(configuration, job.name)

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.CorpusSettings:
        """Describe the local text. Without a download, the dataset's name is left out: changing it reruns nothing."""
        resolved = configuration.corpus(name)
        inputs.check_budget(configuration, name)
        corpus = resolved.corpus
        corpus = corpus.model_copy(update={"decontaminate": suites.suites_of_corpus(configuration, name)})
        byte_premium = configuration.table[name].byte_premium if corpus.budget else None
        if not inputs.hub_datasets(configuration, name):
            corpus = corpus.model_copy(update={"hub": None, "revision": ""})
        return stage_settings.CorpusSettings(
            **self.whose(resolved),
            corpus=corpus,
            sources=inputs.corpus_sources(configuration, name),
            **given(byte_premium=byte_premium, identification=identifiers.identification(configuration, name)),
        )


class TokenizerStage(Stage):
    """Train or adopt the tokenizer of a model."""

    name = "tokenizer"
    settings = stage_settings.TokenizerSettings
    folder = "results/tokenizers/{model}"
    reads = ("corpus", "base_model")

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.TokenizerSettings:
        """Say how to train a tokenizer, or which one is adopted: then no key about training matters."""
        resolved = configuration.model(name)
        of_source = inputs.has_tokenizer_of_source(configuration, name)
        positions = inputs.characters(configuration, name)
        if of_source or positions:
            return stage_settings.TokenizerSettings(
                **self.whose(resolved),
                tokenizer=SMALLEST_TOKENIZER,
                source=None,
                sources={},
                **given(of_model=of_source and resolved.model.source, characters=not of_source and positions),
            )
        about, tokenizer = inputs.tokenizer_source(configuration, name), resolved.tokenizer
        return stage_settings.TokenizerSettings(
            **self.whose(resolved),
            tokenizer=tokenizer if about["source"] else tokenizer.model_copy(update={"revision": ""}),
            **about,
            **({} if tokenizer.source else mixture_of(resolved)),
        )


class ShardsStage(Stage):
    """Turn the corpora of a model into tokens."""

    name = "shards"
    settings = stage_settings.ShardsSettings
    folder = "results/shards/{model}/{language}"
    reads = ("tokenizer", "corpus")

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.ShardsSettings:
        """Say how labels are read: for other models, only the tokenizer and the corpus matter."""
        resolved = configuration.model(name)
        return stage_settings.ShardsSettings(**self.whose(resolved), **how_codes_are_read(resolved))


class TrainStage(Stage):
    """Train a model."""

    name = "train"
    settings = stage_settings.TrainSettings
    folder = "results/models/{model}"
    reads = ("tokenizer", "shards", "base_model")

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.TrainSettings:
        """Name the weights that training begins with; for a model of this workflow, the default ones of its export."""
        resolved = configuration.model(name)
        source, begin_with = resolved.source, None
        if source:
            ours = source.kind == "model" and configuration.model(source.name).export.default_variant == "ema"
            begin_with = "ema.safetensors" if ours else "model.safetensors"
        return stage_settings.TrainSettings(
            **self.whose(resolved),
            model=at_neutral(resolved.model, "revision"),
            train=resolved.train,
            **({"labels": resolved.labels} if learns_labels(resolved) else {}),
            **mixture_of(resolved),
            **given(begin_with=begin_with, shape=source and source.beside),
            **given(bytes_per_word=resolved.train.words and inputs.bytes_per_word(configuration, name)),
        )


class ExportStage(Stage):
    """Write the Hugging Face folder, and prove that it computes the same."""

    name = "export"
    settings = stage_settings.ExportSettings
    folder = "results/exports/{model}"
    reads = ("train", "tokenizer", "shards")
    gives_folder = True

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.ExportSettings:
        resolved = configuration.model(name)
        return stage_settings.ExportSettings(**self.whose(resolved), export=resolved.export)


class EvaluateStage(Stage):
    """Measure the exported model on the validation text."""

    name = "evaluate"
    settings = stage_settings.EvaluateSettings
    folder = "results/evaluations/{model}"
    reads = ("export", "corpus", "shards")
    undeclared = ("documents.parquet",)

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.EvaluateSettings:
        """Say which metrics to compute, whether the tokenizer may lose text, and how codes are read."""
        resolved = configuration.model(name)
        evaluation = at_neutral(resolved.evaluation, *OF_SUITES, *OF_TASKS, "backend")  # of other stages
        if learns_labels(resolved):  # the whole validation text is predicted, unchanged
            evaluation = at_neutral(evaluation, "diffusion_samples", "documents")
            evaluation = evaluation.model_copy(update=SMALLEST_ROWS)
        return stage_settings.EvaluateSettings(
            **self.whose(resolved),
            evaluation=evaluation,
            scores=list(OBJECTIVES[resolved.train.objective].scores),
            **given(lossy=inputs.has_tokenizer_of_source(configuration, name)),
            **how_codes_are_read(resolved),
        )


class ScoreStage(Stage):
    """Score the exported model on a suite."""

    name = "score"
    settings = stage_settings.ScoreSettings
    folder = "results/scores/{model}/{suite}"
    reads = ("export", "suite")
    undeclared = (*SUITE_TABLES, "overlap.json")  # suites of words have none

    def parts(self, configuration: Configuration, name: str) -> list[str]:
        return suites.suites_of_model(configuration, name)

    def no_job(self, name: str, part: str, known: list[str]) -> str:
        return (
            f"model {name} is not scored on {part}: evaluation.suites has no suite of this name that"
            f" covers its languages (it is scored on: {', '.join(known) or 'none'})"
        )

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.ScoreSettings:
        """Say how sentences are scored, and which of the model's languages the suite covers."""
        resolved = configuration.model(name)
        evaluation, methods = resolved.evaluation, OBJECTIVES[resolved.train.objective].sentences
        suite = configuration.suite(part)
        how: dict[str, Any] = given(snapshots=evaluation.snapshots or part in evaluation.snapshot_suites)
        if evaluation.pairs != "all":
            how["pairs"] = evaluation.pairs
        if "masked" in methods:
            how["masked_pairs"] = evaluation.masked_pairs
        return stage_settings.ScoreSettings(
            **self.whose(resolved),
            suite=part,
            covered=suites.languages_of_suite(configuration, name, part),
            headline=suite.headline,
            methods=list(methods),
            **suites.how_scored(suite),
            **how,
        )


class TuneStage(Stage):
    """Fine-tune the exported model for a task, with one seed."""

    name = "tune"
    settings = stage_settings.TuneSettings
    folder = "results/tuned/{model}/{task}/{seed}"
    undeclared = TABLE_OF_TASK
    reads = ("export", "task")

    def parts(self, configuration: Configuration, name: str) -> list[str]:
        """Return each task that a model is tuned for with each of its seeds, such as "rte.42"."""
        return [
            f"{task}.{seed}"
            for task in tasks.tasks_of_model(configuration, name)
            for seed in tasks.seeds_of_task(configuration, name, task)
        ]

    def no_job(self, name: str, part: str, known: list[str]) -> str:
        return (
            f"model {name} is not tuned for {part.replace('.', ', seed ')}: evaluation.tasks has no task of this"
            " name that covers its languages, or evaluation.task_seeds has another seed (it is tuned for:"
            f" {', '.join(each.replace('.', '/') for each in known) or 'none'})"
        )

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.TuneSettings:
        """Say how the model is tuned, and which of its languages the task covers."""
        task, _, seed = part.rpartition(".")
        resolved = configuration.model(name)
        return stage_settings.TuneSettings(
            **self.whose(resolved),
            **tasks.how_tuned(configuration, task),
            covered=tasks.languages_of_task(configuration, name, task),
            seed=int(seed),
            **given(keep=resolved.evaluation.keep_tuned),
        )


class ConvertStage(Stage):
    """Add the model card to the exported folder."""

    name = "convert"
    settings = stage_settings.ConvertSettings
    folder = "converted/{model}"
    reads = ("export", "evaluate", "score", "tune", "corpus", "tokenizer", "train")
    gives_folder = True

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.ConvertSettings:
        """Give what the card says: names, tags and scripts of languages, titles and baselines of suites."""
        resolved = configuration.model(name)
        rows = {code: configuration.table[code] for code in resolved.languages}
        scored = {suite: configuration.suite(suite) for suite in suites.suites_of_model(configuration, name)}
        about = {
            suite: {"title": entry.title or suite, "baselines": suites.baselines_of(configuration, entry, rows)}
            for suite, entry in scored.items()
        }
        tuned = tasks.tasks_of_model(configuration, name)
        return stage_settings.ConvertSettings(
            **self.whose(resolved),
            card=resolved.card,
            language_table={c: {"name": row.name, "tag": row.tag, "script": row.script} for c, row in rows.items()},
            **given(suites=about, tasks={task: about_task(configuration, task) for task in tuned}),
        )


class PredictStage(Stage):
    """Predict the codes of a table's rows."""

    name = "predict"
    settings = stage_settings.PredictSettings
    folder = "predictions/{model}/{input}.json"
    reads = ("convert",)

    def parts(self, configuration: Configuration, name: str) -> list[str]:
        resolved = configuration.model(name)
        return list(resolved.predict.inputs) if learns_labels(resolved) else []

    # Not as other stages do: `prediction_table` refuses a table that is not in `predict.inputs`, and names those there.
    def refuse(self, configuration: Configuration, name: str, part: str) -> None:
        if not learns_labels(configuration.model(name)):
            raise UserError(f"model {name} learns no labels (train.objective): there are no codes to predict")

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.PredictSettings:
        """Say which table is predicted. How it is read stands beside its file, so other tables do not matter."""
        resolved = configuration.model(name)
        of_tables = ("inputs", "text_column", "context_column", "context", "delimiter", "encoding", "quoting")
        return stage_settings.PredictSettings(
            **self.whose(resolved),
            predict=at_neutral(resolved.predict, *of_tables),
            input=part,
            table=inputs.prediction_table(configuration, name, part),
        )


class SubmissionStage(Stage):
    """Make what a challenge takes of a model's scores, and check it."""

    name = "submission"
    settings = stage_settings.SubmissionSettings
    folder = "submissions/{model}.json"
    folder_beside = True
    reads = ("train", "score", "tune", "convert")

    def parts(self, configuration: Configuration, name: str) -> list[str]:
        """Return one part for a model that has scores for its challenge."""
        return [""] if submissions.backend_of(configuration, name) else []

    # Not as other stages do: the error says what the model lacks for its challenge.
    def refuse(self, configuration: Configuration, name: str, part: str) -> None:
        submissions.refuse_submission(configuration, name)

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.SubmissionSettings:
        """Say what the challenge takes, and which of it the model has."""
        about = submissions.submission_of(configuration, name)
        return stage_settings.SubmissionSettings(**self.whose(configuration.model(name)), **about)


class PublishStage(Stage):
    """Publish the converted model on the Hub."""

    name = "publish"
    settings = stage_settings.PublishSettings
    folder = "published/{model}.json"
    reads = ("convert", "submission")

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.PublishSettings:
        """Name the repository on the Hub."""
        resolved = configuration.model(name)
        repository = inputs.repository(configuration, name)
        return stage_settings.PublishSettings(**self.whose(resolved), publish=resolved.publish, repository=repository)


# What several stages are asked.


def learns_labels(resolved: Resolved) -> bool:
    """Return whether these settings are of a model that learns labels."""
    return isinstance(resolved, ResolvedModel) and resolved.train.objective == "labels"


def about_task(configuration: Configuration, name: str) -> dict[str, Any]:
    """Return how a task and its protocol are called, and its baselines."""
    task, tuning = configuration.task(name), configuration.tuning(name)
    baselines = [line.model_dump() for line in task.baselines]
    about = {"title": task.title or name, "protocol": tuning.title, "baselines": baselines}
    return about | ({"kind": task.kind} if task.kind == "tagging" else {})


def mixture_of(resolved: ResolvedModel) -> dict[str, Any]:
    """Return the section `mixture` of a model of several languages; one language has nothing to weigh."""
    return {"mixture": resolved.mixture} if len(resolved.languages) > 1 else {}


def how_codes_are_read(resolved: ResolvedModel) -> dict[str, Any]:
    """Return the settings for reading codes, without those for learning them; nothing for a model without labels."""
    if not learns_labels(resolved):
        return {}
    path = resolved.labels.codes
    if path and not Path(path).is_file():
        raise UserError(f"labels.codes = {path}: {not_found(path)}")
    labels = at_neutral(resolved.labels, "blocks_weight", "decoder_layers", "class_weights")
    return {"labels": labels, "labelled": True} | ({"code_list": sha256(path)} if path else {})


# All classes above, in the order in which they run.
STAGES: dict[str, Stage] = {stage.name: stage() for stage in Stage.__subclasses__()}


def leading_to(name: str) -> dict[str, Stage]:
    """Return a stage and all stages that it depends on, in the order in which they run."""
    found = {name}
    for stage in reversed(STAGES.values()):
        if stage.name in found:
            found.update(stage.reads)
    return {each: stage for each, stage in STAGES.items() if each in found}


# The stages that make the deliverable: `why`, `status` and the summary after a run show these.
TO_CONVERTED = leading_to("convert")
