"""Check the layers of the configuration, and resolve them for each model and each language.

A later layer overrides an earlier one: `config/defaults.yaml` < presets < the user's files and command line <
`models.<name>` with what it is `like` (of a corpus: `languages.<code>`). `schema.py` holds types and bounds.
"""

import dataclasses
import functools
import glob
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from babelmill.config import experiments, schema
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
    lookup,
    merge,
    nearest,
)
from babelmill.config.mistakes import validated
from babelmill.config.model_size import too_large
from babelmill.config.model_source import SHAPE, ModelSource, kind_of, shape_laid_under, source_of
from babelmill.config.schema import MODEL_SECTIONS, OURS, SECTIONS, ModelEntry, Preset, Suite, Task, Tuning, User
from babelmill.config.transformers_keys import wrong
from babelmill.core.escape import some
from babelmill.core.files import UserError
from babelmill.core.places import ROOT
from babelmill.core.yaml_file import read_yaml

NAME = re.compile(r"[a-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")
SOUND = "_sound"  # at the end of a task's name: by the protocol `sound`
NULL = ("null", "None", "~")  # as `Section` reads them
AUTO = "auto"  # the preset that the language's tier chooses
D = TypeVar("D", bound=schema.Dataset)


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


@dataclasses.dataclass(frozen=True)
class ResolvedCorpus(Resolved):
    """The settings of the corpus of a language."""

    corpus: schema.Corpus


@dataclasses.dataclass(frozen=True)
class ResolvedModel(schema.ModelSections, Resolved):
    """The settings of a model. `source`: the model that it continues; None if training begins with random weights."""

    preset: str  # its presets, with + between them
    source: ModelSource | None


