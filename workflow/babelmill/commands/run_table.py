"""Show all training runs of this folder as a table, one line per run, the newest last (`babelmill status --runs`).

A run of no converted model, whose folder is still in results/checkpoints, has a line with the name of the folder and
without scores: it is of earlier settings, under way, or interrupted. All is read from the results.
"""

from collections.abc import Collection
from pathlib import Path

from babelmill.core import manifest
from babelmill.core.files import UNREADABLE, UserError, read_json
from babelmill.core.words import aligned, short, tenths
from babelmill.graph import CHECKPOINTS
from babelmill.release.card.training_history import Line, read_record, training_hours
from babelmill.reporting.results import ModelResults, converted_models, of_converted, read_results
from babelmill.reporting.table import TUNED, score_table, shown

NOTE = "hours of all training steps; scores: on the validation text, and headlines of suites x 100; means of languages"


def run_table(models: Collection[str] = ()) -> list[str]:
    """Return a heading and a line per run, the newest last, and lines that explain them and say what is not read.

    `models`: the models whose runs are listed; all, if it is empty.
    """
    names = [name for name in converted_models() if not models or name in models]
    found, problems = list[ModelResults](), list[str]()
    for name in names:
        try:
            found.append(read_results(name, of_converted(Path("converted", name)), strict=False))
        except UserError as error:  # a manifest that was changed
            problems.append(str(error))
    problems += [problem for model in found for problem in model.problems]
    runs: list[tuple[float, dict[str, str]]] = []
    present: set[str] = set()
    scores = score_table(found)
    for model in found:
        if ("train", "") in model.manifests:
            about, folder = model.manifest("train")["figures"], model.folders["train", ""]
            heads = scores[scores["headline"] & scores["million_words"].isna() & (scores["model"] == model.name)]
            names = heads["suite"].where(heads["suite"] != "", heads["method"])
            means = heads.assign(column=names.where(heads["method"] != TUNED, names + " tuned"))
            means = means.groupby(["column", "unit"], sort=False)["score"].mean()
            cells = {column: shown(score, unit) for (column, unit), score in means.items()}
            line = {"model": model.name} | done(model.record, about["steps"], about.get("tokens")) | cells
            runs.append(((folder / manifest.NAME).stat().st_mtime, line))
            present.add(folder.name)
    for path in sorted(CHECKPOINTS.glob("*/identity.json")):
        folder = path.parent
        if folder.name not in present and not models:
            try:
                record = read_record(folder / "metrics.jsonl") if (folder / "metrics.jsonl").is_file() else []
                steps = read_json(folder / "attempt.json")["steps"] if (folder / "attempt.json").is_file() else None
                tokens = max((line.get("tokens", 0) for line in record), default=0)
                runs.append((path.stat().st_mtime, {"model": folder.name} | done(record, steps, tokens)))
            except UNREADABLE as error:
                problems.append(f"{folder}: {type(error).__name__}: {error}")
    not_read = [f"not read: {problem}" for problem in problems]
    if not runs:
        return ["no model has been trained in this folder", *not_read]
    rows = [cells for _, cells in sorted(runs, key=lambda run: run[0])]
    columns = list(dict.fromkeys(column for cells in rows for column in cells))
    table = [columns, *([cells.get(column, "") for column in columns] for cells in rows)]
    return [*aligned(table, [column != "model" for column in columns]), NOTE, *not_read]


def done(record: list[Line], steps: int | None, tokens: int | None) -> dict[str, str]:
    """Return how many steps of a run are done, and what they took; `steps`: of the whole run."""
    last = max((line["step"] for line in record), default=0)
    whole = "?" if steps is None else f"{steps:,}"
    hours = tenths(training_hours(record))
    return {"steps": whole if last == steps else f"{last:,}/{whole}", "tokens": short(tokens or 0), "hours": hours}
