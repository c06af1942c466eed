"""Compare two sides on the tasks that both were fine-tuned for (`babelmill compare`): scores, and what is chance."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from babelmill.commands.terminal.columns import SURE, p_value, table
from babelmill.core import manifest
from babelmill.core.escape import some
from babelmill.core.files import UserError, read_json, sha256
from babelmill.core.words import plural
from babelmill.evaluation.tuned_scores import summarize
from babelmill.suites.statistics import holm
from babelmill.tasks.comparing import Tested, difference, difference_of_words
from babelmill.tasks.metrics import counts_of_words

PREDICTION = "prediction"
LABELS = ("language", "row", "label")  # columns of predictions.parquet that do not depend on the model
AGAIN = "tune one of them again"
DELETE = "both are of one model: delete the folder that is no longer wanted"


class Run(NamedTuple):
    """A model that was fine-tuned with one seed: its name, its folder, its manifest, scores and predictions."""

    name: str
    folder: Path
    about: dict[str, Any]
    scores: dict[str, Any]
    rows: dict[str, list[Any]]


class OnTask(NamedTuple):
    """The comparison on a task in a language: its title, the runs of each model of each side, and what was found."""

    title: str
    code: str
    sides: list[list[list[Run]]]
    found: Tested


def tuned_in(folder: Path) -> dict[str, list[Path]]:
    """Return {task: its folders, one per seed} below a folder of `tune`: of a model, of a task, or of a seed."""
    found: dict[str, list[Path]] = {}
    for depth in ("", "*/", "*/*/"):
        for path in sorted(folder.glob(f"{depth}scores.json")):
            if task := read_json(path).get("task"):
                found.setdefault(task, []).append(path.parent)
    return found


def on_tasks(tasks: list[str], sides: list[list[tuple[str, dict[str, list[Path]]]]], names: list[str]) -> list[str]:
    """Return lines with the scores on tasks that all models were tuned for, and the tests of their differences.

    `sides` has, for each side, its models, each with its name and `tuned_in`. A UserError says that models were tuned
    by different protocols, or scored on different rows.
    """
    by_task = {task: [*on_task(task, sides)] for task in tasks}
    compared = [each for found in by_task.values() for each in found]
    apart = [task for task, found in by_task.items() if not found]
    reason = "not compared, because the models were tuned for different languages"
    without = [f"fine-tuning for {some(apart)}: {reason}"] if apart else []
    if not compared:
        return without
    corrected = holm([each.found.p for each in compared])
    scores, tests = [["task", "protocol", "metric", "n", *names]], [["", "task", "difference", "p (Holm)", "test"]]
    for each, p in zip(compared, corrected, strict=True):
        about, found = each.sides[0][0][0].scores, each.found
        cells = [score_cell(score, side) for score, side in zip(found.scores, each.sides, strict=True)]
        language = about["languages"][each.code]
        unit = {"span_f1": " spans"}.get(about["metric"], " words") if "sentence" in each.sides[0][0][0].rows else ""
        scores.append([each.title, about["protocol"], about["metric"], f"{language['n']:,}{unit}", *cells])
        interval = f"({100 * found.low:+.1f} to {100 * found.high:+.1f})"
        difference = f"{100 * (found.scores[0] - found.scores[1]):+.1f} {interval}"
        how = f"McNemar: {found.test.first:,} and {found.test.second:,} rows" if found.test else "bootstrap"
        tests.append(["*" if p < SURE else "", each.title, difference, p_value(p), how])
    lines = ["fine-tuned: scores x 100, means over seeds", *table(scores, numbers=3), *warnings(compared)]
    lines += [f"  {line}" for line in without]
    lines += ["", "  differences with 95 % intervals over rows, and over seeds or models where a side has several"]
    lines += table(tests, numbers=2)
    lines.append(f"  * p < {SURE} after Holm's correction for {plural(len(compared), 'test')}")
    if any(each.found.test for each in compared):
        lines.append("  McNemar: exact test; the rows that only the first and only the second gets right")
    if any(not each.found.test for each in compared):
        lines.append("  bootstrap: over rows or sentences, and over seeds (of one model) or models (of several)")
    return lines


def on_task(task: str, sides: list[list[tuple[str, dict[str, list[Path]]]]]) -> Iterator[OnTask]:
    """Yield the comparison on a task, for each language in which all models were tuned for it."""
    read = [[[read_run(name, folder) for folder in tuned[task]] for name, tuned in side] for side in sides]
    runs = [run for side in read for model in side for run in model]
    languages = [code for code in runs[0].scores["languages"] if all(code in run.scores["languages"] for run in runs)]
    pairs = [(model[0], run, DELETE) for side in read for model in side for run in model[1:]]
    pairs += [(runs[0], run, AGAIN) for run in runs[1:]]
    for first, other, remedy in pairs:
        check_protocol(task, first, other, remedy)
    for code in languages:
        for first, other, remedy in pairs:
            check_rows(task, code, first, other, remedy)
        classes = runs[0].scores["languages"][code]["classes"]
        if "sentence" in runs[0].rows:
            found = difference_of_words(
                [[np.array([counts(r, code) for r in model]) for model in side] for side in read]
            )
        else:
            told = [[np.array([numbers(run, code, PREDICTION) for run in model]) for model in side] for side in read]
            found = difference(runs[0].scores["metric"], numbers(runs[0], code, "label"), told, len(classes))
        yield OnTask(f"{task}, {code}" if len(languages) > 1 else task, code, read, found)


def read_run(name: str, folder: Path) -> Run:
    """Read a folder that the stage `tune`, or the command, wrote."""
    about = manifest.verify(folder, "scores.json", "predictions.parquet")
    rows = pq.ParquetFile(folder / "predictions.parquet").read().to_pydict()
    return Run(name, folder, about, read_json(folder / "scores.json"), rows)


def numbers(run: Run, code: str, column: str) -> np.ndarray:
    """Return a column of labels in a language as numbers of classes, [rows]; -1 for a word without a prediction."""
    number = {name: number for number, name in enumerate(run.scores["languages"][code]["classes"])} | {None: -1}
    pairs = zip(run.rows["language"], run.rows[column], strict=True)
    return np.array([number[label] for language, label in pairs if language == code])


def counts(run: Run, code: str) -> np.ndarray:
    """Return what `counts_of_words` returns of the words that a run tagged in a language, [sentences, 3]."""
    sentences = [s for s, language in zip(run.rows["sentence"], run.rows["language"], strict=True) if language == code]
    begins = np.flatnonzero(np.diff(sentences)) + 1
    labels, told = (np.split(numbers(run, code, column), begins) for column in ("label", PREDICTION))
    return counts_of_words(run.scores["metric"], labels, told, run.scores["languages"][code]["classes"])


def protocol_of(run: Run) -> dict[str, Any]:
    """Return what two runs must have in common."""
    asked = run.about["settings"]
    joint = {"joint": True, "languages": asked["covered"]} if asked.get("joint") else {"joint": False}
    return {key: run.scores[key] for key in ("protocol", "metric")} | joint | asked.get("tuning", {})


def check_protocol(task: str, first: Run, other: Run, remedy: str) -> None:
    """Raise a UserError unless two runs were tuned by the same protocol and scored by the same metric."""
    settings = [protocol_of(run) for run in (first, other)]
    for key in dict.fromkeys([*settings[0], *settings[1]]):
        values = [each.get(key, "(default)") for each in settings]
        if values[0] != values[1]:
            raise UserError(
                f"{task}: {first.folder} was tuned with {key} = {values[0]}, {other.folder} with {key} = {values[1]}:"
                f" scores of different protocols cannot be compared; {remedy}"
            )


def check_rows(task: str, code: str, first: Run, other: Run, remedy: str) -> None:
    """Raise a UserError unless two runs were tuned for the same rows of a language, and scored on all the same ones."""
    both = f"{task}: {first.folder} and {other.folder}"
    if first.scores["languages"][code]["classes"] != other.scores["languages"][code]["classes"]:
        raise UserError(f"{both} have different classes of {code}; {remedy}")
    labels = [
        [row for row in zip(*(run.rows[key] for key in LABELS), strict=True) if row[0] == code]
        for run in (first, other)
    ]
    if rows_read(first, code) != rows_read(other, code):
        raise UserError(f"{both} were not tuned for the same rows of {code}; {remedy}")
    if labels[0] != labels[1]:
        if first.about["settings"].get("tuning", {}).get("words_cut") == "left_out":
            raise UserError(
                f"{both} were scored on different words of {code}: their tokenizers cut sentences at different words,"
                f" and the protocol leaves these out; to compare the models, tune both for {task}_sound"
            )
        raise UserError(f"{both} were not scored on the same rows of {code}; {remedy}")


def rows_read(run: Run, code: str) -> Any:
    """Return what tells rows of a task apart: the files' sha256, or that of their manifest if it has changed since."""
    for source, digest in run.about["upstream"].items():
        if Path(source).parts[-3:-2] != ("tasks",) or Path(source).name != code:
            continue
        for root in (Path(), *run.folder.resolve().parents):
            path = root / source / manifest.NAME
            if path.is_file() and sha256(path) == digest:
                return {name: entry["sha256"] for name, entry in manifest.read(path.parent)["files"].items()}
        return digest
    return None


def score_cell(score: float, models: list[list[Run]]) -> str:
    """Return a score as text, with the number of seeds and models behind it if there are several."""
    seeds = {len(model) for model in models}
    behind = [plural(len(models), "model")] if len(models) > 1 else []
    if seeds != {1}:
        behind.append(f"{min(seeds)} seeds" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)} seeds")
    return f"{100 * score:.1f}" + (f" ({', '.join(behind)})" if behind else "")


def warnings(compared: list[OnTask]) -> list[str]:
    """Return a line for each model that answers with one class."""
    found = []
    for each in compared:
        for model in (model for side in each.sides for model in side):
            (score,) = (score for score in summarize(run.scores for run in model) if score.language == each.code)
            if score.warning:
                found.append(f"  {model[0].name} has learnt nothing of {each.title}: {score.warning}")
    return found
