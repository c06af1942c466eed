"""Check the layers of the configuration, and resolve them for each model and each language.

A later layer overrides an earlier one: `config/defaults.yaml` < presets < the user's files and command line <
`models.<name>` with what it is `like` (of a corpus: `languages.<code>`). `schema.py` holds types and bounds.
"""

import dataclasses
import functools
import glob
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from babelmill.config import experiments, schema
from babelmill.config.entries import UNTRAINED, Dataset, Experiment, ModelEntry, Preset, Suite, Task, Tuning, User
from babelmill.config.languages import Language, nearest_or_new, read_table, tag_of
from babelmill.config.layers import (
    DEFAULTS,
    PRESETS,
    PROTOCOLS,
    SUITES,
    TASKS,
    Layer,
    config_file,
    config_names,
    last,
    merge,
    nearest,
    shown,
    validated,
)
from babelmill.config.models import OBJECTIVES, SHAPE, wrong
from babelmill.config.schema import MAX_LENGTH, MODEL_SECTIONS, OURS, SECTIONS
from babelmill.core.escape import some
from babelmill.core.files import UserError
from babelmill.core.places import ROOT
from babelmill.core.yaml_file import read_yaml

NAMED = ("models", "languages", "groups", "suites", "tasks", "experiments")  # keys whose entries have names
SOUND = "_sound"  # at the end of a task's name: by the protocol `sound`
AUTO = "auto"  # the preset that the language's tier chooses
REPOSITORY = re.compile(r"\w[\w.-]*/[\w.-]+", re.ASCII)
RESULTS = re.compile(r"(converted|results/\w+)/(\w+)/?")
D = TypeVar("D", bound=Dataset)


def check_known(name: str, known: Iterable[str], message: str) -> None:
    """Raise a UserError, which begins with `message`, unless a name is known."""
    if name not in (known := {*known}):
        raise UserError(message + nearest(name, known))


def is_folder(source: str) -> bool:
    """Return whether `model.source`, if it is no model of the configuration, is a folder, not a repository."""
    return source.startswith(("./", "../", "/")) or Path(source).is_dir()


@dataclasses.dataclass(frozen=True)
class Resolved:
    """The settings of a model or a language. `origins`: the layer that each value came from, as `section.key`."""

    name: str
    languages: tuple[str, ...]
    origins: dict[str, str]

    @property
    def sections(self) -> dict[str, schema.Section]:
        """Return the sections, by name."""
        return {name: getattr(self, name) for name in SECTIONS if hasattr(self, name)}

    def refused(self, key: str, allowed: str) -> UserError:
        """Return the error of the value of `section.key`, with the layer that it comes from, and what is allowed."""
        section, _, name = key.partition(".")
        value = getattr(self.sections[section], name)
        whose = f"model {self.name}" if "model" in self.sections else self.name
        return UserError(f"{self.origins[key]}: {key} = {shown(value)} of {whose}: {allowed}")


@dataclasses.dataclass(frozen=True)
class ResolvedCorpus(Resolved):
    """The settings of the corpus of a language."""

    corpus: schema.Corpus
    language: Language
    suites: list[str]  # those of `corpus.decontaminate` that have items in the language, sorted


@dataclasses.dataclass(frozen=True)
class ResolvedModel(schema.ModelSections, Resolved):
    """The settings of a model."""

    trained: bool  # False for a model of another project, which is only measured (`train: none`)
    preset: str  # its presets, with + between them
    rows: dict[str, Language]  # its languages, by code
    continued: "ResolvedModel | None"  # the model that it continues (`model.source`), if it is one of this workflow
    # Keys of `SHAPE` that stand beside `model.source`. For a folder or a repository, only the stage `base_model` can
    # check them.
    beside: dict[str, Any]
    # The suites that score it or its snapshots, and the tasks that it is fine-tuned for: each with those of its
    # languages that are covered, at least one.
    scored: dict[str, list[str]]
    tuned: dict[str, list[str]]
    seeds: dict[str, list[int]]  # of each of these tasks
    submission: str | None  # the file of `config/submissions/` that says what its challenge takes

    @property
    def learns_labels(self) -> bool:
        return self.train.objective == "labels"

    @property
    def has_tokenizer_of_source(self) -> bool:
        """Return whether it uses the tokenizer of the model that it continues."""
        return self.model.source is not None and not self.tokenizer.source

    def chain(self) -> list["ResolvedModel"]:
        """Return the model, the one that it continues, and so on: those of this workflow."""
        return [self, *(self.continued.chain() if self.continued else [])]


