"""Read the files of a suite as the stage `suite` does, make tables of pairs as it writes them, and score a suite."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.commands.by_hand import made_by_hand
from babelmill.config.datasets import how_scored
from babelmill.config.resolve import Configuration
from babelmill.graph import Graph
from babelmill.stages import ScoreStage, SuiteStage
from babelmill.suites import items


def read_items(kind: str, paths: list[Path], form: dict[str, str] | None = None, **how: Any) -> pa.Table:
    """Return the items of files."""
    return items.read_items(SuiteStage(languages=["eng"], suite="mine", kind=kind, form=form or {}, items=how), paths)


def pairs_of(good: Sequence[str], bad: Sequence[str], groups: Sequence[str] = (), **columns: Any) -> pa.Table:
    """Return minimal pairs as items, and other columns; `groups`: their paradigms, which are their phenomena, too."""
    groups = list(groups or ["all"] * len(good))
    found = {"prompts": [["", ""]] * len(good), "options": list(map(list, zip(good, bad, strict=True)))}
    return pa.table(found | {"right": [0] * len(good), "phenomenon": groups, "paradigm": groups} | columns)


def score_suite(
    folder: Path, top: dict[str, Any], name: str, out: Path, *methods: str, code: str = "eng", **more: Any
) -> Path:
    """Score a model on a suite of a configuration, as `babelmill score` does it; return the folder of the scores."""
    from babelmill.score import score  # imports PyTorch

    configuration = Configuration([("config.yaml", top)])
    suite = configuration.suite(name)
    made_from = {"export": [str(folder)], "suites": made_by_hand(Graph(configuration), "suite", [code], name)}
    values = {"languages": [code], "suite": name, "covered": [code], "methods": list(methods), "made_from": made_from}
    values |= {"headline": suite.headline, "origin": {"folder": str(folder)}} | how_scored(suite) | more
    score(ScoreStage(**values, raw=values), out / "partial", out)
    return out
