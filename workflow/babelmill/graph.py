"""Say which results a configuration asks for, where they are, and which of them are missing.

What a job is asked to do is its settings: the sections of the configuration that its stage reads, the version of the
stage, and the paths of the results that it is made from. The digest of the settings is the key in the path of its
result, `results/{stage}/{label}-{key}`. So a changed value gives another path to every result that depends on it, and
nothing else has to be compared: a result is there if its manifest is. Results that carry the name of a model, such as
`converted/eng`, are there if their manifest holds the present settings.

The rules ask this module, and so do the commands: `babelmill why` shows what a dry run decides.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from babelmill import __version__
from babelmill.config import inputs
from babelmill.config.layers import flatten
from babelmill.config.resolve import Configuration
from babelmill.core import escape, manifest, modules
from babelmill.core.files import UserError, atomic_write, canonical_json, read_json, read_object
from babelmill.stages import (
    CHECKPOINTS,
    LABEL,
    RESULTS,
    SETTINGS,
    STAGES,
    NamedStage,
    RunSettings,
    Stage,
    deliverable,
    in_one_line,
    key_of,
    run_settings_of,
)

ASKED = RESULTS / "asked"  # {model}.json: what a model asked for in its last run
LINKS = RESULTS / "of"  # {model}/{stage}: what a model uses now, for people
FEW = 3  # edited modules that are named
MODELS_OF: dict[Path, list[str]] = {}  # {the path of a result: the models that ask for it}, for the terminal


class Result:
    """The result of one job."""

    def __init__(
        self, graph: "Graph", stage: type[Stage], name: str, asked: dict[str, Any], part: str = "", owner: str = ""
    ) -> None:
        """Describe a result by its stage, its name (label and key, or model and part), and the content of its settings.

        `part`: the language, suite, task or table, if a model has several results of the stage. `owner`: the first
        model that has this result.
        """
        self.stage, self.name, self.asked, self.part, self.owner = stage, name, asked, part, owner
        self.models = MODELS_OF.setdefault(self.path, [])  # those that ask for it
        self._graph = graph

    @property
    def settings_file(self) -> Path:
        return SETTINGS / self.stage.stage / f"{self.name}.json"

    @cached_property
    def path(self) -> Path:
        """Return the folder of the result, or the .json file that it is."""
        return self.stage.path_of(self.name)

    @property
    def record(self) -> Path:
        """Return the file that says what the result was made from."""
        return self.path if self.path.suffix == ".json" else self.path / manifest.NAME

    @property
    def is_there(self) -> bool:
        """Return whether the result is there, as it is asked for. A UserError says that it is damaged."""
        if not self.record.is_file():
            return False
        if self.stage.named is None:
            return True
        about = manifest.read(self.record)
        return in_one_line(about["settings"]) == in_one_line(self.asked)

    @cached_property
    def upstream(self) -> list["Result"]:
        """Return the results that it is made from, as its settings name them."""
        return [self._graph.at(Path(path)) for paths in self.asked.get("made_from", {}).values() for path in paths]

    @property
    def training(self) -> "Result | None":
        """Return the training that the result follows from: itself, or one that it is made from.

        In its place, a model that is not trained here has the result of `base_model`.
        """
        if self.stage.stage == "train" or self.asked.get("unchanged"):
            return self
        of = [
            each for role in ("train", "export", "converted") for each in self.asked.get("made_from", {}).get(role, [])
        ]
        return self._graph.at(Path(of[0])).training if of else None

    @property
    def title(self) -> str:
        """Return its stage and part."""
        return f"{self.stage.stage} {self.part}".rstrip()

    def title_for(self, model: str) -> str:
        """Return how a model calls it: with the name of the model that it is of, if this model continues that one."""
        own = self.stage.of == "language" or self._graph.is_of(model, self)
        return self.title if own else f"{self.title} of {self.owner}"

    def runs(self) -> Iterator["Result"]:
        """Yield the results that have to be made for this one, itself included, the first ones first."""
        if not self.is_there:
            for each in self.upstream:
                yield from each.runs()
            yield self


class Graph:
    """The results that a configuration asks for."""

    def __init__(self, configuration: Configuration, leave_alone: Callable[[Path], bool] = lambda result: False):
        """Begin with no results. `leave_alone`: whether another run may read the settings of a result now."""
        self.configuration, self._leave_alone = configuration, leave_alone
        self._jobs: dict[tuple[str, str, str], Result] = {}
        self._paths: dict[Path, Result] = {}

    def result(self, stage: str, name: str, part: str = "") -> Result:
        """Return the result of a stage for a language or model, and a part of it.

        Models that ask for the same get the same object.
        """
        job = (stage, name, part)
        if job not in self._jobs:
            kind, configuration = STAGES[stage], self.configuration
            resolved = configuration.model(name) if kind.of == "model" else configuration.corpus(name)
            reads = kind.reads(resolved, part)
            made_from = {role: [self.result(*each) for each in jobs] for role, jobs in reads.items() if jobs}
            fields: dict[str, Any] = {"languages": list(resolved.languages)}
            fields |= kind.asked(configuration, resolved, part)
            fields["made_from"] = {role: [each.path.as_posix() for each in found] for role, found in made_from.items()}
            if issubclass(kind, NamedStage):
                fields["name"] = name
                carry_name = [each for found in made_from.values() for each in found if each.stage.named]
                keys = {each.path.as_posix(): key_of(each.asked) for each in carry_name}
                fields |= {"keys": keys} if keys else {}
            settings = kind.model_construct(**fields)
            asked = {"stage": stage, "version": kind.version} | settings.written()
            joined = ".".join(filter(None, (name, part)))
            if kind.of == "language":
                part = ".".join(filter(None, (part, name)))
            named = joined if kind.named else f"{settings.label()[:LABEL]}-{key_of(asked)}"
            result = Result(self, kind, named, asked, part, owner=name)
            self._jobs[job] = self._paths.setdefault(result.path, result)
        return self._jobs[job]

    def is_of(self, model: str, result: Result) -> bool:
        """Return whether a result is a model's own, not one of a model that it continues."""
        return self._jobs.get((result.stage.stage, model, result.part)) is result

    def find(self, stage: str, name: str) -> Result:
        """Return the result of a name: one that the configuration asks for, or else what its settings file says."""
        kind = STAGES[stage]
        if (path := kind.path_of(name)) not in self._paths:
            file = SETTINGS / stage / f"{name}.json"
            if not file.is_file():
                raise UserError(f"{path}: no model asks for this result ({file} is missing)")
            self._paths[path] = Result(self, kind, name, kind.read(file).raw)
        return self._paths[path]

    def at(self, path: Path) -> Result:
        """Return the result at a path that a settings file names."""
        if path not in self._paths:
            stage = next((each for each in STAGES.values() if path.parent == each.path_of("x").parent), None)
            if stage is None:
                raise UserError(f"{path}: not the path of a result")
            return self.find(stage.stage, path.stem if path.suffix == ".json" else path.name)
        return self._paths[path]

    def final(self, model: str) -> Result:
        """Return the result that a model is made for: `converted/eng`, or `baselines/gpt2.json`."""
        return self.result(deliverable(self.configuration, model).stage, model)

    def of_model(self, model: str) -> list[Result]:
        """Return the results that a model needs, in the order of the stages, each after its upstream."""
        inputs.check(self.configuration, model)
        found: dict[Path, Result] = {}

        def add(result: Result) -> None:
            for each in result.upstream:
                if each.path not in found:
                    add(each)
            found[result.path] = result
            if model not in result.models:
                result.models.append(model)

        add(self.final(model))
        self._refuse_other_snapshots(model)
        order = list(STAGES)
        return sorted(found.values(), key=lambda each: order.index(each.stage.stage))

    def _refuse_other_snapshots(self, model: str) -> None:
        """Raise a UserError if a model shares its training with one that keeps other snapshots: it would get these."""
        resolved = self.configuration.model(model)
        owner = self.result("train", model).owner if resolved.trained else model
        if (kept := self.configuration.model(owner).run.snapshots) != resolved.run.snapshots:
            expected = f"{kept} is expected, as model {owner} has it: both are one training"
            raise resolved.refused("run.snapshots", expected)

    def write(self, result: Result) -> None:
        """Write the settings file of a result and, of a training, its run settings, if they differ."""
        self.write_file(result.settings_file, result.asked, result.path)
        if result.training is result:
            self.write_file(
                run_settings_of(result.settings_file), self.run_settings(result.owner).written(), result.path
            )

    def write_file(self, path: Path, content: dict[str, Any], result: Path) -> None:
        """Write a settings file of a result, if it differs and no other run may read it now."""
        if not (path.exists() and self._leave_alone(result)):
            write_if_changed(path, content)

    def write_settings(self, model: str) -> None:
        """Write the settings files of what a model needs."""
        for result in self.of_model(model):
            self.write(result)

    def own(self, model: str) -> list[Result]:
        """Return the results of a model that carry their key, without those of a model that it continues."""
        named = (each for each in self.of_model(model) if each.stage.named is None)
        return [each for each in named if each.title_for(model) == each.title]

    def run_settings(self, model: str) -> RunSettings:
        """Return how the training of a model is monitored and saved."""
        resolved = self.configuration.model(model)
        return RunSettings(
            name=model,
            run=resolved.run,
            gpus=resolved.resources.gpus,
            bytes_per_word=inputs.bytes_per_word(resolved),
        )

    def begin(self, model: str) -> None:
        """Keep what a model asks for now, for `babelmill why`, and renew the links to what it uses."""
        asked = {each.title_for(model): each.asked for each in self.of_model(model)}
        write_if_changed(ASKED / f"{model}.json", asked)
        own = self.own(model)
        counts = Counter(each.stage.stage for each in own)
        links = dict[Path, str]()
        for each in own:
            stage = each.stage.stage
            path = LINKS / model / stage / (each.part if each.stage.several or counts[stage] > 1 else "")
            links[path] = os.path.relpath(each.path, path.parent)
        for path in sorted((LINKS / model).glob("**/*"), reverse=True):
            if not (path.is_symlink() and os.readlink(path) == links.get(path)):
                with contextlib.suppress(OSError):  # there is more in it, as in a folder that a copy made of a link
                    path.unlink() if path.is_symlink() else path.rmdir()
        for path, target in links.items():
            with contextlib.suppress(OSError):  # it is right, such a folder, or a file system without links
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(target)