class Configuration:
    """All layers, checked. Resolving a name is cheap and cached, since Snakemake does it once per job.

    A mistake in a model, a suite or a task is an error for those who ask for it alone.
    """

    def __init__(self, sources: list[tuple[str, dict[str, Any]]], root: Path = ROOT):
        """Read and check all layers.

        `sources` are the user's files and command line as (label, values); a later one overrides an earlier one.
        """
        self.root, self.defaults = root, read_yaml(root / DEFAULTS)
        self.layers = [Layer(self.defaults, DEFAULTS), *(Layer(values, label) for label, values in sources)]
        merged = functools.reduce(merge, (layer.values for layer in self.layers))
        self.top = validated(User, merged, self.layers)
        self.table = self._language_table()
        ordinary = [row for code, row in self.table.items() if code not in self.defaults["languages"]]
        self.groups = {f"tier{tier}": [row.code for row in ordinary if row.tier == tier] for tier in (1, 2, 3)}
        self.groups |= self.top.groups
        self.cells: dict[str, list[experiments.Cell]] = {}  # by experiment
        self._cells: dict[str, experiments.Cell] = {}  # by model
        for name, experiment in self.top.experiments.items():
            self._add_cells(name, experiment)
        for name, members in [*self.groups.items(), ("targets", self.top.targets)]:
            for member in members:
                if not self.is_model(member) and not (name == "targets" and member in self.groups):
                    where = self.origin(name if name == "targets" else f"groups.{name}")
                    hint = nearest_or_new(member, self.known_models())
                    raise UserError(f"{where}: {name} names {member!r}, which is not a model{hint}")

    def _add_cells(self, name: str, experiment: Experiment) -> None:
        """Add the cells of an experiment to `models:`, and a group with the experiment's name."""
        where = f"{self.origin(f'experiments.{name}')}: experiments.{name}"
        bases = [each for base in experiment.bases for each in self.groups.get(base, [base])]
        for base in bases:
            known = self.known_models() | set(self.groups)
            check_known(base, known, f"{where}.base = {base!r}: there is no such model")
        cells = self.cells[name] = experiments.cells(name, experiment, bases, where)
        for each in [name, *(cell.name for cell in cells)]:
            if self.is_model(each) or each in self.groups:
                raise UserError(f"{where}: {each} is a model or group of another entry: choose another name")
        layer = Layer({"models": {cell.name: cell.entry() for cell in cells}}, where)
        for cell, entry in layer.values["models"].items():
            self.top.models[cell] = validated(ModelEntry, entry, [layer], "models", cell)
        self.layers.append(layer)
        self._cells |= {cell.name: cell for cell in cells}
        self.groups[name] = [cell.name for cell in cells]

    # Which models, languages, suites and tasks exist.

    def known_models(self) -> set[str]:
        """Return the names of all models: every language is one, and `models:` names the others."""
        return set(self.table) | set(self.top.models)

    def is_model(self, name: str) -> bool:
        return name in self.table or name in self.top.models

    def targets(self) -> list[str]:
        """Return the models of `targets:`, with groups expanded, each once."""
        return self.models_of(self.top.targets)

    def models_of(self, names: Iterable[str]) -> list[str]:
        """Return the models that names stand for, each once: a name is a model, a group or `all` (the targets)."""
        names = [member for name in names for member in (self.top.targets if name == "all" else [name])]
        names = [member for name in names for member in self.groups.get(name, [name])]
        for name in names:
            self.languages_of(name)
        return list(dict.fromkeys(names))

    @functools.cache  # noqa: B019  one Configuration per process
    def languages_of(self, model: str) -> tuple[str, ...]:
        """Return the languages of a model; raise a UserError with similar names if there is no such model.

        A model has those of its entry, or it is a language itself, or it has those of a preset or of its source.
        """
        if not self.is_model(model):
            known = self.known_models() | set(self.groups)
            raise UserError(f"there is no model {model!r}{nearest_or_new(model, known)}")
        own, where = last(self._entries("models", self._like(model)), "languages")
        if not own and (codes := [each for each in self._like(model) if each in self.table]):
            return (codes[-1],)
        if not own:
            own, where = self.inherited(model, "languages")
        if own:
            self._check_languages(f"{where}: model {model}: languages", own)
            return tuple(own)
        if ancestors := self.ancestors(model):
            return self.languages_of(ancestors[0])
        raise UserError(f"{self.origin(f'models.{model}')}: models.{model}.languages: a list of codes is expected")

    def language(self, code: str) -> Language:
        """Return the table's row of a language; raise a UserError with similar codes if there is none."""
        if code not in self.table:
            raise UserError(f"there is no language {code!r}{nearest_or_new(code, self.table)}")
        return self.table[code]

    def _check_languages(self, where: str, codes: Iterable[str]) -> None:
        """Raise a UserError if an entry of the configuration names an unknown language."""
        for code in codes:
            if code not in self.table:
                raise UserError(f"{where}: {code!r} is not a language{nearest_or_new(code, self.table)}")

    @functools.cache  # noqa: B019
    def suite(self, name: str) -> Suite:
        """Return the evaluation suite with this name; raise a UserError if there is none, or it has a mistake."""
        suite = self._dataset(Suite, "suites", name)
        if suite.repository or name in self.top.suites:
            return suite
        folder = config_file(f"{SUITES}{name}.yaml", self.root).parent
        folder = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
        return suite.model_copy(update={"files": [f"{glob.escape(str(folder))}/{name}" for name in suite.files]})

    @functools.cache  # noqa: B019
    def task(self, name: str) -> Task:
        """Return the task with this name; raise a UserError if there is none, or it has a mistake.

        `rte_sound` is the task rte by the protocol `sound`, whatever its own protocol is.
        """
        bare = name.removesuffix(SOUND)
        if name not in self.known("tasks") and bare in self.known("tasks"):
            return self.task(bare).model_copy(update={"protocol": SOUND[1:], "tuning": {}})
        return self._dataset(Task, "tasks", name)

    @functools.cache  # noqa: B019
    def known(self, group: str) -> set[str]:
        """Return the names of suites, tasks, protocols or presets: files of this folder of `config/`, and entries."""
        return config_names(f"config/{group}/", self.root) | {*getattr(self.top, group, ())}

    def _dataset(self, kind: type[D], group: str, name: str) -> D:
        """Return a suite or task: an entry of the configuration, or a file of `config/suites/` or `config/tasks/`."""
        if own := getattr(self.top, group).get(name):
            self._check_languages(f"{self.origin(f'{group}.{name}')}: {group}.{name}.languages", own.covered)
            return own
        check_known(name, self.known(group), f"there is no {group.removesuffix('s')} {name!r}")
        layer = self._file(f"config/{group}/{name}.yaml")
        return validated(kind, layer.values, [layer])

    def _file(self, path: str) -> Layer:
        """Read a file of `config/`."""
        return Layer(read_yaml(config_file(path, self.root)), path)

    @functools.cache  # noqa: B019
    def tuning(self, task: str) -> Tuning:
        """Return how models are tuned for a task: its protocol, with the keys that the task changes."""
        asked = self.task(task)
        where = self.origin(f"tasks.{task}") if task in self.top.tasks else f"{TASKS}{task}.yaml"
        check_known(
            asked.protocol, self.known("protocols"), f"{where}: protocol = {asked.protocol!r}: there is no such file"
        )
        layers = [self._file(f"{PROTOCOLS}{asked.protocol}.yaml"), Layer(asked.tuning, f"{where}: tasks.{task}.tuning")]
        return validated(Tuning, merge(layers[0].values, layers[1].values), layers)

    def code_in(self, dataset: Suite | Task, code: str) -> str:
        """Return the code under which a suite or task covers a language; "" if it does not.

        A suite of English covers every text in English (`languages.NAME.language`).
        """
        return next((each for each in (code, self.language(code).language_code) if each in dataset.covered), "")

    # The settings of a model or a corpus.

    @functools.cache  # noqa: B019
    def model(self, name: str) -> ResolvedModel:
        """Return the resolved configuration of a model."""
        languages, theirs = self.languages_of(name), self._shape_of(name)
        first, *others = languages
        auto = "multilingual" if others else "base" if self.table[first].tier == 1 else "small"
        layers = [self._preset(auto) if each.label == AUTO else each for each in self._layers(name)]
        # The shape of its source overrides presets and settings for all models, and is overridden by keys beside it.
        place = max((i for i, layer in enumerate(layers) if last([layer], "model", "source")[1]), default=0)
        of_source = [Layer({"model": theirs}, "model.source")] if theirs else []
        sections, origins = self._sections(MODEL_SECTIONS, [*layers[:place], *of_source, *layers[place:]])
        if not sections["train"].averages:  # there is no average to export
            sections["export"] = sections["export"].model_copy(update={"variants": ["main"], "default_variant": "main"})
        source = sections["model"].source
        beside = self._beside(name, sections["model"], layers[place:], origins, theirs)
        presets = [each.label[len(PRESETS) : -len(".yaml")] for each in layers if each.label.startswith(PRESETS)]
        scored, tuned = self._suites_and_tasks(name, languages, origins, sections["evaluation"])
        if not (trained := self.is_trained(name)):  # its class decides how it is scored, and it has no snapshots
            sections["train"] = sections["train"].model_copy(update={"objective": "hybrid"})
            scored = {suite: codes for suite, codes in scored.items() if self.suite(suite).kind != "acquisition"}
        elif not OBJECTIVES[sections["train"].objective].sentences:
            scored = tuned = {}
        submission, origins["submission"] = last(layers, "submission")
        resolved = ResolvedModel(
            name=name,
            languages=languages,
            origins=origins,
            trained=trained,
            preset="+".join(presets),
            rows={code: self.table[code] for code in languages},
            continued=self.model(source) if source and self.is_model(source) else None,
            beside=beside,
            scored=scored,
            tuned=tuned,
            seeds={task: sections["evaluation"].task_seeds or self.tuning(task).seeds for task in tuned},
            submission=submission,
            **sections,
        )
        check_together(resolved, shape_is_known=not source or "max_position_embeddings" in theirs)
        return resolved

    @functools.cache  # noqa: B019
    def is_trained(self, model: str) -> bool:
        """Return whether a model is trained here; one of another project is only measured (`train: none`)."""
        return self.inherited(model, "train")[0] != UNTRAINED

    @functools.cache  # noqa: B019
    def corpus(self, code: str) -> ResolvedCorpus:
        """Return the resolved corpus section of a language."""
        row, entries = self.language(code), self._entries("languages", (code,))
        sections, origins = self._sections(["corpus"], [*self.layers, *entries])
        where = f"{origins['corpus.decontaminate']}: corpus.decontaminate"
        suites = []
        for name in sorted({*sections["corpus"].decontaminate}):
            check_known(name, self.known("suites"), f"{where}: there is no suite {name!r}")
            suite = self.suite(name)
            if suite.kind not in ("pairs", "choices"):
                raise UserError(f"{where} = {name}: suites of the kinds pairs and choices have sentences")
            if self.code_in(suite, code):
                suites.append(name)
            elif last(entries, "corpus", "decontaminate")[1]:  # elsewhere, it is for all languages
                raise UserError(f"{where} = {name}: {code} is none of its languages, {some(suite.covered)}")
        resolved = ResolvedCorpus(code, (code,), origins, language=row, suites=suites, **sections)
        budget = resolved.corpus.budget
        if isinstance(budget, str) and budget.endswith("exact words") and row.bytes_per_word is not None:
            allowed = f"{budget.replace('exact ', '')}, in bytes, since {row.name} writes no spaces between words"
            raise resolved.refused("corpus.budget", allowed)
        return resolved

    def ancestors(self, model: str) -> list[str]:
        """Return the models here that a model continues, the nearest first; raise a UserError if there is a circle."""
        chain, names = [model], self.known_models()
        while True:
            source, where = self.inherited(chain[-1], "model", "source")
            if not isinstance(source, str) or source not in names:
                return chain[1:]
            if source in chain:
                raise UserError(f"{where}: model.source: {' continues '.join([*chain, source])}, which is a circle")
            chain.append(source)

    def inherited(self, model: str, *keys: str) -> tuple[Any, str]:
        """Return a value of a model, as the last layer that sets it has it, and the label of this layer.

        Without one, these are None and "". What follows from `preset: auto` does not count: sizes.
        """
        return last(self._layers(model), *keys)

    @functools.cache  # noqa: B019
    def _layers(self, model: str) -> list[Layer]:
        """Return all layers of a model, the first one first; an empty one, called AUTO, stands for `preset: auto`."""
        kept = {*MODEL_SECTIONS, "preset"}
        first, *own = (
            Layer({key: value for key, value in layer.values.items() if key in kept}, layer.label)
            for layer in self.layers
        )
        own += self._entries("models", self._like(model))
        for each in self._like(model):
            if (cell := self._cells.get(each)) and cell.seed > 1:
                seed = self.model(cell.base).train.seed + cell.seed - 1
                own.append(Layer({"train": {"seed": seed}}, self.origin(f"models.{each}")))
        names, where = last([first, *own], "preset")
        names = [names] if isinstance(names, str) else names
        known = self.known("presets") | {AUTO}
        for name in names:
            check_known(name, known, f"{where}: preset = {name!r} of model {model}: there is no such file")
        return [first, *(Layer({}, AUTO) if name == AUTO else self._preset(name) for name in names), *own]

    @functools.cache  # noqa: B019
    def _preset(self, name: str) -> Layer:
        layer = self._file(f"{PRESETS}{name}.yaml")
        validated(Preset, layer.values, [layer])
        return layer

    def _entries(self, group: str, names: Iterable[str]) -> list[Layer]:
        """Return the entries of `models:` or `languages:` with these names, the first name first, as layers."""
        found = [(last([layer], group, name)[0], layer, name) for name in names for layer in self.layers]
        return [Layer(each, f"{layer.label}, {group}.{name}") for each, layer, name in found if isinstance(each, dict)]

    @functools.cache  # noqa: B019
    def _like(self, model: str) -> tuple[str, ...]:
        """Return the models whose entries a model's values come from (`like`), the farthest first, itself last.

        A UserError says that a model is like itself, or like none that there is.
        """
        chain = [model]
        while (entry := self.top.models.get(chain[0])) and entry.like:
            where = f"{self.origin(f'models.{chain[0]}')}: models.{chain[0]}.like = {entry.like!r}"
            if entry.like in chain:
                raise UserError(f"{where}: {' is like '.join([*reversed(chain), entry.like])}, which is a circle")
            if not self.is_model(entry.like):
                raise UserError(f"{where}: there is no such model{nearest_or_new(entry.like, self.known_models())}")
            chain.insert(0, entry.like)
        return tuple(chain)

    def _shape_of(self, model: str) -> dict[str, Any]:
        """Return the known keys of the section `model` of the workflow's model that `model` continues."""
        if not (ancestors := self.ancestors(model)):
            return {}
        base = self.model(ancestors[0]).model
        keys = SHAPE if base.architecture in OURS else ("max_position_embeddings",)
        of_elsewhere = self.model(ancestors[-1]).model.source
        return {key: getattr(base, key) for key in ("architecture", *(() if of_elsewhere else keys))}

    def _beside(
        self, model: str, values: schema.Model, layers: list[Layer], origins: dict[str, str], shape: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the keys of `SHAPE` that stand beside `model.source`; {} if training begins with random weights.

        `layers`: those from its last one on; `shape`: what the configuration knows about the source's shape. In
        `origins`, those of values that are not used are changed. A UserError says that there is no such source, or that
        a key contradicts its shape.
        """
        if (text := values.source) is None:
            return {}
        is_repository = REPOSITORY.fullmatch(text) and not RESULTS.fullmatch(text)
        if not (self.is_model(text) or is_folder(text) or is_repository):
            expected = "a model of the configuration, a folder (./folder) or a repository (owner/name) is expected"
            near = nearest(text, self.known_models())
            raise UserError(f"{origins['model.source']}: model.source = {text!r}: {expected}{near}")
        beside = {key for layer in layers for key in layer.values.get("model", {})}
        for key in ("architecture", *SHAPE):
            value = getattr(values, key)
            if key in beside and value != shape.get(key, value):
                said = f"model.{key} = {value!r} of model {model}: that of its source {text} is {shape[key]!r}"
                raise UserError(f"{origins[f'model.{key}']}: {said}")
        unread = [key for key in SHAPE if key not in beside and key not in shape]
        origins |= dict.fromkeys((f"model.{key}" for key in unread), f"not used: the value of {text} applies")
        return {key: getattr(values, key) for key in SHAPE if key in beside}

    def _sections(self, names: Iterable[str], layers: list[Layer]) -> tuple[dict[str, Any], dict[str, str]]:
        """Merge layers and validate the named sections: ({name: section}, {section.key: where it comes from})."""
        layers = [Layer({k: v for k, v in each.values.items() if v != UNTRAINED}, each.label) for each in layers]
        merged: dict[str, Any] = functools.reduce(merge, (layer.values for layer in layers))
        found = {name: validated(SECTIONS[name], merged.get(name), layers, name) for name in names}
        origins = {
            f"{section}.{key}": layer.label
            for layer in layers
            for section in names
            for key in layer.values.get(section, ())
        }
        return found, origins

    def _suites_and_tasks(
        self, model: str, languages: Iterable[str], origins: dict[str, str], asked: schema.Evaluation
    ) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Return {name: languages of the model that it covers} of suites and of tasks, without those that cover none.

        A UserError names all that do not exist, or one that has a mistake. Where the model's own entry names a task,
        the task must have rows of one of its languages.
        """
        unknown = [
            f"evaluation.{key}: {name}{nearest(name, self.known(group))}"
            for key, group in (("suites", "suites"), ("snapshot_suites", "suites"), ("tasks", "tasks"))
            for name in getattr(asked, key)
            if not self.known(group) & {name, name.removesuffix(SOUND)}
        ]
        if unknown:
            where = origins[unknown[0].partition(":")[0]]
            raise UserError(f"{where}: model {model}: these do not exist: {', '.join(unknown)}")
        named = [(name, self.suite(name)) for name in dict.fromkeys([*asked.suites, *asked.snapshot_suites])]
        scored = {name: [code for code in languages if self.code_in(suite, code)] for name, suite in named}
        tuned = {name: [code for code in languages if self.code_in(self.task(name), code)] for name in asked.tasks}
        where = origins["evaluation.tasks"]
        for name, covered in tuned.items():
            self.tuning(name)
            if not covered and where.endswith(f", models.{model}"):
                expected = f"a task with rows of {', '.join(languages)} is expected"
                raise UserError(f"{where}: evaluation.tasks = {name}: {expected}")
        return {k: v for k, v in scored.items() if v}, {k: v for k, v in tuned.items() if v}

    # Which source a value came from.

    def origin(self, key: str) -> str:
        """Return the label of the user's last source that sets a dotted key; that of the defaults without one."""
        return last(self.layers, *key.split("."))[1] or DEFAULTS

    def origin_of_name(self, name: str) -> str:
        """Return the label of the user's source that names a model, language, group, suite, task or experiment."""
        places = [*((group, name) for group in NAMED), ("tasks", name.removesuffix(SOUND))]
        return next((label for place in places if (label := last(self.layers, *place)[1])), DEFAULTS)

    def _language_table(self) -> dict[str, Language]:
        """Return the table of `config/languages.tsv`, with the entries of `languages:`."""
        table = read_table(self.root / "config/languages.tsv")
        real = {*table}
        entries = sorted(self.top.languages.items(), key=lambda each: bool(each[1].language))  # others' languages last
        for code, entry in entries:
            where, of = f"{self.origin(f'languages.{code}')}: languages.{code}", entry.language
            if code in real and of not in ("", code):
                raise UserError(f"{where}.language = {of!r}: {code} is a language itself: choose another name")
            if of and of not in table:
                raise UserError(f"{where}.language = {of!r}: there is no such language{nearest_or_new(of, table)}")
            if code not in table and not (entry.name or of):
                raise UserError(f"{where}.name: a language of your own has a name{nearest_or_new(code, table)}")
            base = table.get(code) or Language(code, code, 3, "", 1.0, tag_of(code))
            if of not in ("", code):
                base = dataclasses.replace(table[of], code=code, language=table[of].language_code)
            given = entry.model_dump(exclude={"corpus", "language"}, exclude_unset=True, exclude_none=True)
            table[code] = dataclasses.replace(base, **given)
        return table


def check_together(resolved: ResolvedModel, shape_is_known: bool) -> None:
    """Raise a UserError if sections of a model do not go together; `shape_is_known`: its source need not be fetched."""
    source = resolved.continued  # of this workflow
    model, train, evaluation, tokenizer = resolved.model, resolved.train, resolved.evaluation, resolved.tokenizer
    ours, labels, snapshots = model.architecture in OURS, resolved.learns_labels, resolved.run.snapshots
    adopted = tokenizer.source or (model.source and not (source and source.tokenizer.prefix_space))
    untrained = adopted or (model.config or {}).get("model_type") == "canine"
    rules: dict[str, Any] = {
        "model.source: a folder or repository of another project, for a model with train: none": (
            resolved.trained or (model.source and not source)
        ),
        "model.source: no model with train: none; name its own source": not source or source.trained,
    }
    longest = model.max_position_embeddings if shape_is_known else MAX_LENGTH
    most = f"model.max_position_embeddings = {longest} at most"
    of_training = {
        "model.source: no model whose results are adapters; the folder of its export has them merged": not (
            source and source.train.lora_rank
        ),
        "model.source: no label model": not (source and source.learns_labels),
        "train.freeze: none without a model.source": train.freeze == "none" or model.source,
        "train.lora_rank: 0 unless model.source is a transformers model (model.architecture: transformers)": (
            not train.lora_rank or (model.source and not ours)
        ),
        "train.objective: transformers models have masked, diffusion, causal or labels": (
            model.architecture != "transformers" or train.objective != "hybrid"
        ),
        "train.optimizer: lamb or adamw for transformers models and label models": (
            train.optimizer != "muon" or (ours and not labels)
        ),
        "train.objective: norbert4 has no labels": not (model.architecture == "norbert4" and labels),
        "evaluation.snapshot_suites: nothing without run.snapshots": snapshots or not evaluation.snapshot_suites,
        "tokenizer.prefix_space: false, since the tokenizer is not trained": not (tokenizer.prefix_space and untrained),
        f"train.sequence_lengths: {most}": max(train.sequence_lengths) <= longest,
        # Ours and label models read texts of any length, or cut them.
        f"evaluation.sequence_length: {most}": ours or labels or evaluation.sequence_length <= longest,
    }
    for rule, holds in (rules | (of_training if resolved.trained else {})).items():
        if not holds:
            raise resolved.refused(*rule.split(": ", 1))
    if resolved.trained and model.config and (message := wrong(model.config)):
        raise UserError(f"{resolved.origins['model.config']}: {message}")
