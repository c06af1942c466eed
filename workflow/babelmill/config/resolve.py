"""Check the layers of the configuration, and resolve them for each model and each language.

A later layer overrides an earlier one: `config/defaults.yaml` < preset < the model's recipe < the user's configuration
(`config/config.yaml` merged with `--configfile` and `--config`) < the model's challenge < its `models.<name>` or
`languages.<code>`. The corpora of a challenge are the same whatever presets and the section `corpus` say of other text:
`config/defaults.yaml` < the challenge < `languages.<code>`. `schema.py` holds types and bounds.
"""

import dataclasses
import functools
import glob
import itertools
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic
from pydantic.fields import FieldInfo

from babelmill.config import experiments, schema
from babelmill.config.challenges import check_copy, check_format, check_limit, file_of, read_challenges
from babelmill.config.languages import Language, nearest_or_new, read_table, tag_of
from babelmill.config.layers import (
    ABSENT,
    DEFAULTS,
    PRESETS,
    PROTOCOLS,
    RECIPES,
    SUITES,
    TASKS,
    Layer,
    dotted_keys,
    flatten,
    lookup,
    merge,
    nearest,
)
from babelmill.config.mistakes import check_keys, meant_key, where_set, worded
from babelmill.config.model_size import too_large
from babelmill.config.model_source import SHAPE, ModelSource, kind_of, shape_laid_under, source_of
from babelmill.config.own_files import config_file, config_names
from babelmill.config.schema import (
    MODEL_SECTIONS,
    OURS,
    SECTIONS,
    Challenge,
    LanguageEntry,
    ModelEntry,
    Recipe,
    Suite,
    Task,
    Tuning,
    User,
)
from babelmill.config.transformers_keys import wrong
from babelmill.core.escape import some
from babelmill.core.files import UserError
from babelmill.core.places import ROOT
from babelmill.core.yaml_file import read_yaml

NAME = re.compile(r"[a-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")
SOUND = "_sound"  # at the end of a task's name: by the protocol `sound`
NULL = ("null", "None", "~")  # as `Section` reads them
S = TypeVar("S", bound=schema.Section)
D = TypeVar("D", bound=schema.Dataset)

log = logging.getLogger(__name__)


@functools.cache
def _warn(message: str) -> None:
    """Log a warning once, though it applies to many models."""
    log.warning(message)


@dataclasses.dataclass(frozen=True)
class Resolved:
    """The settings of a model or a language. `origins`: the layer that each value came from, by dotted key."""

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

    preset: str
    recipe: str
    source: ModelSource | None


