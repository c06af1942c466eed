"""What all rules share: the checked configuration, and the functions that turn wildcards into inputs and resources.

These functions resolve the wildcards, so they also refuse models and languages that do not exist.
"""

import argparse
import gc
import os
import re
import sys
import time
from pathlib import Path
from shlex import quote
from types import SimpleNamespace

from snakemake.cli import get_profile_dir
from snakemake.settings.types import DeploymentMethod, RerunTrigger
from snakemake.utils import min_version

# A large batch creates millions of objects and keeps them all: garbage collection would take a tenth of a dry run.
gc.set_threshold(100_000, 50, 50)
min_version("9.27")


def package_of_rules():
    """Return the folder that has the package of these rules.

    It is around them, in a clone as in a wheel. Rules that Snakemake has fetched (`snakefile: github(...)`) have nothing
    around them: they use the package that is installed beside Snakemake.
    """
    folder = workflow.current_basedir
    if isinstance(folder, os.PathLike):
        rules = Path(folder).resolve()
        return str(next(folder for folder in rules.parents if (folder / "babelmill/__init__.py").is_file()))
    (version,) = re.findall('__version__ = "(.+)"', Path(workflow.source_path("../babelmill/__init__.py")).read_text())
    name = folder.get_path_or_uri(secret_free=True)
    try:
        import babelmill
    except ModuleNotFoundError:
        sys.exit(
            f"error: {name} needs the package babelmill {version} in the environment of Snakemake: install its wheel there"
        )
    if babelmill.__version__ != version:
        sys.exit(
            f"error: {name} is of Babelmill {version}, but the package in the environment of Snakemake is"
            f" {babelmill.__version__}: install {version}, or name that release in the Snakefile"
        )
    return str(Path(babelmill.__file__).resolve().parents[1])


PACKAGE = package_of_rules()
# Another workflow may use the rules of this one: `module babelmill: ... config: ...` (docs/training.md).
IS_MODULE = not workflow.modifier.is_main_snakefile()
if set("{}").intersection(PACKAGE):
    sys.exit(f"error: {PACKAGE}: Snakemake takes braces in the path of a workflow for wildcards; rename the folder")
if PACKAGE not in sys.path:
    sys.path.insert(0, PACKAGE)


def in_shell(path):
    """Quote a path for the shell, with doubled braces: Snakemake formats the text."""
    return quote(str(path)).replace("{", "{{").replace("}", "}}")


def package_alone():
    """Return a folder that has the package and nothing else, as an installed package is among the libraries of its Python.

    A conda environment has these libraries, too, perhaps for another Python.
    """
    if not Path(PACKAGE, "babelmill/project").is_dir():  # a clone
        return PACKAGE
    folder, package = Path(".snakemake/babelmill_alone").absolute(), Path(PACKAGE, "babelmill")
    if not (folder / "babelmill").exists() or not (folder / "babelmill").samefile(package):
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / f"link.{os.uname().nodename}.{os.getpid()}"
        link.symlink_to(package)
        link.replace(folder / "babelmill")
    return str(folder)


# Jobs use the Python that runs Snakemake; with `--sdm conda`, that of the environment which Snakemake has activated.
WITH_CONDA = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
PYTHON = "" if WITH_CONDA else f"PATH={in_shell(Path(sys.executable).parent)}:$PATH "
IMPORTED = in_shell(package_alone() if WITH_CONDA else PACKAGE)
# On a shared CPU, threads that spin while they wait for each other make training 2.5 times slower.
# In any locale, names of files are UTF-8. (Braces are doubled because Snakemake formats the prefix.)
# Nothing is imported from the working folder or the user's PYTHONPATH. (Another workflow's rules may need both.)
SAFE = ":${{PYTHONPATH-}}" if IS_MODULE else " PYTHONSAFEPATH=1"
shell.prefix(f"export {PYTHON}PYTHONPATH={IMPORTED}{SAFE} GOMP_SPINCOUNT=${{{{GOMP_SPINCOUNT-2000}}}} PYTHONUTF8=1; ")
if not IS_MODULE:
    os.environ.update(PYTHONSAFEPATH="1")  # for Snakemake itself in a job of a cluster

