"""Write the settings file of an experiment: its cells and seeds, their languages and suites.

Like a report's, the file is not in `results/settings`, since an experiment is no model (see `reporting/asked.py`).
"""

import json
from pathlib import Path
from typing import Any

from babelmill.config.canonical import to_file
from babelmill.config.experiments import refuse_equal
from babelmill.config.layers import nearest
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.file_times import FileTimes
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


def asked_of(configuration: Configuration, name: str) -> dict[str, Any]:
    """Return what the stage `experiment` is asked to do: what a report of its models is, and its cells."""
    cells = cells_of(configuration, name)
    experiment = {"seeds": max(cell["seed"] for cell in cells), "cells": cells}
    return reports.asked_of(configuration, name) | {"experiment": experiment}


def settings_path(name: str) -> Path:
    """Return the path of an experiment's settings file."""
    return Path("results/experiments", name, "settings.json")


def write_settings(configuration: Configuration, name: str, times: FileTimes | None = None) -> Path:
    """Write the settings of an experiment if they have changed; return the path (see `reporting/asked.py`)."""
    folder = Path("experiments", name)
    outputs = [folder, Path("results/benchmarks/experiment", f"{name}.tsv")]
    files = [folder / file for file in FILES]
    return reports.write_changed(settings_path(name), asked_of(configuration, name), files, outputs, times)
