"""Say what a report is about: its models, their languages, suites and tasks, and published scores beside them.

The page of an experiment is a report of its models, with its cells and seeds. Both take seconds, and are written
whenever they are asked for.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from babelmill import __version__
from babelmill.config.datasets import about_task
from babelmill.config.layers import nearest
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError, read_json
from babelmill.graph import Graph
from babelmill.reporting.published import published
from babelmill.stages import STAGES

USED = ("corpus", "shards", "tokenizer", "train", "export", "evaluate", "score", "tune")  # stages that reports read


class Written(NamedTuple):
    """A stage without a key: its results are written whenever they are asked for. `place`: of the result of a name."""

    stage: str
    place: str

    def read(self, path: Path) -> Any:
        """Read a settings file."""
        return read_json(path)

    def path_of(self, name: str) -> Path:
        """Return the path of a result."""
        return Path(self.place.format(name))


REPORT, EXPERIMENT = Written("report", "reports/{}.html"), Written("experiment", "experiments/{}")


def asked_of(graph: Graph, name: str) -> dict[str, Any]:
    """Return what a report is about; raise a UserError if there is no such group or model.

    `name`: a group, a model, `all`, or several of them joined by `+`.
    """
    configuration = graph.configuration
    models = [configuration.model(each) for each in configuration.models_of(name.split("+"))]
    codes = list(dict.fromkeys(code for model in models for code in model.languages))
    evaluations = [model.evaluation for model in models]
    suites = dict.fromkeys(suite for each in evaluations for suite in [*each.suites, *each.snapshot_suites])
    tasks = dict.fromkeys(task for model in models for task in model.seeds)
    return {
        "name": name,
        "order": [model.name for model in models],  # a file has its keys in alphabetical order
        "models": {
            model.name: {
                "languages": model.languages,
                "suites": list(model.scored),
                "tasks": STAGES["tune"].parts(model),
                "results": {
                    each.title: each.path.as_posix() for each in graph.own(model.name) if each.stage.stage in USED
                },
            }
            for model in models
        },
        "languages": {code: configuration.table[code].name for code in codes},
        "suites": {suite: about_suite(configuration, suite, codes) for suite in suites},
        "tasks": {
            task: about_task(configuration, task) | {"metric": configuration.task(task).metric} for task in tasks
        },
        "version": __version__,
    }


def about_suite(configuration: Configuration, name: str, codes: list[str]) -> dict[str, Any]:
    """Return what a report says of a suite; its baselines are those of `config/published.yaml`."""
    suite = configuration.suite(name)
    found = [(code, row) for code in codes for row in published(name, configuration.language(code).language_code)]
    return {
        "title": suite.title or name,
        "headline": suite.headline,
        "covers": sorted(code for code in codes if configuration.code_in(suite, code)),
        "note": suite.note,
        "baselines": [
            {"language": code, "model": row.model, "pipeline": row.protocol, "score": row.score} for code, row in found
        ],
        "sources": list(dict.fromkeys(row.source for _, row in found)),
    }


def asked_of_experiment(graph: Graph, name: str) -> dict[str, Any]:
    """Return what the page of an experiment is about.

    A UserError says that there is no such experiment, or that a cell is not valid.
    """
    configuration = graph.configuration
    if name not in configuration.cells:
        hint = nearest(name, configuration.cells) if configuration.cells else "; `experiments:` is empty"
        raise UserError(f"there is no experiment {name!r}{hint}")
    cells = configuration.cells[name]
    # Values are as the user wrote them: 1/4 is text, 0.5 a number.
    listed = [cell._asdict() | {"values": json.loads(json.dumps(cell.values))} for cell in cells]
    return asked_of(graph, name) | {"cells": listed}
