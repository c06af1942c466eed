"""What all rules share: the checked configuration, the graph of results, and functions for inputs and resources.

A rule takes a settings file and what it is made from. A finished result asks for nothing but its settings, so neither
times nor deleted intermediate results can start it again (see `babelmill/graph.py`).
"""

import contextlib
import functools
import gc
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from snakemake.settings.types import DeploymentMethod, RerunTrigger
from snakemake.utils import min_version

# A large group creates millions of objects and keeps them all: garbage collection would take a tenth of a dry run.
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
    text = Path(workflow.source_path("../babelmill/__init__.py")).read_text()
    [(line, version)] = re.findall('(__version__ = "(.+)")', text)
    origin = getattr(find_spec("babelmill"), "origin", None)
    if origin is None or line not in Path(origin).read_text():
        name = folder.get_path_or_uri(secret_free=True)
        sys.exit(f"error: {name} needs babelmill {version} in the environment of Snakemake: install its wheel there")
    return str(Path(origin).resolve().parents[1])


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
    folder = Path(f".snakemake/babelmill_alone{PACKAGE}").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (folder / "babelmill").symlink_to(Path(PACKAGE, "babelmill"))
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

from babelmill.config import loading
from babelmill.config.layers import nearest
from babelmill.config.resolve import Configuration
from babelmill.core import escape, manifest
from babelmill.core.files import UserError, read_json, trouble
from babelmill.core.stage_entry import accept_all_letters
from babelmill.graph import Graph
from babelmill.hub.credentials import hub_token
from babelmill.reporting.asked import EXPERIMENT, REPORT, asked_of, asked_of_experiment
from babelmill.stages import SETTINGS, STAGES, deliverable, run_settings_of

# Snakemake's own log file names the folder of the workflow, whatever the locale.
accept_all_letters(*(getattr(handler, "stream", None) for handler in logger.handlers))


def one_line(function):
    """Make a function end with the one line of a UserError. Snakemake would add the rule and a traceback to it."""

    @functools.wraps(function)  # Snakemake looks at the names of its arguments
    def wrapped(*wildcards, **more):
        try:
            return function(*wildcards, **more)
        except Exception as error:
            if not (problem := trouble(error)):
                raise
            sys.exit(escape.lines(f"error: {problem}"))

    return wrapped


@one_line
def load_configuration():
    """Return the configuration: config/config.yaml, --configfile, --config, in this order, or a module's config."""
    manifest.refuse_earlier_results()
    if IS_MODULE:
        configuration = Configuration([("the module's config", dict(config))])
    else:
        command_line = workflow.config_settings
        try:
            overrides = loading.parse_overrides(command_line.config_args or ())  # Snakemake's parser makes 10 of 010
            configuration = loading.load(command_line.configfiles or (), overrides)
        except UserError:
            if workflow.is_main_process:
                raise
            configuration = Configuration([])  # edited since: a job of a cluster reads nothing but its settings
    rules = {*STAGES, "all", "report", "experiment", *(f"publish_{name}" for name in ["all", *configuration.groups])}
    if taken := rules & configuration.groups.keys():
        where = configuration.origin_of_name(min(taken))
        raise UserError(f"{where}: {min(taken)}: a rule has this name; choose another name")
    return configuration


@functools.cache
def of_other_runs():
    """Return the results of Snakemakes that run in this folder now. The lock keeps this one from making them."""
    return {line for file in Path(".snakemake/locks").glob("*.output.lock") for line in file.read_text().splitlines()}


def leave_alone(path):
    """Return whether another run may read the settings of a result now: then this one must not change them."""
    of_result = {str(path), str(path / manifest.NAME)}
    return workflow.dryrun or (workflow.execution_settings.lock and not of_other_runs().isdisjoint(of_result))


CONFIG = load_configuration()
GRAPH = Graph(CONFIG, leave_alone)


@functools.cache
def asked_for():
    """Return the models of this run's targets."""
    targets = [Path(target).as_posix() for target in workflow.dag_settings.targets] or ["all"]
    form = re.compile(r"(?:\w+/|publish_)?([\w+]+)([./].+)?")  # such as predictions/eng/table.json
    words = [found[1] for found in map(form.fullmatch, targets) if found]
    names = [name for word in words for name in word.split("+")]
    return CONFIG.models_of([name for name in names if name in {"all", *CONFIG.groups} or CONFIG.is_model(name)])


@functools.cache
def write_settings(stage, model):
    """Write the settings files of what a model needs for a stage whose results carry its name, such as `convert`."""
    GRAPH.write_settings(model)
    for part in STAGES[stage].parts(CONFIG.model(model)):
        GRAPH.write(GRAPH.result(stage, model, part))


@functools.cache
def write_settings_of_targets(stage):
    """Write the settings files of all targets before Snakemake looks for the first one.

    Snakemake lists a folder once, and does not see a file that appears in it later. Only the main process writes: a job
    of a cluster reads the Snakefile again, perhaps after the configuration was edited, but must use the settings with
    which it was submitted.
    """
    for model in asked_for():
        with contextlib.suppress(UserError):  # what is wrong with a model is said when its turn comes
            write_settings(stage, model)


