"""What all rules share: the checked configuration, and the functions that turn wildcards into inputs and resources.

These functions are where a wildcard is resolved, so they are where a model or language that does not exist is refused.
"""

import gc
import sys
from pathlib import Path
from shlex import quote
from types import SimpleNamespace

from snakemake.utils import min_version

# A large batch makes millions of objects that all stay: looking for garbage among them costs a tenth of a dry run.
gc.set_threshold(100_000, 50, 50)
min_version("9.27")

# The package of this checkout, and the interpreter that runs Snakemake, are what every job uses, on any machine.
PACKAGE = str(Path(workflow.basedir, "workflow"))
if PACKAGE not in sys.path:
    sys.path.insert(0, PACKAGE)
# On a CPU that is shared, threads that spin while they wait for each other make training 2.5 times slower.
# (Snakemake formats a prefix, hence the doubled braces.)
shell.prefix(
    f"export PATH={quote(str(Path(sys.executable).parent))}:$PATH PYTHONPATH={quote(PACKAGE)}:${{{{PYTHONPATH-}}}}"
    " GOMP_SPINCOUNT=${{GOMP_SPINCOUNT-2000}}; "
)

from babelmill.config import loading
from babelmill.config.input_size import input_bytes, text_bytes
from babelmill.config.inputs import SETTINGS, has_tokenizer_of_source, hub_datasets
from babelmill.config.parameter_count import parameters_of
from babelmill.config.prediction_tables import prediction_table
from babelmill.config.suites import languages_of_suite, suites_of_language, suites_of_model
from babelmill.hub.credentials import hub_token
from babelmill.reporting import asked as reports
from babelmill.settings import write_settings
from babelmill.stages import STAGES, TO_CONVERTED, leading_to
from babelmill.core import manifest
from babelmill.core.files import UserError, trouble
from babelmill.config.layers import nearest


def one_line(function):
    """End with the one line of the package's UserError; Snakemake would wrap any exception in rule and traceback."""

    def wrapped(*wildcards):
        try:
            return function(*wildcards)
        except UserError as error:
            sys.exit(f"error: {error}")
        except OSError as error:
            if not (problem := trouble(error)):
                raise
            sys.exit(f"error: {problem}")

    return wrapped


@one_line
def load_configuration():
    """The user's layers in Snakemake's own order: config/config.yaml, --configfile, --config."""
    command_line = workflow.config_settings
    configuration = loading.load(command_line.configfiles or (), dict(command_line.config or {}))
    rules = {*STAGES, "all", "report", "publish_all", *(f"publish_{name}" for name in configuration.batches)}
    if taken := configuration.top.batches.keys() & rules:
        raise UserError(
            f"{configuration.origin('batches')}: batches.{min(taken)}: a rule has this name, choose another"
        )
    return configuration


CONFIG = load_configuration()
WRITTEN = set()


def settings(stage):
    """An input function: the settings file of a stage, after all files of the wildcard's name have been written.

    Only the main process writes. A cluster job reads the Snakefile again, perhaps after the configuration was edited,
    and must do what it was submitted for.
    """

    @one_line
    def of(wildcards):
        if stage in STAGES and STAGES[stage].of == "language":
            name = CONFIG.language(wildcards.language).code
            if stage == "suite" and wildcards.suite not in suites_of_language(CONFIG, name):
                raise UserError(
                    f"no model of {name} is scored on {wildcards.suite}; name it in evaluation.suites, if it covers {name}"
                )
            if not STAGES[stage].applies(CONFIG, name):
                raise UserError(
                    f"the text of {name} does not come from the Hub: there is nothing to {stage};"
                    f" its corpus is results/corpora/{name}/manifest.json"
                )
        else:
            name = wildcards.model
            if stage == "score" and wildcards.suite not in suites_of_model(CONFIG, name):
                known = ", ".join(suites_of_model(CONFIG, name)) or "none"
                raise UserError(
                    f"model {name} is not scored on {wildcards.suite}: evaluation.suites has no suite of this name that"
                    f" covers its languages (it is scored on: {known})"
                )
            if stage == "predict" and not STAGES[stage].applies(CONFIG, name):
                raise UserError(f"model {name} learns no labels (train.objective): there are no codes to predict")
            if stage in STAGES and not STAGES[stage].applies(CONFIG, name):
                raise UserError(f"model {name} goes on from no model of elsewhere (model.source): nothing to fetch")
        if name not in WRITTEN and workflow.is_main_process:
            write_settings(CONFIG, name)
            WRITTEN.add(name)
        part = getattr(wildcards, "input", None) or getattr(wildcards, "suite", "")
        return str(SETTINGS / name / f"{STAGES[stage].settings_name(part) if stage in STAGES else stage}.json")

    return of


