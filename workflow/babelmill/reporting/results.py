"""Find and read the results of models: manifests and the small files beside them, never weights."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from babelmill.core import manifest
from babelmill.core.escape import some
from babelmill.core.files import UNREADABLE, UserError, read_json
from babelmill.evaluation.overlaps import overlap_of
from babelmill.release.card.training_history import Line, read_record

# The files that are read; of other stages, the manifests.
READ = {"evaluate": "evaluation.json", "score": "scores.json", "tune": "scores.json", "train": "metrics.jsonl"}

# The folders of results by stage and part: a language, a suite, or a task and its seed (`rte.42`); else "".
Folders = Mapping[tuple[str, str], Path]


def of_converted(folder: Path) -> Folders:
    """Return where the results lie that a converted model was made from, or a file of baselines/ lists."""
    root, made_from = folder.resolve().parents[1], manifest.read(folder)["settings"]["made_from"]
    trained = [root / path for path in made_from.get("train", []) if (root / path / manifest.NAME).is_file()]
    shards = [path for each in trained for path in manifest.read(each)["settings"]["made_from"]["shards"]]
    found: dict[tuple[str, str], Path] = {}
    for path in (root / path for paths in [*made_from.values(), shards] for path in paths):
        if (path / manifest.NAME).is_file():
            about = manifest.read(path)
            stage, asked = about["stage"], about["settings"]
            part = {"score": asked.get("suite"), "tune": f"{asked.get('task')}.{asked.get('seed')}"}.get(stage, "")
            found[stage, asked["languages"][0] if stage in ("corpus", "shards") else part or ""] = path
    return found


def converted_models() -> list[str]:
    """Return the models that were converted in this folder."""
    return sorted(path.parent.name for path in Path("converted").glob(f"*/{manifest.NAME}"))


def find(word: str) -> "ModelResults":
    """Return the results of a model, given by its name, its converted folder, or a folder of scores made by hand."""
    folder = Path(word)
    by_hand: dict[tuple[str, str], Path] = {}
    for path in sorted(path for depth in ("", "*/", "*/*/") for path in folder.glob(f"{depth}scores.json")):
        about = read_json(path)
        key = ("score", about["suite"]) if "suite" in about else ("tune", f"{about.get('task')}.{about.get('seed')}")
        if key in by_hand:
            raise UserError(f"{path.parent} and {by_hand[key]} hold the same scores; name one of them")
        by_hand[key] = path.parent
    converted = folder if (folder / manifest.NAME).is_file() else Path("converted", word)
    baseline = Path("baselines", f"{word}.json")
    if not by_hand and baseline.is_file():
        return read_results(word, of_converted(baseline), manifest.read(baseline)["settings"]["languages"])
    if not by_hand and not (converted / manifest.NAME).is_file():
        raise UserError(
            f"{word}: no converted model of this name, nor a folder of scores; models that were converted here:"
            f" {some(converted_models()) or 'none yet'}"
        )
    return read_results(word if by_hand else converted.resolve().name, by_hand or of_converted(converted))


@dataclasses.dataclass
class ModelResults:
    """A model and the results that exist for it."""

    name: str  # the model's name
    folders: Folders  # where its results lie
    languages: list[str] = dataclasses.field(default_factory=list)  # the codes of its languages
    state: str = "converted"  # "converted" or "measured", or how far the model has got
    note: str = ""  # why it has got no further
    problems: list[str] = dataclasses.field(default_factory=list)  # messages about results that could not be read
    manifests: dict[tuple[str, str], dict[str, Any]] = dataclasses.field(default_factory=dict)  # as in `folders`
    evaluation: dict[str, Any] | None = None  # evaluation.json
    scores: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  # {suite: scores.json}
    # {suite: overlap.json} of the suites that were looked for in the training text.
    overlaps: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    tuned: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  # {task and seed: scores.json}
    record: list[Line] = dataclasses.field(default_factory=list)  # the lines of metrics.jsonl

    def manifest(self, stage: str) -> dict[str, Any]:
        """Return the manifest of a stage with one folder; an empty one if there is none."""
        return self.manifests.get((stage, ""), {"settings": {}, "figures": {}, "upstream": {}})

    @property
    def precision(self) -> str | None:
        """Return the precision in which the model was trained; None if it is not known."""
        return self.manifest("train")["figures"].get("precision")

    @property
    def default(self) -> str:
        """Return the variant of the weights that users load by default."""
        variants = (self.evaluation or {}).get("variants", {})
        exported = self.manifest("export")["settings"].get("export", {})
        return exported.get("default_variant", next(iter(variants), "main"))

    def variants_of(self, code: str) -> dict[str, Any]:
        """Return the entry of a language in evaluation.json; the whole file if the only language has no entry."""
        found = (self.evaluation or {}).get("languages", {}).get(code)
        return found or (self.evaluation or {} if len(self.languages) == 1 else {})


def different_precisions(models: Iterable[ModelResults]) -> str:
    """Return "eng ran in bf16, deu in fp32"; "" if no precisions differ."""
    names: dict[str, list[str]] = {}
    for model in models:
        if model.precision:
            names.setdefault(model.precision, []).append(model.name)
    if len(names) < 2:
        return ""
    return ", ".join(f"{some(names[each])}{'' if i else ' ran'} in {each}" for i, each in enumerate(names))


def read_all(asked: dict[str, Any], states: dict[str, tuple[str, str]] | None = None) -> list[ModelResults]:
    """Return the models of a report with their results, in the order of the group or experiment.

    `states`: {model: (state, note)}; results may then be missing. None: all models are complete, and a result that is
    missing or differs from its manifest is an error.
    """
    models = []
    for name in asked["order"]:
        about = asked["models"][name]
        folders = {title.partition(" ")[::2]: Path(path) for title, path in about["results"].items()}
        there = {key: path for key, path in folders.items() if (path / manifest.NAME).is_file()}
        if states is None and (lacking := [key for key in folders if key[0] in READ and key not in there]):
            raise UserError(f"{name}: there is no result of {' '.join(lacking[0])}".rstrip())
        model = read_results(name, there, about["languages"], strict=states is None)
        model.state, model.note = states[name] if states else (model.state, "")
        models.append(model)
    return models


def read_results(name: str, folders: Folders, languages: list[str] | None = None, strict: bool = True) -> ModelResults:
    """Read the results in folders; raise a UserError if one is damaged, or note it in `problems` if not `strict`."""
    model = ModelResults(name, folders, languages or [])
    for (stage, part), folder in folders.items():
        try:
            about = manifest.verify(folder, READ[stage]) if stage in READ else manifest.read(folder)
            if stage == "train":
                model.record = read_record(folder / READ[stage])
                model.languages = languages or about["settings"].get("languages", [])
            elif stage == "evaluate":
                model.evaluation = read_json(folder / READ[stage])
            elif stage == "score":
                if path := overlap_of(folder):
                    model.overlaps[part] = read_json(path)
                model.scores[part] = read_json(folder / READ[stage])
            elif stage == "tune":
                model.tuned[part] = read_json(folder / READ[stage])
            model.manifests[stage, part] = about
        except UNREADABLE as error:
            known = isinstance(error, UserError | OSError)
            message = str(error) if known else f"{folder}: cannot be read ({type(error).__name__}: {error})"
            if strict:
                raise UserError(message) from error
            model.problems += [message] if message not in model.problems else []
    return model