@functools.cache
def ask_for_existence_alone():
    """Let Snakemake compare neither checksums nor what it has recorded: a result whose manifest is there is whole."""
    workflow.dag.max_checksum_file_size = -1
    workflow.dag.ignore_incomplete = True
    if not IS_MODULE:
        workflow.dag_settings.rerun_triggers = frozenset([RerunTrigger.MTIME])
    elif RerunTrigger.INPUT in workflow.dag_settings.rerun_triggers:
        raise UserError("--rerun-triggers: mtime is expected: a finished result has fewer inputs than one to make")


@functools.cache
def is_made_anew(result):
    """Return whether the user forces a result that is there, or one that it is made from: -R, or targets with --force."""
    asked = workflow.dag_settings
    forced = [*asked.forcerun, *(asked.targets if asked.forcetargets else ())]
    names = {result.stage.stage, str(result.path), str(result.record)}
    return asked.forceall or not names.isdisjoint(map(str, forced)) or any(map(is_made_anew, result.upstream))


def inputs_of(result):
    """Return the inputs of the job that makes a result: its settings, and what it is made from unless it stays."""
    ask_for_existence_alone()
    found = {"settings": ancient(str(result.settings_file)), "made_from": []}
    if result.stage.stage == "train":
        found["run"] = ancient(str(run_settings_of(result.settings_file)))
    is_there = result.is_there
    if not is_there or is_made_anew(result):
        found["made_from"] = [str(each.path if each.stage.named else each.record) for each in result.upstream]
    if result.stage.named and not is_there and workflow.is_main_process:
        workflow.dag.forcefiles.add(str(result.path))
    return found


def inputs(stage):
    """Return an input function: the inputs of a stage whose results carry their key."""

    @one_line
    def of(wildcards):
        return inputs_of(GRAPH.find(stage, wildcards.result))

    return of


def named_inputs(stage):
    """Return an input function: the inputs of a stage whose results carry the name of a model."""

    @one_line
    def of(wildcards):
        model, part = wildcards.model, getattr(wildcards, "input", "")
        STAGES[stage].refuse(CONFIG, CONFIG.model(model), part)
        if not workflow.is_main_process:
            return inputs_of(GRAPH.find(stage, ".".join(filter(None, (model, part)))))
        if stage == "publish":
            hub_token()  # without one, end with an error now, not after the training
        write_settings_of_targets(stage)
        write_settings(stage, model)
        if not IS_MODULE:
            say_what_is_left_out()
        result = GRAPH.result(stage, model, part)
        if stage == "convert" and result.path.exists() and (lost := manifest.missing(result.path)):
            raise UserError(f"{lost}; delete the folder {result.path}, then it is made again")
        return inputs_of(result)

    return of


def deliverables(group, published=False):
    """Return an input function: what a group is made for, or what the publishing of its trained models leaves."""

    @one_line
    def of(wildcards):
        models = CONFIG.models_of([group])
        if published:
            return [f"published/{model}.json" for model in models if CONFIG.is_trained(model)]
        return [deliverable(CONFIG, model).named.format(model=model) for model in models]

    return of


@one_line
def meant(wildcards):
    """End with an error for a word that is not a target, and suggest the target that was meant."""
    word = wildcards.word
    if word.startswith(("published/", "submissions/", "baselines/")):
        raise UserError(f"there is no target {word}; did you mean {word}.json?")
    if CONFIG.is_model(name := word.rpartition("/")[2]):
        named = deliverable(CONFIG, name).named.format(model=name)
        raise UserError(f"there is no target {word}; did you mean {named}?")
    raise UserError(f"there is no target {word}{nearest(word, {'all', *CONFIG.groups, *CONFIG.known_models()})}")


def of_models(stage, about):
    """Return an input function: the inputs of a report or an experiment, which is written whenever it is asked for."""

    @functools.cache
    def settings_of(name):
        """Write the settings file, in the main process, and return its path."""
        path, output = SETTINGS / stage.stage / f"{name}.json", stage.path_of(name)
        if workflow.is_main_process:
            GRAPH.write_file(path, about(GRAPH, name), output)
            workflow.dag.forcefiles.add(str(output))
        return str(path)

    @one_line
    def of(wildcards):
        (name,) = wildcards
        for target in map(Path, workflow.dag_settings.targets):  # see `write_settings_of_targets`
            if stage.path_of(target.stem) == target:
                settings_of(target.stem)
        models = [str(GRAPH.final(model).path) for model in CONFIG.models_of(name.split("+"))]
        return {"settings": ancient(settings_of(name)), "models": models}

    return of


wildcard_constraints:
    result="[^/]+",
    model="[^/]+",
    group="[^/]+",
    experiment="[^/]+",
