"""Make the scores of a model on the suites of a challenge, in the form of the stage `score`, from made items."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.core import manifest
from babelmill.core.files import write_json
from babelmill.suites.items import ITEMS
from babelmill.suites.results import by, mean_of_groups, share
from helpers.stages import any_settings

CODE = "eng"


def entry_of(points: Sequence[float], paradigms: Sequence[str]) -> dict[str, Any]:
    """Return the entry of a method in scores.json: points of items, and their paradigms."""
    groups = by(np.array(paradigms, object), np.array(points, float))
    return {
        "pairs": share(np.array(points, float)),
        "paradigms": mean_of_groups(groups.values()),
        "by_phenomenon": {},
        "by_paradigm": {name: share(each) for name, each in groups.items()},
    }


def entry_of_shares(shares: Mapping[str, float], whole: float, n: int = 10) -> dict[str, Any]:
    """Return such an entry from scores of parts, and of the whole."""
    parts = {name: {"score": score, "n": n, "interval": [score - 0.02, score + 0.02]} for name, score in shares.items()}
    return {
        "pairs": {"score": whole, "n": n, "interval": [whole - 0.02, whole + 0.02]},
        "paradigms": None,
        "by_phenomenon": {},
        "by_paradigm": parts,
    }


def put(folder: Path, columns: dict[str, list[Any]], entry: dict[str, Any], snapshots: Mapping[str, Any] = {}) -> Path:
    """Write the folder of a suite's scores.

    Args:
        folder: results/scores/{model}/{suite}.
        columns: of the scored items.
        entry: of the method `causal` in scores.json.
        snapshots: {name: entry} of the snapshots.
    """
    folder.mkdir(parents=True)
    size = len(next(iter(columns.values())))
    pq.write_table(pa.table({"language": [CODE] * size} | columns), folder / ITEMS)
    scores = {
        "suite": folder.name,
        "kind": "choices",
        "headline": {"method": "causal", "of": "pairs"},
        "languages": {CODE: {"methods": {"causal": entry}, "headline": entry["pairs"]}},
        "snapshots": [
            {"name": each, "million_words": i, "languages": {CODE: {"methods": {"causal": of}}}}
            for i, (each, of) in enumerate(snapshots.items(), 1)
        ],
    }
    write_json(folder / "scores.json", scores)
    manifest.write(folder, any_settings("score", suite=folder.name), [ITEMS, "scores.json"])
    return folder


def choices(items: Sequence[tuple[str, Sequence[str], Sequence[str], int, Sequence[float]]]) -> dict[str, list[Any]]:
    """Return the columns of items: (paradigm, prompts, options, the right one, the scores of the options)."""
    counts: dict[str, int] = {}
    columns: dict[str, list[Any]] = {key: [] for key in ("id", "prompts", "options", "right", "paradigm", "causal")}
    for paradigm, prompts, options, right, scores in items:
        number = counts[paradigm] = counts.get(paradigm, -1) + 1
        row = f"{paradigm}_{number}", list(prompts), list(options), right, paradigm, list(scores)
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return columns