def write_if_changed(path: Path, content: dict[str, Any]) -> None:
    """Write canonical JSON, unless the file has this content.

    There are thousands of files for 500 languages, so they are not flushed to disk: one that a crash left empty
    differs, and is written again.
    """
    with contextlib.suppress(UserError):  # there is none, or it is not whole
        if path.is_file() and in_one_line(read_json(path)) == in_one_line(content):
            return
    with atomic_write(path, "w", durable=False) as opened:
        opened.write(canonical_json(content))


def changed_values(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Name the settings that differ, as `tokenizer.vocab_size 8192 -> 4096`.

    A key that a settings file leaves out, because it cannot matter or has its neutral value, is `unset`. What a job is
    made from is no setting here: the results that it reads answer for themselves.
    """
    leave_out = ("made_from", "keys", "sources", "table")
    found = [
        f"{source} {'added' if source not in old else 'removed' if source not in new else 'changed'}"
        for old, new in [(before.get("sources", {}), now.get("sources", {}))]
        for source in sorted(old.keys() | new.keys())
        if old.get(source) != new.get(source)
    ]
    if before.get("table") != now.get("table"):
        found.append(f"{now.get('table', {}).get('file')} changed")
    before, now = (flatten({k: v for k, v in each.items() if k not in leave_out}) for each in (before, now))
    keys = sorted(key for key in before | now if before.get(key) != now.get(key))
    return found + [f"{key} {before.get(key, 'unset')} -> {now.get(key, 'unset')}" for key in keys]


def reasons(model: str, results: list[Result]) -> dict[Path, list[str]]:
    """Return {path: why it would run} of the results of a model, in the order of the stages; [] if it would not."""
    before, found = dict[str, Any](), dict[Path, list[str]]()
    with contextlib.suppress(UserError):  # it has not run, or nobody knows
        before = read_object(ASKED / f"{model}.json")
    run = {each.path for each in results[-1].runs()}
    for each in results:
        found[each.path] = []
        if each.path in run:
            title = each.title_for(model)
            why = changed_values(before[title], each.asked) if title in before else []
            because = list(dict.fromkeys(source.stage.stage for source in each.upstream if source.path in run))
            if not why and because:
                why = [f"runs because {' and '.join(because)} {'does' if len(because) == 1 else 'do'}"]
            if each.stage.stage == "train" and (done := steps_done(each)):
                why.append(f"continues after step {done:,}")
            found[each.path] = why or ["has not run yet" if title not in before else f"{each.path} is missing"]
    return found


def steps_done(training: Result) -> int:
    """Return the step after which a training continues; 0 if it has to begin."""
    saved = (CHECKPOINTS / training.name).glob("step-*.json")
    return max((int(path.stem.removeprefix("step-")) for path in saved), default=0)


def edits(results: Iterable[Result]) -> list[str]:
    """Return a line for each stage whose results stay though modules were edited since they were made.

    Nothing is said of results that another release made: their versions answer for it.
    """
    found: dict[str, dict[str, None]] = {}
    for each in results:
        if each.record.is_file() and (about := manifest.read(each.record))["version"] == __version__:
            found.setdefault(each.stage.stage, {}).update(dict.fromkeys(modules.edited(about.get("modules", {}))))
    return [
        f"{stage}: {escape.some(names, FEW)} {'was' if len(names) == 1 else 'were'} edited since; results stay"
        f" (to make them again: snakemake -R {stage})"
        for stage, names in found.items()
        if names
    ]
