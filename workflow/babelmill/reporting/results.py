"""What the results of a batch's models say: read from manifests and the small files beside them, never from weights."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from babelmill.core import manifest
from babelmill.core.files import UserError, read_json
from babelmill.release.training_history import Line, read_record
from babelmill.stages import STAGES

READ = {"evaluate": "evaluation.json", "score": "scores.json", "train": "metrics.jsonl"}
UNREADABLE = (UserError, OSError, LookupError, TypeError, ValueError)  # damaged, or of another version


@dataclasses.dataclass
class Model:
    """What there is of a model.

    Attributes:
        name: of the model.
        languages: its codes.
        asked: the suites that it is scored on.
        state: "converted", or how far it is.
        note: why it is no further.
        problems: what could not be read.
        manifests: by stage; of stages with several folders, by (stage, part).
        evaluation: evaluation.json.
        scores: scores.json of each suite.
        record: lines of metrics.jsonl.
    """

    name: str
    languages: list[str]
    asked: list[str]
    state: str = "converted"
    note: str = ""
    problems: list[str] = dataclasses.field(default_factory=list)
    manifests: dict[Any, dict[str, Any]] = dataclasses.field(default_factory=dict)
    evaluation: dict[str, Any] | None = None
    scores: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    record: list[Line] = dataclasses.field(default_factory=list)

    @property
    def default(self) -> str:
        """The variant of the weights that users load."""
        variants = (self.evaluation or {}).get("variants", {})
        exported = self.manifests.get("export", {"settings": {}})["settings"].get("export", {})
        return exported.get("default_variant", next(iter(variants), "main"))

    def variants_of(self, code: str) -> dict[str, Any]:
        """Return what evaluation.json says of a language: all of it, where it is the only one."""
        found = (self.evaluation or {}).get("languages", {}).get(code)
        return found or (self.evaluation or {} if len(self.languages) == 1 else {})


def read_all(asked: dict[str, Any], states: dict[str, tuple[str, str]] | None = None) -> list[Model]:
    """Return what there is of each model of a report.

    Args:
        asked: what the report is about, see `asked.asked_of`.
        states: (state, note) of each model. None: all of them are complete, and a result that is not there, or not
            what its manifest says, is an error.
    """
    models = []
    for name, about in asked["models"].items():
        model = Model(name, about["languages"], about["suites"])
        if states is not None:
            model.state, model.note = states[name]
        read_into(model, strict=states is None)
        models.append(model)
    return models


def read_into(model: Model, strict: bool) -> None:
    """Fill in what there is of a model; `strict`: a UserError for what is not there or damaged."""

    def look(key: Any, folder: Path, take: Callable[[Path], None] | None = None) -> None:
        stage = key if isinstance(key, str) else key[0]
        try:
            if strict or (folder / manifest.NAME).is_file():
                read = (READ[stage],) if stage in READ else ()
                model.manifests[key] = manifest.verify(folder, *read) if read else manifest.read(folder)
                if take:
                    take(folder)
        except UNREADABLE as error:
            if strict:
                raise
            model.manifests.pop(key, None)
            model.problems.append(str(error) or f"{folder}: cannot be read")

    def evaluation(folder: Path) -> None:
        model.evaluation = read_json(folder / "evaluation.json")

    def record(folder: Path) -> None:
        model.record = read_record(folder / "metrics.jsonl")

    def scores(folder: Path) -> None:
        model.scores[folder.name] = read_json(folder / "scores.json")

    for code in model.languages:
        look(("corpus", code), STAGES["corpus"].path(code, code))
        look(("shards", code), STAGES["shards"].path(model.name, code))
    look("tokenizer", STAGES["tokenizer"].path(model.name, ""))
    look("train", STAGES["train"].path(model.name, ""), record)
    look("export", STAGES["export"].path(model.name, ""))
    look("evaluate", STAGES["evaluate"].path(model.name, ""), evaluation)
    for suite in model.asked:
        look(("score", suite), STAGES["score"].path(model.name, suite), scores)