class Configuration:
    """All layers, checked. Resolving a name is cheap and cached, since Snakemake does it once per job.

    A mistake in a model, a suite or a task is an error for those who ask for it alone.
    """

    def __init__(self, sources: list[tuple[str, dict[str, Any]]], root: Path = ROOT):
        """Read and check all layers.

        `sources` are the user's files and command line as (label, values); a later one overrides an earlier one.
        """
        self.root = root
        self.defaults = read_yaml(root / DEFAULTS)
        self.sources = [Layer(values, label) for label, values in sources]
        files = [Layer(self.defaults, DEFAULTS), *self.sources]
        self.top = validated(User, functools.reduce(merge, (layer.values for layer in files)), files)
        self.table = self._language_table()
        ordinary = [row for code, row in self.table.items() if code not in self.defaults["languages"]]
        self.batches = {f"tier{tier}": [row.code for row in ordinary if row.tier == tier] for tier in (1, 2, 3)}
        self.batches |= self.top.batches
        for group in ("models", "languages", "batches", "suites", "tasks", "experiments"):
            for name in getattr(self.top, group):
                if not NAME.fullmatch(name):
                    raise UserError(
                        f"{self.origin_of_name(name)}: {group}: {name!r}: letters and digits are expected, in groups"
                        " joined by single underscores, beginning with a small letter, such as srp_Latn"
                    )
        self.cells: dict[str, list[experiments.Cell]] = {}
        self._cells: dict[str, experiments.Cell] = {}
        for name, experiment in self.top.experiments.items():
            self._add_cells(name, experiment)
        for name, members in [*self.batches.items(), ("targets", self.top.targets)]:
            for member in members:
                if not self.is_model(member) and not (name == "targets" and member in self.batches):
                    where = self.origin(name if name == "targets" else f"batches.{name}")
                    raise UserError(
                        f"{where}: {name} names {member!r}, which is not a model"
                        f"{nearest_or_new(member, self.known_models())}"
                    )

    def _add_cells(self, name: str, experiment: schema.Experiment) -> None:
        """Add the cells of an experiment to `models:`, and a batch with the experiment's name."""
        where = f"{self.origin(f'experiments.{name}')}: experiments.{name}"
        bases = [each for base in experiment.bases for each in self.batches.get(base, [base])]
        for base in bases:
            if not self.is_model(base):
                known = self.known_models() | set(self.batches)
                raise UserError(f"{where}.base = {base!r}: there is no such model{nearest_or_new(base, known)}")
        self.cells[name] = experiments.cells(name, experiment, bases, where)
        names = [cell.name for cell in self.cells[name]]
        if taken := [each for each in [name, *names] if self.is_model(each) or each in self.batches]:
            raise UserError(f"{where}: {taken[0]} is a model or batch of another entry: choose another name")
        layer = Layer({"models": {cell.name: cell.entry() for cell in self.cells[name]}}, where)
        for cell, entry in layer.values["models"].items():
            self.top.models[cell] = validated(ModelEntry, entry, [layer], "models", cell)
        self.sources.append(layer)
        self.batches[name] = names
        self._cells |= dict(zip(names, self.cells[name], strict=True))

    # Which models, languages, suites and tasks exist.

    def known_models(self) -> set[str]:
        """Return the names of all models: every language is one, and `models:` names the others."""
        return set(self.table) | set(self.top.models)

    def is_model(self, name: str) -> bool:
        return name in self.table or name in self.top.models

    def targets(self) -> list[str]:
        """Return the models of `targets:`, with batches expanded, each once."""
        return self.models_of(self.top.targets)

    def models_of(self, names: Iterable[str]) -> list[str]:
        """Return the models that names stand for, each once: a name is a model, a batch or `all` (the targets)."""
        names = [member for name in names for member in (self.top.targets if name == "all" else [name])]
        names = [member for name in names for member in self.batches.get(name, [name])]
        for name in names:
            self.languages_of(name)
        return list(dict.fromkeys(names))

    @functools.cache  # noqa: B019  one Configuration per process
    def languages_of(self, model: str) -> tuple[str, ...]:
        """Return the languages of a model; raise a UserError with similar names if there is no such model.

        A model has those of its entry, or it is a language itself, or it has those of a preset or of its source.
        """
        if not self.is_model(model):
            known = self.known_models() | set(self.batches)
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

    def models_reading(self, code: str) -> tuple[str, ...]:
        """Return the models of a language that have no mistake: its own, and the mixtures that it is in."""
        return tuple(dict.fromkeys(name for name in (code, *self.top.models) if self._reads(name, code)))

    @functools.cache  # noqa: B019
    def _reads(self, model: str, code: str) -> bool:
        try:
            return code in self.languages_of(model) and bool(self.model(model))
        except UserError:
            return False

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
        """Return an entry of `suites:` or `tasks:`, or a file of this folder of `config/`."""
        if own := getattr(self.top, group).get(name):
            self._check_languages(f"{self.origin(f'{group}.{name}')}: {group}.{name}.languages", own.covered)
            return own
        if name not in self.known(group):
            raise UserError(f"there is no {group.removesuffix('s')} {name!r}{nearest(name, self.known(group))}")
        layer = self._file(f"config/{group}/{name}.yaml")
        return validated(kind, layer.values, [layer])

    def _file(self, path: str) -> Layer:
        """Read a file of `config/`."""
        return Layer(read_yaml(config_file(path, self.root)), path)

    @functools.cache  # noqa: B019
    def tuning(self, task: str) -> Tuning:
        """Return how models are tuned for a task: its protocol, with the keys that the task changes."""
        asked, known = self.task(task), self.known("protocols")
        where = self.origin(f"tasks.{task}") if task in self.top.tasks else f"{TASKS}{task}.yaml"
        if asked.protocol not in known:
            raise UserError(
                f"{where}: protocol = {asked.protocol!r}: there is no such file{nearest(asked.protocol, known)}"
            )
        layers = [self._file(f"{PROTOCOLS}{asked.protocol}.yaml"), Layer(asked.tuning, f"{where}: tasks.{task}.tuning")]
        return validated(Tuning, merge(layers[0].values, layers[1].values), layers)

    # The settings of a model or a corpus.

    @functools.cache  # noqa: B019
    def model(self, name: str) -> ResolvedModel:
        """Return the resolved configuration of a model."""
        languages, layers = self.languages_of(name), self._layers(name)
        theirs = self._shape_of(name)
        sections, origins = self._sections(MODEL_SECTIONS, shape_laid_under(layers, theirs))
        if not sections["train"].averages:  # there is no average to export
            sections["export"] = sections["export"].model_copy(update={"variants": ["main"], "default_variant": "main"})
        source = source_of(name, sections["model"], layers, origins, self.known_models(), theirs)
        presets = "+".join(self._presets(name))
        resolved = ResolvedModel(
            name=name, languages=languages, origins=origins, preset=presets, source=source, **sections
        )
        self._check_suites_and_tasks(resolved)
        of_source = self.model(source.name) if source and source.kind == "model" else None
        check_together(resolved, of_source, shape_is_known=not source or "max_position_embeddings" in theirs)
        return resolved

    @functools.cache  # noqa: B019
    def corpus(self, code: str) -> ResolvedCorpus:
        """Return the resolved corpus section of a language."""
        row = self.language(code)
        files = [Layer(self.defaults, DEFAULTS), *self.sources]
        entries = self._entries("languages", (code,), files)
        sections, origins = self._sections(["corpus"], [*files, *entries])
        resolved = ResolvedCorpus(code, (code,), origins, **sections)
        where = f"{origins['corpus.decontaminate']}: corpus.decontaminate"
        for name in resolved.corpus.decontaminate:
            if name not in self.known("suites"):
                raise UserError(f"{where}: there is no suite {name!r}{nearest(name, self.known('suites'))}")
            suite = self.suite(name)
            if suite.kind not in ("pairs", "choices"):
                raise UserError(f"{where} = {name}: suites of the kinds pairs and choices have sentences")
            own = last(entries, "corpus", "decontaminate")[1]  # elsewhere, it is for all languages
            if own and not {code, row.language_code} & suite.covered.keys():
                raise UserError(f"{where} = {name}: {code} is none of its languages, {some(suite.covered)}")
        return resolved

    def ancestors(self, model: str) -> list[str]:
        """Return the models here that a model continues, the nearest first; raise a UserError if there is a circle."""
        chain, names = [model], self.known_models()
        while True:
            source, where = self.inherited(chain[-1], "model", "source")
            if not isinstance(source, str) or source in NULL or kind_of(source, names) != "model":
                return chain[1:]
            if source in chain:
                raise UserError(f"{where}: model.source: {' continues '.join([*chain, source])}, which is a circle")
            chain.append(source)

    def inherited(self, model: str, *keys: str) -> tuple[Any, str]:
        """Return a value of a model, as the last layer that sets it has it, and the label of this layer.

        Without one, these are None and "". What follows from `preset: auto` does not count: sizes.
        """
        return last(self._layers(model, with_auto=False), *keys)

    @functools.cache  # noqa: B019
    def _layers(self, model: str, with_auto: bool = True) -> list[Layer]:
        """Return all layers of a model, the first one first."""
        kept = {*MODEL_SECTIONS, "preset"}
        first, *files = (
            Layer({key: value for key, value in layer.values.items() if key in kept}, layer.label)
            for layer in [Layer(self.defaults, DEFAULTS), *self.sources]
        )
        own = [*files, *self._entries("models", self._like(model))]
        for each in self._like(model):
            if (cell := self._cells.get(each)) and cell.seed > 1:
                seed = self.model(cell.base).train.seed + cell.seed - 1
                own.append(Layer({"train": {"seed": seed}}, self.origin(f"models.{each}")))
        presets, where = last([first, *own], "preset")
        names = [presets] if isinstance(presets, str) else presets
        known = self.known("presets") | {AUTO}
        if unknown := [name for name in names if name not in known]:
            raise UserError(
                f"{where}: preset = {unknown[0]!r} of model {model}: there is no such file{nearest(unknown[0], known)}"
            )
        if with_auto and AUTO in names:
            names = [self._auto(model) if name == AUTO else name for name in names]
        return [first, *(self._preset(name) for name in names if name != AUTO), *own]

    def _presets(self, model: str) -> list[str]:
        """Return the presets of a model."""
        return [layer.label[len(PRESETS) : -5] for layer in self._layers(model) if layer.label.startswith(PRESETS)]

    def _auto(self, model: str) -> str:
        """Return the preset that `auto` stands for."""
        first, *others = self.languages_of(model)
        if others:
            return "multilingual"
        return "base" if self.table[first].tier == 1 else "small"

    @functools.cache  # noqa: B019
    def _preset(self, name: str) -> Layer:
        layer = self._file(f"{PRESETS}{name}.yaml")
        validated(Preset, layer.values, [layer])
        return layer

    def _entries(self, group: str, names: Iterable[str], sources: Iterable[Layer] | None = None) -> list[Layer]:
        """Return the entries of `models:` or `languages:` with these names, the first name first, as layers."""
        sources = [Layer(self.defaults, DEFAULTS), *self.sources] if sources is None else [*sources]
        return [
            Layer(values, f"{label}, {group}.{name}")
            for name in names
            for source, label in sources
            if isinstance(values := lookup(source, (group, name)), dict)
        ]

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
        base, known = self.model(ancestors[0]), {"architecture": self.model(ancestors[0]).model.architecture}
        if self.model(ancestors[-1]).source:
            return known
        keys = SHAPE if base.model.architecture in OURS else ("max_position_embeddings",)
        return known | {key: getattr(base.model, key) for key in keys}

    def _sections(self, names: Iterable[str], layers: list[Layer]) -> tuple[dict[str, Any], dict[str, str]]:
        """Merge layers and validate the named sections: ({name: section}, {section.key: where it comes from})."""
        merged: dict[str, Any] = functools.reduce(merge, (layer.values for layer in layers))
        found = {name: validated(SECTIONS[name], merged.get(name), layers, name) for name in names}
        origins = {
            f"{section}.{key}": layer.label
            for layer in layers
            for section in names
            for key in layer.values.get(section, ())
        }
        return found, origins

    def _check_suites_and_tasks(self, resolved: ResolvedModel) -> None:
        """Raise a UserError that names all suites and tasks of a model that do not exist, or have a mistake.

        Where the model's own entry names a task, the task must have rows of one of its languages.
        """
        evaluation, missing = resolved.evaluation, list[str]()
        suites, tasks = self.known("suites"), self.known("tasks")
        for key, known in (("suites", suites), ("snapshot_suites", suites), ("tasks", tasks)):
            for name in getattr(evaluation, key):
                if name not in known and not (key == "tasks" and name.removesuffix(SOUND) in known):
                    missing.append(f"evaluation.{key}: {name}{nearest(name, known)}")
        if missing:
            where = resolved.origins[missing[0].partition(":")[0]]
            raise UserError(f"{where}: model {resolved.name}: these do not exist: {', '.join(missing)}")
        for name in (*evaluation.suites, *evaluation.snapshot_suites):
            self.suite(name)
        where = resolved.origins["evaluation.tasks"]
        codes = {each for code in resolved.languages for each in (code, self.language(code).language_code)}
        for name in evaluation.tasks:
            self.tuning(name)
            if where.endswith(f", models.{resolved.name}") and not codes & self.task(name).covered.keys():
                expected = f"a task with rows of {', '.join(resolved.languages)} is expected"
                raise UserError(f"{where}: evaluation.tasks = {name}: {expected}")

    # Which source a value came from.

    def origin(self, key: str) -> str:
        """Return the label of the user's last source that sets a dotted key; that of the defaults without one."""
        return last(self.sources, *key.split("."))[1] or DEFAULTS

    def origin_of_name(self, name: str) -> str:
        """Return the label of the user's source that names a model, language, batch, suite, task or experiment."""
        groups = ("models", "languages", "batches", "suites", "tasks", "experiments")
        places = [*((group, name) for group in groups), ("tasks", name.removesuffix(SOUND))]
        return next((label for place in places if (label := last(self.sources, *place)[1])), DEFAULTS)

    def _language_table(self) -> dict[str, Language]:
        """Return the table of `config/languages.tsv`, with the entries of `languages:`."""
        table = read_table(self.root / "config/languages.tsv")
        real = {*table}
        entries = sorted(self.top.languages.items(), key=lambda each: bool(each[1].language))  # others' languages last
        for code, entry in entries:
            where = f"{self.origin(f'languages.{code}')}: languages.{code}"
            if code in real and entry.language not in ("", code):
                raise UserError(
                    f"{where}.language = {entry.language!r}: {code} is a language itself: choose another name"
                )
            if entry.language and entry.language not in table:
                near = nearest_or_new(entry.language, table)
                raise UserError(f"{where}.language = {entry.language!r}: there is no such language{near}")
            if code not in table and not (entry.name or entry.language):
                raise UserError(f"{where}.name: a language of your own has a name{nearest_or_new(code, table)}")
            base = table.get(code) or Language(code, code, 3, "", 1.0, tag_of(code))
            if entry.language not in ("", code):
                of = table[entry.language]
                base = dataclasses.replace(of, code=code, language=of.language_code)
            given = entry.model_dump(exclude={"corpus", "language"}, exclude_unset=True)
            table[code] = dataclasses.replace(base, **{key: value for key, value in given.items() if value is not None})
        return table