from babelmill.config import identifiers, loading, suites
from babelmill.config.inputs import SETTINGS, has_tokenizer_of_source, prediction_table
from babelmill.config.job_sizes import input_bytes, parameters_of, text_bytes
from babelmill.config.resolve import Configuration
from babelmill.experiments import asked as experiments
from babelmill.file_times import FileTimes
from babelmill.hub.credentials import hub_token
from babelmill.reporting import asked as reports
from babelmill.settings import training_asked
from babelmill.stages import STAGES, TO_CONVERTED, leading_to
from babelmill.tokens.limits import TRAINING_BYTES
from babelmill.core import escape, manifest
from babelmill.core.files import UserError, not_found
from babelmill.core.stage_entry import accept_all_letters
from babelmill.core.trouble import trouble
from babelmill.core.yaml_file import read_yaml
from babelmill.config.layers import nearest

# Snakemake's own log file names the folder of the workflow, whatever the locale.
accept_all_letters(*(getattr(handler, "stream", None) for handler in logger.handlers))


def one_line(function):
    """Make a function end with the one line of a UserError. Snakemake would add the rule and a traceback to it."""

    def wrapped(*wildcards):
        try:
            return function(*wildcards)
        except UserError as error:
            sys.exit(escape.lines(f"error: {error}"))
        except Exception as error:
            if not (problem := trouble(error)):
                raise
            sys.exit(escape.lines(f"error: {problem}"))

    return wrapped


def check_profiles():
    """Refuse numbers and words in the `config:` of a profile that Snakemake reads otherwise: it makes 8 of 010."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--profile", action="append")
    given = parser.parse_known_args()[0].profile or [os.environ.get("SNAKEMAKE_PROFILE", "none")]
    for found in map(get_profile_dir, given):
        if found is not None:
            read_yaml(found[1], is_profile=True)


@one_line
def load_configuration():
    """Return the configuration: config/config.yaml, --configfile, --config, in this order, or a module's config."""
    manifest.refuse_earlier_results()
    if IS_MODULE:
        configuration = Configuration([("the module's config", dict(config))])
    else:
        if workflow.is_main_process:
            check_profiles()
        command_line = workflow.config_settings
        overrides = loading.parse_overrides(command_line.config_args or ())  # Snakemake's parser makes 10 of 010
        configuration = loading.load(command_line.configfiles or (), overrides)
    rules = {*STAGES, "all", "report", "experiment", "publish_all"}
    rules |= {f"publish_{name}" for name in configuration.batches}
    for group in ("batches", "experiments"):
        if taken := getattr(configuration.top, group).keys() & rules:
            raise UserError(
                f"{configuration.origin(group)}: {group}.{min(taken)}: a rule has this name; choose another name"
            )
    return configuration


CONFIG = load_configuration()
FILE_TIMES = FileTimes(CONFIG)


def decide_by_file_times():
    """Have Snakemake decide by file times alone, as our profiles do, also without a profile.

    Its checksums would call a settings file unchanged that has to count as new, for instance if results of other
    settings were put back. Its other reasons to run a job (the text of a rule, say) are not ours; in another workflow
    that uses our rules as a module, they belong to that workflow.
    """
    workflow.dag.max_checksum_file_size = -1
    if not IS_MODULE:
        workflow.dag_settings.rerun_triggers = frozenset([RerunTrigger.MTIME])


def settings(name):
    """Return an input function that returns the settings file of a stage, for the rule's language or model."""
    stage = STAGES[name]

    @one_line
    def of(wildcards):
        if stage.of == "language":
            CONFIG.language(wildcards.language)  # it raises an error for an unknown one
        return settings_file(stage, getattr(wildcards, stage.of), stage.part_of(wildcards))

    return of