def run_settings(wildcards):
    """The run settings of a model, as an input whose changes repeat nothing."""
    return ancient(settings("run")(wildcards))


def settings_of_stages(model, names):
    """The settings files of those stages of a model that it has, and of its corpora."""
    stages = [name for name, stage in STAGES.items() if name in names and stage.of == "model" and name != "score"]
    found = [settings(name)(SimpleNamespace(model=model)) for name in stages if STAGES[name].applies(CONFIG, model)]
    if "score" in names:
        suites = suites_of_model(CONFIG, model)
        found += [settings("score")(SimpleNamespace(model=model, suite=suite)) for suite in suites]
    return found + [settings("corpus")(SimpleNamespace(language=code)) for code in CONFIG.languages_of(model)]


@one_line
def made_with(wildcards):
    """The settings files of all stages before `convert`, for its own input.

    A stage that fails leaves no results. For Snakemake that is no reason to make an older converted model again: only
    the change of settings that made the stage run is one.
    """
    folder = Path("converted", wildcards.model)
    if workflow.is_main_process and (folder / "manifest.json").is_file() and (lost := manifest.missing(folder)):
        raise UserError(f"{lost}; delete the folder {folder}, and it is made again")
    found = settings_of_stages(wildcards.model, TO_CONVERTED.keys() - {"convert"})
    for model in CONFIG.ancestors(wildcards.model):
        found += settings_of_stages(model, leading_to("train"))
    return list(dict.fromkeys(found))


def languages(pattern):
    """An input function: `pattern` for each language of the wildcard's model."""

    @one_line
    def of(wildcards):
        model = wildcards.model
        return [pattern.format(model=model, language=language) for language in CONFIG.languages_of(model)]

    return of


@one_line
def download_of_language(wildcards):
    """The downloaded dataset of a language, if its text comes from the Hub."""
    code = CONFIG.language(wildcards.language).code
    return f"results/downloads/{code}" if hub_datasets(CONFIG, code) else []


@one_line
def corpus_of_language(wildcards):
    """The corpus of a language, if the model has it."""
    known = CONFIG.languages_of(wildcards.model)
    if wildcards.language not in known:
        raise UserError(f"model {wildcards.model} has no language {wildcards.language!r}; it has {', '.join(known)}")
    folder = f"results/corpora/{wildcards.language}"
    return [f"{folder}/{file}" for file in ("manifest.json", "train.parquet", "validation.parquet")]


@one_line
def source_weights(wildcards):
    """What training begins with: the weights of the model that this one goes on from, if it does."""
    source = CONFIG.model(wildcards.model).source
    if source is None or source.kind != "model":
        return [str(source.weights)] if source else []
    return [
        f"{source.weights}/{name}" for name in ("manifest.json", "config.json", "model.safetensors", "ema.safetensors")
    ]


@one_line
def frozen_weights(wildcards):
    """What adapters were trained on: the weights of the model that this one goes on from, if it has adapters."""
    train = CONFIG.model(wildcards.model).train
    return source_weights(wildcards) if train.lora_rank or train.freeze != "none" else []


@one_line
def source_tokenizer(wildcards):
    """The tokenizer of the model that this one goes on from, if it has that one's."""
    source = CONFIG.model(wildcards.model).source
    if source is None or not has_tokenizer_of_source(CONFIG, wildcards.model):
        return []
    files = ("manifest.json", "tokenizer.json")
    return [f"{source.tokenizer}/{name}" for name in files] if source.kind == "model" else [str(source.tokenizer)]


@one_line
def table_to_predict(wildcards):
    """The table of an input, whose content is in its settings: a copy with another time repeats nothing."""
    path = prediction_table(CONFIG, wildcards.model, wildcards.input)["file"]
    if not Path(path).is_file():
        raise UserError(f"predict.inputs.{wildcards.input} of model {wildcards.model}: {path}: no such file")
    return ancient(path)


