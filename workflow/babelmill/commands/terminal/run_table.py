"""Show all training runs of this folder as a table, one line per run, the newest last (`babelmill status --runs`).

A run of earlier settings, whose folder in results/checkpoints has not been cleaned, has a line of its own, without
scores: after the name of the model stand the first digits of the folder's name. So has a run that is under way or was
interrupted. All is read from the results.
"""

import statistics
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

from babelmill.core import manifest
from babelmill.core.files import UNREADABLE, UserError, read_json
from babelmill.core.words import aligned, short, tenths
from babelmill.evaluation.suite_scores import headline_method
from babelmill.graph import CHECKPOINTS
from babelmill.release.card.training_history import Line, read_record, training_hours
from babelmill.reporting.results import ReportedModel, read_into
from babelmill.reporting.table import rows_of
from babelmill.stages import STAGES

DIGITS = 8  # of a run's fingerprint that are shown
NOTE = "hours of all training steps; scores: on the validation text, and headlines of suites x 100; means of languages"

Cells = dict[str, str]  # by column


def cost(record: list[Line], steps: int | None, tokens: int | None) -> Cells:
    """Return how many steps of a run are done, and what they took; `steps`: of the whole run."""
    done = max((line["step"] for line in record), default=0)
    whole = "?" if steps is None else f"{steps:,}"
    steps_done = whole if done == steps else f"{done:,}/{whole}"
    return {
        "steps": steps_done,
        "tokens": short(tokens) if tokens else "",
        "hours": tenths(training_hours(record)),
    }


def present_run(folder: Path, problems: list[str]) -> Cells:
    """Return the line of a model whose weights are in `folder`, with its scores."""
    name, about = folder.name, manifest.read(folder)
    suites = [path.parent.name for path in Path("results/scores", name).glob("*/scores.json")]
    tasks = [f"{path.parts[-3]}.{path.parts[-2]}" for path in Path("results/tuned", name).glob("*/*/scores.json")]
    found = ReportedModel(name, about["settings"]["languages"], sorted(suites), sorted(tasks))
    read_into(found, strict=False)
    problems += found.problems
    scores: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows_of(found):
        if row.is_whole and (row.suite not in found.scores or row.method == headline_method(found.scores[row.suite])):
            times, digits = (100, 1) if row.suite else (1, 3)
            scores[row.suite or row.method, digits].append(times * row.score)
    shown = {column: f"{statistics.fmean(each):.{digits}f}" for (column, digits), each in scores.items()}
    return {"model": name} | cost(found.record, about["figures"]["steps"], about["figures"].get("tokens")) | shown


def other_run(folder: Path) -> Cells:
    """Return the line of a run whose checkpoints are in `folder`."""
    path, attempt = folder / "metrics.jsonl", folder / "attempt.json"
    record = read_record(path) if path.is_file() else []
    last: dict[str, Any] = next((line for line in reversed(record) if line["kind"] == "train"), {})
    steps = read_json(attempt)["steps"] if attempt.is_file() else None
    return {"model": f"{folder.parent.name} {folder.name[:DIGITS]}"} | cost(record, steps, last.get("tokens"))


def run_table(models: Collection[str] = ()) -> list[str]:
    """Return a heading and a line per run, the newest last, and lines that explain them and say what is not read.

    `models`: the models whose runs are listed; all, if it is empty.
    """
    runs: list[tuple[float, Cells]] = []
    problems: list[str] = []
    present: set[Path] = set()
    finished = sorted(STAGES["train"].path("x", "").parent.glob(f"*/{manifest.NAME}"))
    for path in [*finished, *sorted(CHECKPOINTS.glob("*/*/identity.json"))]:
        folder = path.parent
        if models and (folder if path in finished else folder.parent).name not in models:
            continue
        try:
            if path in finished:
                runs.append((path.stat().st_mtime, present_run(folder, problems)))
                present.add(CHECKPOINTS / folder.name / manifest.read(folder)["figures"].get("fingerprint", ""))
            elif folder not in present:
                runs.append((path.stat().st_mtime, other_run(folder)))
        except UserError as error:
            problems.append(str(error))
        except UNREADABLE as error:
            problems.append(f"{folder}: {type(error).__name__}: {error}")
    not_read = [f"not read: {problem}" for problem in problems]
    if not runs:
        return ["no model has been trained in this folder", *not_read]
    rows = [cells for _, cells in sorted(runs, key=lambda run: run[0])]
    columns = list(dict.fromkeys(column for cells in rows for column in cells))
    table = [columns, *([cells.get(column, "") for column in columns] for cells in rows)]
    lines = aligned(table, [column != "model" for column in columns])
    return [*lines, NOTE, *not_read]