def settings_file(stage, name, part):
    """Write all settings files of a language or model, and return the one of a job.

    This also sets the times of files so that Snakemake runs what is outdated (`babelmill/file_times.py`). Only the main
    process writes. A cluster job reads the Snakefile again, perhaps after the configuration was edited, but must use
    the settings with which it was submitted.
    """
    stage.refuse(CONFIG, name, part)
    if workflow.is_main_process:
        decide_by_file_times()
        FILE_TIMES.obey(stage, name)
    return str(stage.settings_file(name, part))


FIRST_TRAINED = {}  # {what a training of this run is asked to do: the first model of this run that asks it}


@one_line
def trained_before(wildcards):
    """Return the training of another model of this run that is trained alike: this one takes its result.

    What both are made from decides (`runtime/store.py`); this is only about the order. A model whose result is there
    waits for nobody: Snakemake would make it again if the other one is not there.
    """
    model, stage = wildcards.model, STAGES["train"]
    if not workflow.is_main_process:
        return []
    FILE_TIMES.write_settings(model)
    first = FIRST_TRAINED.setdefault((training_asked(model), tuple(CONFIG.ancestors(model))), model)
    if first == model or stage.record(model, "").is_file():
        return []
    return [ancient(str(stage.record(first, "")))]


@one_line
def run_settings(wildcards):
    """Return the run settings of a model, as an input whose changes do not make the job run again."""
    if workflow.is_main_process:
        FILE_TIMES.write_settings(wildcards.model)
    return ancient(str(SETTINGS / wildcards.model / "run.json"))


def settings_of_stages(model, stages):
    """Return the settings files of those stages that belong to models, and of the model's corpora."""
    of_models = [stage for stage in stages.values() if stage.of == "model"]
    jobs = [(stage, job) for stage in [*of_models, STAGES["corpus"]] for job in stage.jobs(CONFIG, model)]
    return [settings_file(stage, *job) for stage, job in jobs]


@one_line
def made_with(wildcards):
    """Return the settings files of all stages before `convert`, as inputs of `convert`.

    They make sure that an outdated converted model is made again after one of these stages has failed. The failed stage
    leaves no results, which alone is no reason for Snakemake; its changed settings are one.
    """
    folder = Path("converted", wildcards.model)
    if workflow.is_main_process and not IS_MODULE:
        say_what_is_left_out()
    if workflow.is_main_process and (folder / "manifest.json").is_file() and (lost := manifest.missing(folder)):
        raise UserError(f"{lost}; delete the folder {folder}, then it is made again")
    before = {name: stage for name, stage in TO_CONVERTED.items() if name != "convert"}
    found = settings_of_stages(wildcards.model, before)
    for model in CONFIG.ancestors(wildcards.model):
        found += settings_of_stages(model, leading_to("train"))
    return list(dict.fromkeys(found))  # the languages of a mixture share files


def results_of(name, *files):
    """Return an input function: these files of a stage, from all of its jobs that the wildcard's model needs.

    If the rule has a suite or a task, too, then only from the jobs of this one. Without `files`, its folders.
    """
    stage = STAGES[name]

    @one_line
    def of(wildcards):
        part = getattr(wildcards, "suite", getattr(wildcards, "task", None))
        jobs = stage.jobs(CONFIG, wildcards.model)
        folders = [stage.path(*job) for job in jobs if part in (None, job[1])]
        return [str(folder / file) for folder in folders for file in files or [""]]

    return of


def results_of_language(name):
    """Return an input function: the results of a stage for the wildcard's language, if it has this stage."""
    stage = STAGES[name]

    @one_line
    def of(wildcards):
        return [str(stage.path(wildcards.language, part)) for part in stage.parts(CONFIG, wildcards.language)]

    return of


@one_line
def suites_of_corpus(wildcards):
    """Return the suites whose items no document of a language may hold (`corpus.decontaminate`)."""
    code, stage = wildcards.language, STAGES["suite"]
    return [str(stage.record(code, suite)) for suite in suites.suites_of_corpus(CONFIG, code)]


