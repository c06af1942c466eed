"""Read the results of a batch's models from manifests and the small files beside them, never from weights."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from babelmill.core import manifest
from babelmill.core.escape import some
from babelmill.core.files import UNREADABLE, UserError, read_json
from babelmill.evaluation.overlaps import overlap_of
from babelmill.release.card.training_history import Line, read_record

READ = {"evaluate": "evaluation.json", "score": "scores.json", "tune": "scores.json", "train": "metrics.jsonl"}


@dataclasses.dataclass
class ReportedModel:
    """A model and the results that exist for it."""

    name: str  # the model's name
    languages: list[str]  # the codes of its languages
    asked: list[str]  # the suites that it is to be scored on
    results: dict[str, str]  # {"train", "score blimp", ...: the path of the result}
    # The tasks that it is to be fine-tuned for, each with a seed: "rte.42".
    asked_tasks: list[str] = dataclasses.field(default_factory=list)
    state: str = "converted"  # "converted", or how far the model has got
    note: str = ""  # why it has got no further
    problems: list[str] = dataclasses.field(default_factory=list)  # messages about results that could not be read
    # {(stage, part): manifest}; the part is a language or suite, or "" if the stage has one folder.
    manifests: dict[tuple[str, str], dict[str, Any]] = dataclasses.field(default_factory=dict)
    evaluation: dict[str, Any] | None = None  # evaluation.json
    scores: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  # {suite: scores.json}
    # {suite: overlap.json} of the suites that were looked for in the training text.
    overlaps: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    tuned: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # the scores.json of all tasks and seeds
    record: list[Line] = dataclasses.field(default_factory=list)  # the lines of metrics.jsonl
    submission: dict[str, Any] | None = None  # the figures of its submission to a challenge, if there is one

    def manifest(self, stage: str) -> dict[str, Any]:
        """Return the manifest of a stage with one folder; an empty one if there is none."""
        return self.manifests.get((stage, ""), {"settings": {}, "figures": {}})

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


def different_precisions(models: Iterable[tuple[str, str | None]]) -> str:
    """Return "eng ran in bf16, deu in fp32" from (name, precision or None) of models; "" if no precisions differ."""
    names: dict[str, list[str]] = {}
    for name, precision in models:
        if precision:
            names.setdefault(precision, []).append(name)
    if len(names) < 2:
        return ""
    return ", ".join(f"{some(names[each])}{'' if i else ' ran'} in {each}" for i, each in enumerate(names))


def read_all(asked: dict[str, Any], states: dict[str, tuple[str, str]] | None = None) -> list[ReportedModel]:
    """Return the models of a report with their results, in the order of the batch or experiment.

    `states`: {model: (state, note)}; results may then be missing. None: all models are complete, and a result that is
    missing or differs from its manifest is an error.
    """
    models = []
    for name in asked.get("order", asked["models"]):
        about = asked["models"][name]
        model = ReportedModel(name, about["languages"], about["suites"], about["results"], about["tasks"])
        if states is not None:
            model.state, model.note = states[name]
        read_into(model, strict=states is None)
        models.append(model)
    return models


def read_into(model: ReportedModel, strict: bool) -> None:
    """Fill in the results of a model; with `strict`, raise an error if one is missing or damaged."""
    parts = [(stage, code) for code in model.languages for stage in ("corpus", "shards")]
    parts += [(stage, "") for stage in ("tokenizer", "train", "export", "evaluate")]
    parts += [("score", suite) for suite in model.asked]
    parts += [("tune", part) for part in model.asked_tasks]
    for stage, part in parts:
        folder = Path(model.results[f"{stage} {part}".rstrip()])
        try:
            if not strict and not (folder / manifest.NAME).is_file():
                continue
            about = manifest.verify(folder, READ[stage]) if stage in READ else manifest.read(folder)
            if stage == "train":
                model.record = read_record(folder / READ[stage])
            elif stage == "evaluate":
                model.evaluation = read_json(folder / READ[stage])
            elif stage == "score":
                if path := overlap_of(folder):
                    model.overlaps[part] = read_json(path)
                model.scores[part] = read_json(folder / READ[stage])
            elif stage == "tune":
                model.tuned.append(read_json(folder / READ[stage]))
            model.manifests[stage, part] = about
        except UNREADABLE as error:
            known = isinstance(error, UserError | OSError)
            message = str(error) if known else f"{folder}: cannot be read ({type(error).__name__}: {error})"
            if strict:
                raise UserError(message) from error
            model.problems += [message] if message not in model.problems else []
    record = Path(model.results.get("submission", ""))
    if record.is_file():
        model.submission = manifest.read(record)["figures"]
