"""Say what an experiment is about: what a report of its models is, and its cells and seeds."""

import json
from typing import Any

from babelmill.config.layers import nearest
from babelmill.core.files import UserError
from babelmill.graph import Graph
from babelmill.reporting import asked as reports


def asked_of(graph: Graph, name: str) -> dict[str, Any]:
    """Return what the stage `experiment` is asked to do.

    A UserError says that there is no such experiment, or that a cell is not valid.
    """
    configuration = graph.configuration
    if name not in configuration.cells:
        hint = nearest(name, configuration.cells) if configuration.cells else "; `experiments:` is empty"
        raise UserError(f"there is no experiment {name!r}{hint}")
    cells = configuration.cells[name]
    # Values are as the user wrote them: 1/4 is text, 0.5 a number.
    listed = [cell._asdict() | {"values": json.loads(json.dumps(cell.values))} for cell in cells]
    return reports.asked_of(graph, name) | {"cells": listed}
