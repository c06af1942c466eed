"""Say what an experiment is about: what a report of its models is, and its cells and seeds."""

import json
from pathlib import Path
from typing import Any

from babelmill.config.canonical import to_file
from babelmill.config.experiments import refuse_equal
from babelmill.config.layers import nearest
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError, write_json
from babelmill.reporting import asked as reports


def asked_of(configuration: Configuration, name: str) -> dict[str, Any]:
    """Return what the stage `experiment` is asked to do.

    A UserError says that there is no such experiment, that a cell is not valid, or that two have the same settings.
    """
    if name not in configuration.cells:
        hint = nearest(name, configuration.cells) if configuration.cells else "; `experiments:` is empty"
        raise UserError(f"there is no experiment {name!r}{hint}")
    cells = configuration.cells[name]
    where = f"{configuration.origin(f'experiments.{name}')}: experiments.{name}"
    refuse_equal(cells, lambda model: to_file(configuration.model(model).sections), where)
    # Values are as the user wrote them: 1/4 is text, 0.5 a number.
    listed = [vars(cell) | {"values": json.loads(json.dumps(cell.values))} for cell in cells]
    return reports.asked_of(configuration, name) | {"cells": listed}


def write_settings(configuration: Configuration, name: str) -> Path:
    """Write the settings file of an experiment; return its path."""
    path = Path("results/experiments", name, "settings.json")
    write_json(path, asked_of(configuration, name))
    return path
