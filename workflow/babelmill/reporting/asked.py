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
    models = configuration.models_of(name.split("+"))
    of_models = {
        model: {
            "languages": configuration.languages_of(model),
            "suites": list(configuration.model(model).scored),
            "tasks": STAGES["tune"].parts(configuration.model(model)),
            "results": graph.places(model),
        }
        for model in models
    }
    codes = list(dict.fromkeys(code for model in of_models.values() for code in model["languages"]))
    evaluations = [configuration.model(model).evaluation for model in models]
    suites = [suite for each in evaluations for suite in [*each.suites, *each.snapshot_suites]]
    tasks = dict.fromkeys(part.rpartition(".")[0] for model in of_models.values() for part in model["tasks"])
    return {
        "name": name,
        "order": models,  # a file has its keys in alphabetical order
        "models": of_models,
        "languages": {code: configuration.table[code].name for code in codes},
        "suites": {suite: about_suite(configuration, suite, codes) for suite in dict.fromkeys(suites)},
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