class Configuration:
    """All layers, checked. Resolving a name is cheap and cached, since Snakemake does it once per job."""

    def __init__(self, sources: list[tuple[str, dict[str, Any]]], root: Path = ROOT):
        """Read and check all layers.

        `sources` are the user's files and command line as (label, values); a later one overrides an earlier one.
        """
        self.root = root
        self.sources = sources
        defaults = read_yaml(root / DEFAULTS)
        self.user = functools.reduce(merge, (values for _, values in sources), {})
        check_keys(self.user, self._origin)
        top_keys = set(User.model_fields)
        self.defaults = {key: value for key, value in defaults.items() if key not in top_keys}
        top = merge(
            {key: defaults[key] for key in top_keys},
            {key: value for key, value in self.user.items() if key in top_keys},
        )
        label = functools.partial(where_set, [Layer(values, label) for label, values in sources])
        self.top: User = self._validate(User, top, "", label)
        self.challenges = read_challenges(root)
        # {corpus: the challenge that it belongs to}
        self._challenge_of_corpus = {code: name for name, each in self.challenges.items() for code in each.languages}
        self.table = self._language_table()
        ordinary = [row for code, row in self.table.items() if code not in self._challenge_of_corpus]
        self.batches = {f"tier{tier}": [row.code for row in ordinary if row.tier == tier] for tier in (1, 2, 3)}
        self.batches |= self.top.batches
        named = (
            *(self.top.models, self.top.languages, self.top.batches, self.top.suites, self.top.tasks),
            self.top.experiments,
        )
        for name in itertools.chain.from_iterable(named):
            if not NAME.fullmatch(name):
                raise UserError(
                    f"{self.origin_of_name(name)}: {name!r} is not a name; names are letters and digits in groups"
                    " joined by single underscores, beginning with a small letter, such as eng, srp_Latn, my_mixture"
                )
        self.cells: dict[str, list[experiments.Cell]] = {}
        self._cells: dict[str, tuple[str, experiments.Cell]] = {}  # by the model: where its values stand, and the cell
        for name, experiment in self.top.experiments.items():
            self._add_cells(name, experiment)
        for name in self.top.models:
            self._inherited(name)
        for name in self.top.models:
            self._challenge(name)
            self.ancestors(name)
            self.languages_of(name)
        for name, members in [*self.batches.items(), ("targets", self.top.targets)]:
            for member in members:
                if not self.is_model(member) and not (name == "targets" and member in self.batches):
                    raise UserError(
                        f"{self.origin(name) or self.origin('batches.' + name) or DEFAULTS}: {name} names"
                        f" {member!r}, which is not a model{nearest_or_new(member, self.known_models())}"
                    )

    # Which models, languages and suites exist.

    def known_models(self) -> set[str]:
        """Return the names of all models: every language is one, and `models:` names the others."""
        return set(self.table) | set(self.top.models)

    def is_model(self, name: str) -> bool:
        return name in self.table or name in self.top.models

    @functools.cache  # noqa: B019
    def languages_of(self, model: str) -> tuple[str, ...]:
        """Return the languages of a model; raise a UserError with similar names if there is no such model."""
        if not self.is_model(model):
            known = self.known_models() | set(self.batches)
            raise UserError(f"there is no model {model!r}{nearest_or_new(model, known)}")
        entries = (self.top.models.get(each) for each in reversed(self._inherited(model)))
        languages = next((entry.languages for entry in entries if entry and entry.languages), [])
        if not languages and (codes := [each for each in self._inherited(model) if each in self.table]):
            return (codes[-1],)
        if not languages and (challenge := self.challenge_of(model)):
            return tuple(challenge.languages)
        if not languages:
            if ancestors := self.ancestors(model):
                return self.languages_of(ancestors[0])
            raise UserError(f"{self.origin('models.' + model)}: models.{model} needs `languages:`, a list of codes")
        self._check_languages(f"{self.origin('models.' + model)}: models.{model}.languages", languages)
        return tuple(languages)

    def models_reading(self, code: str) -> tuple[str, ...]:
        """Return the models of a language: its own, and the mixtures that it is in."""
        mixtures = (name for name in self.top.models if code in self.languages_of(name))
        return tuple(dict.fromkeys((code, *mixtures)))

    @functools.cache  # noqa: B019
    def _inherited(self, model: str) -> tuple[str, ...]:
        """Return the models whose entries a model's values come from (`like`), the farthest first, itself last.

        A UserError says that a model is like itself, or like none that there is.
        """
        chain = [model]
        while (entry := self.top.models.get(chain[0])) and entry.like:
            where = f"{self.origin(f'models.{chain[0]}.like')}: models.{chain[0]}.like = {entry.like!r}"
            if entry.like in chain:
                raise UserError(
                    f"{where}: {' is like '.join([*reversed(chain), entry.like])}: a model cannot be like itself"
                )
            if not self.is_model(entry.like):
                raise UserError(f"{where}: there is no such model{nearest_or_new(entry.like, self.known_models())}")
            chain.insert(0, entry.like)
        return tuple(chain)

    def challenge_of(self, model: str) -> Challenge | None:
        """Return the challenge that a model takes part in; None without one."""
        name = self._challenge(model)
        return self.challenges[name] if name else None

    @functools.cache  # noqa: B019
    def _challenge(self, model: str) -> str:
        """Return the name of a model's challenge, "" without one; raise a UserError if there is no such challenge."""
        for each in reversed(self._inherited(model)):
            if (entry := self.top.models.get(each)) and entry.challenge:
                if entry.challenge not in self.challenges:
                    where = self._cells[each][0] if each in self._cells else self.origin(f"models.{each}.challenge")
                    raise UserError(
                        f"{where}: models.{each}.challenge = {entry.challenge!r}: there is no such challenge"
                        f"{nearest(entry.challenge, self.challenges)}"
                    )
                check_copy(entry.challenge, self.root)
                return entry.challenge
        return ""

    def _add_cells(self, name: str, experiment: schema.Experiment) -> None:
        """Add the models of an experiment, and a batch with the experiment's name."""
        where = f"{self.origin(f'experiments.{name}')}: experiments.{name}"
        if name in self.batches or self.is_model(name):
            raise UserError(
                f"{where}: a {'batch' if name in self.batches else 'model'} has this name; choose another one"
            )
        bases = [each for base in experiment.bases for each in self.batches.get(base, [base])]
        for base in bases:
            if not self.is_model(base):
                known = self.known_models() | set(self.batches)
                raise UserError(f"{where}.base names {base!r}, which is not a model{nearest_or_new(base, known)}")
        self.cells[name] = experiments.cells(name, experiment, bases, where)
        for cell in self.cells[name]:
            if self.is_model(cell.name) or cell.name in self.batches:
                raise UserError(
                    f"{where}: its model {cell.name} has the name of another model or batch; rename the latter"
                )
            self.top.models[cell.name] = ModelEntry.model_validate(cell.entry())
            self._cells[cell.name] = (f"{where}, model {cell.name}", cell)
        self.batches[name] = [cell.name for cell in self.cells[name]]

    def ancestors(self, model: str) -> list[str]:
        """Return the models here that a model continues, the nearest first; raise a UserError if there is a circle."""
        chain, names, where = [model], self.known_models(), ""
        while (source := self._set_source(chain[-1])) and kind_of(source[0], names) == "model":
            where = where or source[1]
            if source[0] in chain:
                raise UserError(
                    f"{where}: model.source: {' continues '.join([*chain, source[0]])}: a model cannot continue itself;"
                    " set another model.source, under models.<name>"
                )
            chain.append(source[0])
        return chain[1:]

    def _set_source(self, model: str) -> tuple[str, str] | None:
        """Return `model.source` of a model, and the layer that sets it; None if it has no source."""
        for layer in reversed(self._layers("models", model, ["model"], self._set_preset(model))):
            if (source := lookup(layer.values, ("model", "source"))) is not ABSENT:
                return (source, layer.label) if isinstance(source, str) and source not in NULL else None
        return None

    def language(self, code: str) -> Language:
        """Return the table's row of a language; raise a UserError with similar codes if there is none."""
        if code not in self.table:
            raise UserError(f"there is no language {code!r}{nearest_or_new(code, self.table)}")
        return self.table[code]

    @functools.cache  # noqa: B019
    def suite(self, name: str) -> Suite:
        """Return the evaluation suite with this name; raise a UserError if there is none, or it has a mistake."""
        suite = self._dataset(Suite, self.top.suites, "suites", name)
        if suite is None:
            known = config_names(SUITES, self.root) | set(self.top.suites)
            raise UserError(f"there is no suite {name!r}{nearest(name, known)}")
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
        if task := self._dataset(Task, self.top.tasks, "tasks", name):
            return task
        known = config_names(TASKS, self.root) | set(self.top.tasks)
        bare = name.removesuffix(SOUND)
        if bare != name and bare in known:
            return self.task(bare).model_copy(update={"protocol": SOUND[1:], "tuning": {}})
        raise UserError(f"there is no task {name!r}{nearest(name, known)}")

    def _dataset(self, kind: type[D], own: dict[str, D], group: str, name: str) -> D | None:
        """Return an entry of `suites:` or `tasks:`, or a file of this folder of `config/`; None if there is neither."""
        if name in own:
            self._check_languages(f"{self.origin(f'{group}.{name}')}: {group}.{name}", own[name].covered)
            return own[name]
        folder = f"config/{group}/"
        return self._file(kind, f"{folder}{name}.yaml") if name in config_names(folder, self.root) else None

    def _file(self, kind: type[S], path: str) -> S:
        """Read and validate a file of `config/`."""
        return self._validate(kind, read_yaml(config_file(path, self.root)), "", lambda _key, _message: path)

    def _check_languages(self, entry: str, codes: Iterable[str]) -> None:
        """Raise a UserError if an entry of the configuration names an unknown language."""
        for code in codes:
            if code not in self.table:
                raise UserError(f"{entry} names {code!r}, which is not a language{nearest_or_new(code, self.table)}")

    @functools.cache  # noqa: B019
    def tuning(self, task: str) -> Tuning:
        """Return how models are tuned for a task: its protocol, with the keys that the task changes."""
        asked = self.task(task)
        known = config_names(PROTOCOLS, self.root)
        own = task in self.top.tasks
        where = f"{self.origin(f'tasks.{task}')}: tasks.{task}." if own else f"{TASKS}{task}.yaml: "
        if asked.protocol not in known:
            raise UserError(
                f"{where}protocol = {asked.protocol!r}: there is no such file{nearest(asked.protocol, known)}"
            )
        path = f"{PROTOCOLS}{asked.protocol}.yaml"
        values = merge(read_yaml(config_file(path, self.root)), asked.tuning)

        def label(key: str, _message: str) -> str:
            return f"{where}tuning" if asked.tuning and key.split(".")[0] in ("", *asked.tuning) else path

        return self._validate(Tuning, values, "", label)

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

    # The settings of a model or a corpus.

    @functools.cache  # noqa: B019  one Configuration per process
    def model(self, name: str) -> ResolvedModel:
        """Return the resolved configuration of a model."""
        languages = self.languages_of(name)
        preset = self._preset(name, languages)
        self._refuse_lost_budget(name, preset, languages)
        layers = self._layers("models", name, MODEL_SECTIONS, preset)
        theirs = self._shape_of(name)
        with_shape = shape_laid_under(layers, theirs)
        self._check_recipe(name, with_shape)  # first: other mistakes may be only in what the recipe sets
        sections, origins = self._sections(MODEL_SECTIONS, with_shape)
        if not sections["train"].averages:  # there is no average to export
            sections["export"] = sections["export"].model_copy(update={"variants": ["main"], "default_variant": "main"})
        source = source_of(name, sections["model"], layers, origins, self.known_models(), theirs)
        named = {"suites": self.suite, "snapshot_suites": self.suite, "tasks": self.tuning}
        for key, find in named.items():
            for each in getattr(sections["evaluation"], key):
                try:
                    find(each)
                except UserError as error:
                    raise UserError(f"{origins[f'evaluation.{key}']}: evaluation.{key}: {error}") from None
        resolved = ResolvedModel(
            name=name,
            languages=languages,
            origins=origins,
            preset=preset,
            recipe=self._recipe(name)[0],
            source=source,
            **sections,
        )
        self._warn_of_recipe(resolved)
        if challenge := self.challenge_of(name):
            check_limit(resolved, self._challenge(name), challenge, [self.model(each) for each in self.ancestors(name)])
        if source and source.kind == "model":
            check_source(resolved, self.model(source.name))
        check_prefix_space(resolved, self.model(source.name) if source and source.kind == "model" else None)
        check_together(resolved, layers, shape_is_known=not source or "max_position_embeddings" in theirs)
        return resolved

    def _shape_of(self, model: str) -> dict[str, Any]:
        """Return the known keys of the section `model` of the workflow's model that `model` continues."""
        ancestors = self.ancestors(model)
        if not ancestors:
            return {}
        base = self.model(ancestors[0]).model
        known = {"architecture": base.architecture}
        if self._set_source(ancestors[-1]):
            return known
        keys = SHAPE if base.architecture in OURS else ("max_position_embeddings",)
        return known | {key: getattr(base, key) for key in keys}

    @functools.cache  # noqa: B019
    def corpus(self, code: str) -> ResolvedCorpus:
        """Return the resolved corpus section of a language."""
        self.language(code)
        preset = self._preset(code, (code,))  # the preset of the model that has only this language
        sections, origins = self._sections(["corpus"], self._layers("languages", code, ["corpus"], preset))
        resolved = ResolvedCorpus(code, (code,), origins, **sections)
        check_format(resolved)
        for name in resolved.corpus.decontaminate:
            self._check_decontaminate(resolved, name)
        return resolved

    def _check_decontaminate(self, resolved: ResolvedCorpus, name: str) -> None:
        """Raise a UserError if a suite of `corpus.decontaminate` is unknown or has no sentences.

        In the language's own section, the suite must have items of the language. Elsewhere the key is for all of them.
        """
        where, code = f"{resolved.origins['corpus.decontaminate']}: corpus.decontaminate", resolved.name
        try:
            suite = self.suite(name)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        if suite.kind not in ("pairs", "choices"):
            raise UserError(f"{where}: {name} (kind: {suite.kind}) has no sentences to look for; leave it out")
        own = resolved.origins["corpus.decontaminate"].endswith(f"languages.{code}")
        if own and not {code, self.language(code).language_code} & set(suite.covered):
            raise UserError(f"{where}: {name} has no items of {code}, only of {some(suite.covered)}; leave it out")

    def _layers(self, group: str, name: str, sections: list[str], preset: str) -> list[Layer]:
        """Return all layers of some sections, the last one being the entry `name` in `models:` or `languages:`."""
        layers = [(DEFAULTS, self.defaults)]
        if config_file(f"{PRESETS}{preset}.yaml", self.root).is_file():  # not auto, and no mistake
            layers.append((f"{PRESETS}{preset}.yaml", self._preset_values(preset)))
        if group == "models":
            recipe, _ = self._recipe(name)
            layers.append((f"{RECIPES}{recipe}.yaml", self._recipe_values(recipe)))
        layers += self.sources
        if group == "languages" and (owner := self._challenge_of_corpus.get(name)):
            check_copy(owner, self.root)
            entry = self.challenges[owner].languages[name]
            layers = [(DEFAULTS, self.defaults), (file_of(owner), {"corpus": entry.corpus})]
        elif group == "models" and (challenge := self.challenge_of(name)):
            layers.append((file_of(self._challenge(name)), challenge.settings))
        for each in self._inherited(name) if group == "models" else [name]:
            layers += [(f"{label}, {group}.{each}", lookup(values, (group, each))) for label, values in self.sources]
            if group == "models" and each in self._cells:
                label, cell = self._cells[each]
                layers.append((label, cell.entry()))
                if cell.seed > 1 and "train" in sections:
                    layers.append((label, {"train": {"seed": self.model(cell.base).train.seed + cell.seed - 1}}))
        return [
            Layer({key: value for key, value in values.items() if key in sections}, label)
            for label, values in layers
            if isinstance(values, dict)
        ]

    # Which source a value came from.

    def origin(self, dotted: str) -> str | None:
        """Return the label of the user's last source that sets a key; None if none does."""
        return self._origin(dotted.split("."))

    def _origin(self, keys: Sequence[str]) -> str | None:
        return next((label for label, values in reversed(self.sources) if lookup(values, keys) is not ABSENT), None)

    def origin_of_name(self, name: str) -> str:
        """Return the label of the user's source that names a model, language, batch, suite or experiment."""
        groups = ("models", "languages", "batches", "suites", "tasks", "experiments")
        places = [*((group, name) for group in groups), ("tasks", name.removesuffix(SOUND))]
        return next(filter(None, map(self._origin, places)), "?")

    # Details.

    def _set_preset(self, model: str) -> str:
        """Return the preset of a model as the configuration names it, perhaps auto."""
        entries = (self.top.models.get(each) for each in reversed(self._inherited(model)))
        return next((entry.preset for entry in entries if entry and entry.preset), self.top.preset)

    def _preset(self, name: str, languages: tuple[str, ...]) -> str:
        preset = self._set_preset(name)
        known = config_names(PRESETS, self.root) | {"auto"}
        if preset not in known:
            of_cell = self._cells[name][0] if name in self._cells else None
            where = of_cell or self.origin(f"models.{name}.preset") or self.origin("preset")
            raise UserError(f"{where}: preset = {preset!r} of model {name} is not allowed{nearest(preset, known)}")
        if preset != "auto":
            return preset
        if len(languages) == 1:
            return "base" if self.table[languages[0]].tier == 1 else "small"
        return "multilingual"

    @functools.cache  # noqa: B019
    def _recipe(self, model: str) -> tuple[str, str]:
        """Return the recipe of a model, and where it is set; raise a UserError if there is no such recipe."""
        recipe, key, where = self.top.recipe, "recipe", self.origin("recipe") or DEFAULTS
        for each in self._inherited(model):
            if (entry := self.top.models.get(each)) and entry.recipe:
                recipe, key = entry.recipe, f"models.{each}.recipe"
                where = self._cells[each][0] if each in self._cells else f"{self.origin(key)}"
        known = config_names(RECIPES, self.root)
        if recipe not in known:
            raise UserError(f"{where}: {key} = {recipe!r}: there is no such recipe{nearest(recipe, known)}")
        return recipe, where

    @functools.cache  # noqa: B019
    def _recipe_values(self, recipe: str) -> dict[str, Any]:
        path = f"{RECIPES}{recipe}.yaml"
        self._sections_of_file(path, Recipe.model_fields)
        checked = self._file(Recipe, path)
        for section in ("model", "train"):
            known = SECTIONS[section].model_fields
            for key, value in getattr(checked, section).items():
                if key not in known:
                    meant = meant_key(f"{section}.", key, value, known, path)
                    raise UserError(f"{path}: unknown key {section}.{key}{meant}")
        return checked.model_dump(exclude_unset=True)

    def _check_recipe(self, name: str, layers: list[Layer]) -> None:
        """Raise a UserError if a model's recipe is not for models like this one; `layers` are the model's."""
        recipe, where = self._recipe(name)
        path = f"{RECIPES}{recipe}.yaml"
        values = functools.reduce(merge, (layer.values for layer in layers), {})
        for dotted, asked in flatten(self._recipe_values(recipe).get("only", {})).items():
            section, _, key = dotted.partition(".")
            known = {f"{each}.{field}" for each in MODEL_SECTIONS for field in SECTIONS[each].model_fields}
            if dotted not in known:
                raise UserError(f"{path}: only: there is no key {dotted}{nearest(dotted, known)}")
            field = SECTIONS[section].model_fields[key]
            allowed = asked if isinstance(asked, list) else [asked]
            for each in allowed:
                if as_read(field, each) is ABSENT:
                    raise UserError(f"{path}: only: {dotted} = {each}: this key cannot have this value")
            found = values.get(section, {}).get(key, field.default)
            if as_read(field, found) not in [ABSENT, *(as_read(field, each) for each in allowed)]:
                only = " or ".join("null" if each is None else str(each) for each in allowed)
                advice = f"set models.{name}.recipe: published"
                if name in self._cells:
                    label, cell = self._cells[name]
                    advice = f"set models.{cell.base}.recipe: published"
                    if where == label:
                        advice = f"leave {recipe} out of what the experiment varies"
                raise UserError(
                    f"{where}: recipe {recipe} of model {name} is only for {dotted} = {only}, and this model has"
                    f" {found} ({where_set(layers, dotted, '')}); {advice}"
                )

    def _warn_of_recipe(self, resolved: ResolvedModel) -> None:
        """Warn if a model's settings leave no more than a part of what its recipe was measured with."""
        name, train, path = resolved.name, resolved.train, f"{RECIPES}{resolved.recipe}.yaml"
        values = self._recipe_values(resolved.recipe)
        least, most = values.get("least_epochs", 0), values.get("most_epochs") or math.inf
        if train.max_steps is None and train.words is None and not least <= train.epochs <= most:
            meant = f"at least {least:g}" if train.epochs < least else f"at most {most:g}"
            _warn(
                f"{resolved.origins['train.epochs']}: train.epochs = {train.epochs:g} of model {name}: {path} is for"
                f" {meant}; compare it with recipe: published"
            )
        kept = [f"train.{key}" for key in ("learning_rate", "weight_decay")]
        kept = [key for key in kept if resolved.origins[key] == path]
        other = resolved.origins["train.optimizer"]
        if kept and other != path and "optimizer" in values.get("train", {}):
            _warn(
                f"{other}: train.optimizer = {train.optimizer} of model {name}: {' and '.join(kept)} still"
                f" come from {path}, which sets them for {values['train']['optimizer']}; set them, too"
            )

    def _refuse_lost_budget(self, name: str, preset: str, languages: tuple[str, ...]) -> None:
        """Raise a UserError if a model's preset sets a text budget, but one of its languages uses another preset."""
        budget = self._preset_values(preset).get("corpus", {}).get("budget")
        for code in languages if budget is not None else ():
            origin = self.corpus(code).origins["corpus.budget"]
            if code in self._challenge_of_corpus:
                self._refuse_other_budget(name, preset, budget, code)
            elif origin == DEFAULTS or (origin.startswith(PRESETS) and origin != f"{PRESETS}{preset}.yaml"):
                raise UserError(
                    f"preset {preset} of model {name} sets corpus.budget = {budget}, but a budget belongs to a"
                    f" language, and {code} has another preset: set languages.{code}.corpus.budget, or preset: {preset}"
                    " for all"
                )

    def _refuse_other_budget(self, name: str, preset: str, budget: Any, code: str) -> None:
        """Raise a UserError if a model that is not in the challenge of a corpus has a preset with another budget."""
        resolved, owner = self.corpus(code), self._challenge_of_corpus[code]
        if owner != self._challenge(name) and resolved.corpus.budget != schema.budget(budget):
            raise UserError(
                f"preset {preset} of model {name} sets corpus.budget = {budget}, but {code} is the text of the"
                f" challenge {owner}, with corpus.budget = {resolved.corpus.budget}"
                f" ({resolved.origins['corpus.budget']}), and all its models share it: choose another preset, or set"
                f" languages.{code}.corpus.budget"
            )

    @functools.cache  # noqa: B019
    def _preset_values(self, preset: str) -> dict[str, Any]:
        path, known = f"{PRESETS}{preset}.yaml", [*MODEL_SECTIONS, "corpus"]
        values = self._sections_of_file(path, known)
        for section, keys in values.items():
            if not isinstance(keys, dict):
                raise UserError(f"{path}: {section} = {keys!r}: keys are expected; leave out a section that has none")
        if values.get("corpus", {}).keys() - {"budget"}:
            raise UserError(f"{path}: a preset may set only one key of the section corpus, corpus.budget")
        return values

    def _sections_of_file(self, path: str, known: Collection[str]) -> dict[str, Any]:
        """Read a file of `config/`; raise a UserError if it has an unknown section."""
        values = read_yaml(config_file(path, self.root))
        for section in values:
            if section not in known:
                raise UserError(f"{path}: unknown section {section}{nearest(str(section), known)}")
        return values

    def _sections(self, names: list[str], layers: list[Layer]) -> tuple[dict[str, Any], dict[str, str]]:
        """Merge layers and validate the named sections: ({name: section}, {dotted key: where it comes from})."""
        merged: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for layer in layers:
            merged = merge(merged, layer.values)
            origins |= dict.fromkeys(dotted_keys(layer.values), layer.label)
        label = functools.partial(where_set, layers)
        return {n: self._validate(SECTIONS[n], merged.get(n, {}), f"{n}.", label) for n in names}, origins

    def _validate(self, section: type[S], values: Any, prefix: str, label: Callable[[str, str], str]) -> S:
        """Validate values, or raise a UserError of one line: file: key = value: what is allowed (`mistakes.worded`).

        `label` returns the name of the file for a dotted key and a message. If the message is about several keys, it
        names them.
        """
        try:
            return section.model_validate(values)
        except pydantic.ValidationError as error:
            key, message = worded(error, values, prefix)
            raise UserError(f"{label(key, message)}: {message}") from None

    def _language_table(self) -> dict[str, Language]:
        table = read_table(self.root / "config/languages.tsv")
        real = table.keys()
        for name, challenge in self.challenges.items():
            for code, entry in challenge.languages.items():
                table[code] = language_of_entry(code, entry, table, file_of(name))
        entries = sorted(self.top.languages.items(), key=lambda each: bool(each[1].language))  # others' languages last
        for code, entry in entries:
            where = f"{self.origin('languages.' + code)}"
            if code in real and entry.language not in ("", code):
                raise UserError(
                    f"{where}: languages.{code}.language = {entry.language}: {code} is a language itself; give this"
                    " text a name of its own"
                )
            if code not in table and not (entry.name or entry.language):
                raise UserError(
                    f"{where}: languages.{code} is not in config/languages.tsv,"
                    f" and a language of your own needs a `name`{nearest_or_new(code, table)}"
                )
            table[code] = language_of_entry(code, entry, table, where)
        return table