@one_line
def pairs_of_suite(wildcards):
    """The pairs of a suite, for each language of the model that it covers."""
    known = languages_of_suite(CONFIG, wildcards.model, wildcards.suite)
    return [f"results/suites/{wildcards.suite}/{language}/manifest.json" for language in known]


def scores_of_model(*names):
    """An input function: files of the scores of a model on each suite that it is scored on."""

    @one_line
    def of(wildcards):
        suites = suites_of_model(CONFIG, wildcards.model)
        return [f"results/scores/{wildcards.model}/{suite}/{name}" for suite in suites for name in names]

    return of


@one_line
def converted_to_publish(wildcards):
    """The deliverable of a model, if it can be published: what is lacking is said now, not after the training."""
    hub_token()
    return f"converted/{wildcards.model}"


@one_line
def meant(wildcards):
    """No input: the error for a word that is no target, with the one that was meant."""
    word = wildcards.word
    if word.startswith("published/"):
        raise UserError(f"there is no target {word}; did you mean {word}.json?")
    if CONFIG.is_model(word):
        raise UserError(f"there is no target {word}; did you mean converted/{word}?")
    raise UserError(f"there is no target {word}{nearest(word, {'all', *CONFIG.batches, *CONFIG.known_models()})}")


def gpus(wildcards):
    """GPUs of a training job: a function of the model's preset, or what the user said."""
    return CONFIG.model(wildcards.model).resources.gpus


def one_gpu(wildcards):
    """One GPU, if the model is trained on any."""
    return min(1, gpus(wildcards))


@one_line
def billions(wildcards):
    """Billions of parameters of the model; 0 where they are not known yet, or not to be told from its configuration."""
    return (parameters_of(CONFIG, wildcards.model) or 0) / 1e9


def memory(least, each):
    """A resource: GB of memory for small models, and GB for each billion parameters; in MB, more for each attempt."""

    def of(wildcards, attempt):
        more = each(wildcards) if callable(each) else each
        return 1000 * round(least + more * billions(wildcards)) * min(attempt, 3)

    return of


def minutes(least, each):
    """A resource: minutes for small models, and minutes for each billion parameters; more for each attempt."""

    def of(wildcards, attempt):
        return round(least + each * billions(wildcards)) * attempt

    return of


@one_line
def gb_of_input(wildcards):
    """GB of the text that a language's corpus is made of."""
    return input_bytes(CONFIG, CONFIG.language(wildcards.language).code) / 1e9


@one_line
def gb_of_corpus(wildcards):
    """GB of a language's corpus."""
    return text_bytes(CONFIG, CONFIG.language(wildcards.language).code) / 1e9


def by_text(least, each, size):
    """A resource: so much at least, and so much for each GB of text; more for each attempt."""

    def of(wildcards, attempt):
        return round(least + each * size(wildcards)) * attempt

    return of


def processes_of_corpus(wildcards):
    """Threads of a corpus: small text is read before others have started."""
    return min(8, 1 + int(gb_of_input(wildcards) / 0.128))


def gb_of_training(wildcards):
    """GB of the host for each billion parameters: on a CPU all that training keeps is there, else what begins a run."""
    train = CONFIG.model(wildcards.model).train
    if gpus(wildcards):
        return 5
    return 6 if train.lora_rank else 24


def attempt_number(wildcards, attempt):
    """1, then 2, 3, ... when a profile's `retries` repeat a job."""
    return attempt


def converted(models):
    """The deliverables of a list of models."""
    return [f"converted/{model}" for model in models]


def published(models):
    """The receipts of a list of models."""
    return expand("published/{model}.json", model=models)


@one_line
def settings_of_report(wildcards):
    """The settings file of a report: a batch is no model, and has no others."""
    if workflow.is_main_process:
        return str(reports.write_settings(CONFIG, wildcards.batch))
    return str(reports.settings_path(wildcards.batch))


def of_batch(models_files):
    """An input function: files of each model of the wildcard's batch."""

    @one_line
    def of(wildcards):
        models = CONFIG.models_of(wildcards.batch.split("+"))
        return [file for model in models for file in models_files(SimpleNamespace(model=model))]

    return of


wildcard_constraints:
    input="[^/]+",
    language="[^/]+",
    model="[^/]+",
    suite="[^/]+",
