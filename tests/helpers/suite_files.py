"""Read the files of a suite as the stage `suite` does."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.stages import SuiteStage
from babelmill.suites.readers import READERS


def read_items(kind: str, paths: list[Path], columns: dict[str, str], **items: Any) -> pa.Table:
    """Return the items of files."""
    settings = SuiteStage(languages=["eng"], suite="mine", kind=kind, columns=columns, items=items)
    return READERS[kind].read(settings, paths)


def read_pairs(paths: list[Path], columns: dict[str, str]) -> pa.Table:
    """Return the pairs of files."""
    return read_items("pairs", paths, columns)