def as_read(field: FieldInfo, value: Any) -> Any:
    """Return a value of a key as its section reads it, such as 0.01 for the text 1e-2; ABSENT if it is a mistake."""
    try:
        return schema.read_alone(field, value)
    except pydantic.ValidationError:
        return ABSENT


def language_of_entry(code: str, entry: LanguageEntry, table: dict[str, Language], where: str) -> Language:
    """Return the row of an entry of `languages:`: what it leaves out is as in the table, or as in its `language`.

    A UserError says that its `language` is unknown.
    """
    base = table.get(code) or Language(code, code, 3, "", 1.0, tag_of(code))
    if entry.language and entry.language != code:
        if entry.language not in table:
            near = nearest_or_new(entry.language, table)
            raise UserError(f"{where}: languages.{code}.language = {entry.language!r}, which is not a language{near}")
        of = table[entry.language]
        base = dataclasses.replace(of, code=code, language=of.language_code)
    given = entry.model_dump(exclude={"corpus", "language"}, exclude_unset=True)
    return dataclasses.replace(base, **{key: value for key, value in given.items() if value is not None})


def check_source(resolved: ResolvedModel, source: ResolvedModel) -> None:
    """Raise a UserError if no model can continue `source`, a model of this workflow."""
    where = f"{resolved.origins['model.source']}: model.source = {source.name}"
    if source.train.lora_rank:
        raise UserError(
            f"{where}: the results of this model are adapters; name the folder where they are merged,"
            f" ./results/of/{source.name}/export"
        )
    if source.train.objective == "labels":
        raise UserError(f"{where}: this is a label model; name a language model")