@one_line
def corpus_of_language(wildcards):
    """Return the corpus files of a language; end with an error if the model does not have the language."""
    known = CONFIG.languages_of(wildcards.model)
    if wildcards.language not in known:
        raise UserError(f"model {wildcards.model} has no language {wildcards.language!r}; it has {', '.join(known)}")
    folder = f"results/corpora/{wildcards.language}"
    return [f"{folder}/{file}" for file in ("manifest.json", "train.parquet", "validation.parquet")]


@one_line
def source_weights(wildcards):
    """Return the weights with which training begins, if the model continues another one."""
    source = CONFIG.model(wildcards.model).source
    if source is None or source.kind != "model":
        return [str(source.weights)] if source else []
    return [
        f"{source.weights}/{name}" for name in ("manifest.json", "config.json", "model.safetensors", "ema.safetensors")
    ]


@one_line
def frozen_weights(wildcards):
    """Return the weights of the model that this one continues, if it trains adapters or heads on frozen weights."""
    train = CONFIG.model(wildcards.model).train
    return source_weights(wildcards) if train.lora_rank or train.freeze != "none" else []


@one_line
def source_tokenizer(wildcards):
    """Return the tokenizer of the model that this one continues, if both use the same."""
    source = CONFIG.model(wildcards.model).source
    if source is None or not has_tokenizer_of_source(CONFIG, wildcards.model):
        return []
    files = ("manifest.json", "tokenizer.json")
    return [f"{source.tokenizer}/{name}" for name in files] if source.kind == "model" else [str(source.tokenizer)]


@one_line
def table_to_predict(wildcards):
    """Return the table of an input. Its content is in the settings, so a new modification time repeats nothing."""
    path = prediction_table(CONFIG, wildcards.model, wildcards.input)["file"]
    where = f"predict.inputs.{wildcards.input} of model {wildcards.model}: {path}"
    if not Path(path).is_file():
        raise UserError(f"{where}: {not_found(path)}")
    if workflow.is_main_process and Path(path).stat().st_mtime > time.time() + 60:  # a file server's clock may differ
        raise UserError(f"{where}: its file time is younger than the clock; run: touch {quote(path)}")
    return ancient(path)


@one_line
def converted_to_publish(wildcards):
    """Return the deliverable of a model. Without a token for the Hub, end with an error now, not after the training."""
    hub_token()
    return f"converted/{wildcards.model}"


@one_line
def submission_to_publish(wildcards):
    """Return the summary of a model's submission, and its files; nothing for a model of no challenge."""
    stage = STAGES["submission"]
    return [str(stage.path(wildcards.model, "")) for _ in stage.parts(CONFIG, wildcards.model)]


@one_line
def meant(wildcards):
    """End with an error for a word that is not a target, and suggest the target that was meant."""
    word = wildcards.word
    if word.startswith("published/"):
        raise UserError(f"there is no target {word}; did you mean {word}.json?")
    if CONFIG.is_model(word):
        raise UserError(f"there is no target {word}; did you mean converted/{word}?")
    if word == "experiments" and CONFIG.cells:
        raise UserError(
            f"there is no target {word}; name one: {', '.join(f'experiments/{name}' for name in CONFIG.cells)}"
        )
    raise UserError(f"there is no target {word}{nearest(word, {'all', *CONFIG.batches, *CONFIG.known_models()})}")


def gpus(wildcards):
    """Return the number of GPUs of a training job: from the model's preset, or set by the user."""
    return CONFIG.model(wildcards.model).resources.gpus


def one_gpu(wildcards):
    """Return 1 if the model is trained on GPUs, else 0."""
    return min(1, gpus(wildcards))


@one_line
def billions(wildcards):
    """Return the number of parameters in billions; 0 if it is not known yet or cannot be known from the configuration."""
    return (parameters_of(CONFIG, wildcards.model) or 0) / 1e9


