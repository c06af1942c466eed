"""Read the files of a suite as the stage `suite` does, and make tables of pairs as it writes them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.stages import SuiteStage
from babelmill.suites import items


def read_items(kind: str, paths: list[Path], form: dict[str, str] | None = None, **how: Any) -> pa.Table:
    """Return the items of files."""
    return items.read_items(SuiteStage(languages=["eng"], suite="mine", kind=kind, form=form or {}, items=how), paths)


def pairs_of(good: Sequence[str], bad: Sequence[str], groups: Sequence[str] = (), **columns: Any) -> pa.Table:
    """Return minimal pairs as items, and other columns; `groups`: their paradigms, which are their phenomena, too."""
    groups = list(groups or ["all"] * len(good))
    found = {"prompts": [["", ""]] * len(good), "options": list(map(list, zip(good, bad, strict=True)))}
    return pa.table(found | {"right": [0] * len(good), "phenomenon": groups, "paradigm": groups} | columns)