def check_prefix_space(resolved: ResolvedModel, source: ResolvedModel | None) -> None:
    """Raise a UserError if `tokenizer.prefix_space` is asked of a tokenizer that is not trained here.

    `source` is the model of this workflow that the model continues: its tokenizer may already put a space.
    """
    tokenizer, origins = resolved.tokenizer, resolved.origins
    if not tokenizer.prefix_space:
        return
    kept = None
    if tokenizer.source:
        kept = f"tokenizer.source = {tokenizer.source}"
    elif resolved.source and not (source and source.tokenizer.prefix_space):
        kept = f"model.source = {resolved.source.name}"
    elif (resolved.model.config or {}).get("model_type") == "canine":
        kept = "model.config: the characters of canine"
    if kept:
        raise UserError(
            f"{origins['tokenizer.prefix_space']}: tokenizer.prefix_space: true is for a tokenizer that is trained, but"
            f" {kept} brings one, which stays as it is; set tokenizer.prefix_space: false for model {resolved.name}"
        )


def check_together(resolved: ResolvedModel, layers: list[Layer], shape_is_known: bool) -> None:
    """Raise a UserError if the sections of a model contradict each other.

    `shape_is_known` is False for a model whose source must still be fetched.
    """
    model, train, evaluation, origins = resolved.model, resolved.train, resolved.evaluation, resolved.origins
    if train.freeze != "none" and not resolved.source:
        raise UserError(
            f"{origins['train.freeze']}: train.freeze: encoder keeps the weights of model.source, but model.source is"
            " not set"
        )
    message = None
    if train.lora_rank and (model.architecture in OURS or model.source is None):
        message = (
            f"train.lora_rank = {train.lora_rank}: adapters change a trained transformers model; set model.source to"
            " one (model.architecture: transformers), or train.lora_rank: 0"
        )
    elif model.architecture == "transformers" and train.objective == "hybrid":
        message = (
            "model.architecture = 'transformers' has no hybrid models, only masked or causal; set train.objective:"
            " masked, diffusion or causal"
        )
    elif model.architecture == "norbert4" and train.objective == "labels":
        message = (
            "model.architecture = 'norbert4' has no label models (train.objective: labels); choose gpt_bert, or"
            " fine-tune the model for a task (evaluation.tasks)"
        )
    elif model.config:
        message = wrong(model.config)
    if message:
        where = where_set(layers, "model.", f"model.source {message}" if resolved.source else message)
        raise UserError(f"{where}: {message}")
    if resolved.export.adapter != "none" and not train.lora_rank:
        raise UserError(
            f"{origins['export.adapter']}: export.adapter = {resolved.export.adapter!r} asks for adapters, but"
            " train.lora_rank = 0 trains none; set export.adapter: none, or set a rank"
        )
    for key, asks in (("snapshots", ": true"), ("snapshot_suites", "")):
        if getattr(evaluation, key) and not resolved.run.snapshots:
            raise UserError(
                f"{origins[f'evaluation.{key}']}: evaluation.{key}{asks} scores what the training keeps, but"
                " run.snapshots is empty; set run.snapshots, for example to babylm (a finished training does not run"
                " again)"
            )
    if not shape_is_known:
        return
    longest, positions = max(train.sequence_lengths), model.max_position_embeddings
    if longest > positions:
        raise UserError(
            f"{origins['train.sequence_lengths']}: train.sequence_lengths has {longest}, more than"
            f" model.max_position_embeddings = {positions}; lower the first or raise the second"
        )
    if model.architecture in OURS:
        message = too_large(model, 0 if resolved.tokenizer.source else resolved.tokenizer.vocab_size)
    elif train.objective != "labels" and evaluation.sequence_length > positions:  # label models cut their texts
        message = (
            f"evaluation.sequence_length = {evaluation.sequence_length} is more than model.max_position_embeddings ="
            f" {positions}, the most that model.architecture = 'transformers' can read; lower the first or raise the"
            " second"
        )
    if message:
        raise UserError(f"{where_set(layers, 'model.', message)}: {message}")