def memory(least, each):
    """Return a resource in MB: `least` GB, and `each` GB per billion parameters; times the attempt, 3 at most."""

    def of(wildcards, attempt):
        small, more = (amount(wildcards) if callable(amount) else amount for amount in (least, each))
        return 1000 * round(small + more * billions(wildcards)) * min(attempt, 3)

    return of


def minutes(least, each):
    """Return a resource in minutes: `least`, and `each` per billion parameters; more with each attempt."""

    def of(wildcards, attempt):
        return round(least + each * billions(wildcards)) * attempt

    return of


@one_line
def gb_of_input(wildcards):
    """Return the GB of text from which a language's corpus is made."""
    return input_bytes(CONFIG, CONFIG.language(wildcards.language).code) / 1e9


@one_line
def gb_of_corpus(wildcards):
    """Return the GB of a language's corpus."""
    return text_bytes(CONFIG, CONFIG.language(wildcards.language).code) / 1e9


@one_line
def gb_of_tokenizer(wildcards):
    """Return the GB of text on which a model's tokenizer is trained."""
    text = sum(text_bytes(CONFIG, code) for code in CONFIG.languages_of(wildcards.model))
    return min(TRAINING_BYTES, text) / 1e9


def by_text(least, each, size):
    """Return a resource: `least`, and `each` per GB of text (`size`); more with each attempt."""

    def of(wildcards, attempt):
        return round(least + each * size(wildcards)) * attempt

    return of


def processes_of_corpus(wildcards):
    """Return the number of threads of `corpus`: one for a small text, as others would start too late to help."""
    return min(8, 1 + int(gb_of_input(wildcards) / 0.128))


def memory_of_corpus(wildcards, attempt):
    """Return the MB of memory of `corpus`. Each process loads the model that finds languages, and the test items."""
    each = identifiers.megabytes(CONFIG, wildcards.language) + (200 if suites_of_corpus(wildcards) else 0)
    models = (1 + processes_of_corpus(wildcards)) * each
    return by_text(4000 + models, 120, gb_of_input)(wildcards, attempt)


def gb_of_processes(wildcards):
    """Return the GB of host memory for a machine's training processes (8 GPUs at most) and their compilation."""
    return 26 + 6 * max(1, min(gpus(wildcards), 8))


def gb_of_training(wildcards):
    """Return the GB of host memory per billion parameters: on a CPU all of the training, else what the start needs."""
    train = CONFIG.model(wildcards.model).train
    if gpus(wildcards):
        return 5
    return 6 if train.lora_rank else 24


def attempt_number(wildcards, attempt):
    """Return 1, then 2, 3, ... when a profile's `retries` repeat a job."""
    return attempt


@one_line
def settings_of_report(wildcards):
    """Return the settings file of a report, the only settings file of a batch."""
    if workflow.is_main_process:
        return str(reports.write_settings(CONFIG, wildcards.batch))
    return f"results/reports/{wildcards.batch}/settings.json"


@one_line
def settings_of_experiment(wildcards):
    """Return the settings file of an experiment."""
    if workflow.is_main_process:
        return str(experiments.write_settings(CONFIG, wildcards.experiment))
    return f"results/experiments/{wildcards.experiment}/settings.json"


def of_batch(of_model, wildcard="batch"):
    """Return an input function: what the input function `of_model` returns, of each model of the wildcard's batch."""

    @one_line
    def of(wildcards):
        models = CONFIG.models_of(getattr(wildcards, wildcard).split("+"))
        return [file for model in models for file in of_model(SimpleNamespace(model=model))]

    return of


def of_experiment(of_model):
    """Return an input function: what the input function `of_model` returns, of each cell of the wildcard's experiment."""
    return of_batch(of_model, "experiment")


wildcard_constraints:
    **{name: "[^/]+" for stage in STAGES.values() for name in stage.wildcards},
    experiment="[^/]+",