def check_together(resolved: ResolvedModel, source: ResolvedModel | None, shape_is_known: bool) -> None:
    """Raise a UserError if sections of a model do not go together; for the arguments, see `contradictions`."""
    for key, allowed in contradictions(resolved, source, shape_is_known):
        section, _, name = key.partition(".")
        value = getattr(getattr(resolved, section), name)
        raise UserError(f"{resolved.origins[key]}: {key} = {value!r} of model {resolved.name}: {allowed}")
    model = resolved.model
    if model.config and (message := wrong(model.config)):
        raise UserError(f"{resolved.origins['model.config']}: {message}")
    if shape_is_known and model.architecture in OURS:
        entries = 0 if resolved.tokenizer.source else resolved.tokenizer.vocab_size
        if message := too_large(model, entries):
            raise UserError(f"{resolved.origins['model.hidden_size']}: {message}")


def contradictions(
    resolved: ResolvedModel, source: ResolvedModel | None, shape_is_known: bool
) -> Iterator[tuple[str, str]]:
    """Yield keys whose values contradict other sections, and what is allowed instead.

    `source`: the model of this workflow that it continues. `shape_is_known` is False if its source must be fetched.
    """
    model, train, evaluation, tokenizer = resolved.model, resolved.train, resolved.evaluation, resolved.tokenizer
    ours = model.architecture in OURS
    if source and source.train.lora_rank:
        yield "model.source", "no model whose results are adapters; the folder of its export has them merged"
    if source and source.train.objective == "labels":
        yield "model.source", "no label model"
    if train.freeze != "none" and not resolved.source:
        yield "train.freeze", "none without a model.source"
    if train.lora_rank and (ours or model.source is None):
        yield "train.lora_rank", "0 unless model.source is a transformers model (model.architecture: transformers)"
    if model.architecture == "transformers" and train.objective == "hybrid":
        yield "train.objective", "transformers models have masked, diffusion, causal or labels"
    if train.optimizer == "muon" and (not ours or train.objective == "labels"):
        yield "train.optimizer", "lamb or adamw for transformers models and label models"
    if model.architecture == "norbert4" and train.objective == "labels":
        yield "train.objective", "norbert4 has no labels"
    if resolved.export.adapter != "none" and not train.lora_rank:
        yield "export.adapter", "none with train.lora_rank = 0"
    for key in ("snapshots", "snapshot_suites"):
        if getattr(evaluation, key) and not resolved.run.snapshots:
            yield f"evaluation.{key}", "nothing without run.snapshots"
    adopted = tokenizer.source or (resolved.source and not (source and source.tokenizer.prefix_space))
    if tokenizer.prefix_space and (adopted or (model.config or {}).get("model_type") == "canine"):
        yield "tokenizer.prefix_space", "false, since the tokenizer is not trained"
    most = f"model.max_position_embeddings = {model.max_position_embeddings} at most"
    if shape_is_known and max(train.sequence_lengths) > model.max_position_embeddings:
        yield "train.sequence_lengths", most
    cut = ours or train.objective == "labels"  # these read texts of any length, or cut them
    if shape_is_known and not cut and evaluation.sequence_length > model.max_position_embeddings:
        yield "evaluation.sequence_length", most
