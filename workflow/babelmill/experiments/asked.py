"""Say what an experiment is about: its cells and seeds, and what a report of its models is about."""

import json
from pathlib import Path
from typing import Any

from babelmill.config.canonical import to_file
from babelmill.config.experiments import refuse_equal
from babelmill.config.layers import nearest
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.graph import Graph
from babelmill.reporting import asked as reports

TEMPLATE = Path(__file__).with_name("comparison.html")
FILES = ("results.csv", "table.md", "table.tex", "page.html")


def cells_of(configuration: Configuration, name: str) -> list[dict[str, Any]]:
    """Return the models of an experiment, as its settings file lists them.

    A UserError says that there is no such experiment, that a cell is not valid, or that two have the same settings.
    """
    if name not in configuration.cells:
        hint = nearest(name, configuration.cells) if configuration.cells else "; `experiments:` is empty"
        raise UserError(f"there is no experiment {name!r}{hint}")
    cells = configuration.cells[name]
    where = f"{configuration.origin(f'experiments.{name}')}: experiments.{name}"
    refuse_equal(cells, lambda model: to_file(configuration.model(model).sections), where)
    # Values are as the user wrote them: 1/4 is text, 0.5 a number.
    return [
        {
            "name": cell.name,
            "base": cell.base,
            "label": cell.label,
            "values": json.loads(json.dumps(cell.values)),
            "seed": cell.seed,
            "reference": cell.reference,
        }
        for cell in cells
    ]


def asked_of(graph: Graph, name: str) -> dict[str, Any]:
    """Return what the stage `experiment` is asked to do: what a report of its models is, and its cells."""
    cells = cells_of(graph.configuration, name)
    experiment = {"seeds": max(cell["seed"] for cell in cells), "cells": cells}
    return reports.asked_of(graph, name) | {"experiment": experiment}
