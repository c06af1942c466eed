"""List all training runs of this folder: when, how long, with which scores, and what was different.

    babelmill runs                  # a line per run, the newest last
    babelmill runs --csv runs.csv   # the same as a table for programs, with more columns

Runs of earlier settings, whose folders in results/checkpoints have not been cleaned, have lines of their own: after the
name of the model stand the first digits of the folder's name. They have no scores, only their last validation loss. A
run that is under way or was interrupted shows how far it is. The last column has the settings that differ from those of
the model that the run's model is `like`, or else of its preset. All is read from the results, without Weights & Biases.
Only the settings of a model that was never trained are those of the configuration, if there is one.
"""

import argparse
import contextlib
import csv
import functools
import re
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from babelmill.commands.estimates.training_cost import hours_text
from babelmill.commands.progress.logs import tail
from babelmill.commands.progress.recorded_settings import Values, shown, values_in, values_of_preset
from babelmill.config import loading
from babelmill.config.inputs import SETTINGS
from babelmill.config.resolve import Configuration
from babelmill.core import bars, manifest
from babelmill.core.escape import csv_cell
from babelmill.core.files import UNREADABLE, UserError, atomic_write, canonical_json, read_json
from babelmill.core.words import aligned, plural, short
from babelmill.evaluation.metrics import metrics_of
from babelmill.evaluation.suite_scores import measure_of
from babelmill.evaluation.tuned_scores import summarize
from babelmill.graph import CHECKPOINTS
from babelmill.release.card.training_history import Line, read_record, training_hours
from babelmill.reporting.results import ReportedModel, read_into
from babelmill.reporting.table import head
from babelmill.runtime.record import LOGS, newest_log
from babelmill.runtime.store import TAKEN
from babelmill.settings import settings_of
from babelmill.stages import STAGES

STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?!UTC)")  # begins the lines of a log, but for the first one
PROCESSES = re.compile(r"; (\d+) x (cpu|cuda)\b")  # in the first message of a training, see `train.describe`
DIGITS = 8  # of a run's fingerprint that are shown
NOTE = "hours of training steps; loss: nats per token on the validation text"


@dataclass
class Run:
    """A training run. What is not known is None, or empty."""

    model: str
    fingerprint: str  # the name of its folder in results/checkpoints
    is_present: bool  # whether results/models has its weights; other runs are of earlier settings, or not finished
    when: datetime  # when it was last trained
    done: int  # how many of its steps are done
    steps: int | None  # of the whole run
    figures: dict[str, Any]  # tokens, words, epochs, parameters, energy_kwh
    hours: float  # hours of all training steps
    devices: set[tuple[int, str]]  # (number, "cuda" or "cpu") of the processes of each attempt
    loss: float | None  # the last validation loss, in nats per token
    metrics: dict[str, float] = field(default_factory=dict)  # {metric: score on the validation text}
    units: dict[str, str] = field(default_factory=dict)  # {metric: unit}
    suites: dict[str, dict[str, float]] = field(default_factory=dict)  # {suite: {language: headline score, a share}}
    measures: dict[str, str] = field(default_factory=dict)  # {suite: what its score is, "" for right answers}
    settings: Values = field(default_factory=dict)  # the values that it was made with
    version: str = ""  # of the stage that trained it
    base: str = ""  # the name of the model or preset that it is compared with
    differs: str = ""  # the values that differ from those of `base`

    @property
    def name(self) -> str:
        return self.model if self.is_present else f"{self.model} {self.fingerprint[:DIGITS]}"

    @property
    def where(self) -> str:
        """Return the devices: `4 GPUs`, `2 to 4 GPUs` if attempts differ, "" for one process without a GPU."""
        kinds, counts = {kind for _, kind in self.devices}, sorted(number for number, _ in self.devices)
        if len(kinds) != 1 or self.devices == {(1, "cpu")}:
            return ""
        one, several = ("GPU", "GPUs") if kinds == {"cuda"} else ("process", "processes")
        span = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
        return f"{span} {one if span == '1' else several}"


def when_trained(folder: Path, otherwise: Path) -> datetime:
    """Return the time of the last message of a run's newest log, which copies keep; without logs, that of a file."""
    log = newest_log(folder)
    stamps = [found[1] for line in (tail(log) if log else []) if (found := STAMP.match(line))]
    return datetime.fromisoformat(stamps[-1]) if stamps else datetime.fromtimestamp(int(otherwise.stat().st_mtime))


def devices_of(folder: Path) -> set[tuple[int, str]]:
    """Return (number, kind) of the devices of all attempts in a run's folder, as their logs say."""
    texts = [log.read_text(encoding="utf-8", errors="replace") for log in (folder / LOGS).glob("*.log")]
    return {(int(found[1]), found[2]) for text in texts if (found := PROCESSES.search(text))}


def last_loss(record: Iterable[Line]) -> float | None:
    """Return the last validation loss of a record."""
    losses = [line["loss"] for line in record if line["kind"] == "validation"]
    return losses[-1] if losses else None


def present_run(model: str, problems: list[str]) -> Run:
    """Return the run whose weights are in results/models, with its scores; add what cannot be read to `problems`."""
    folder = STAGES["train"].path(model, "")
    languages = manifest.read(folder)["settings"]["languages"]
    suites = sorted(path.parent.name for path in STAGES["score"].path(model, "x").parent.glob("*/scores.json"))
    tasks = [f"{path.parts[-3]}.{path.parts[-2]}" for path in Path("results/tuned", model).glob("*/*/scores.json")]
    read_into(found := ReportedModel(model, languages, suites, sorted(tasks)), strict=False)
    problems += [f"{model}: {problem}" for problem in [*found.problems, *mixed_tunings(found)]]
    trained = manifest.read(folder)
    figures, settings = trained["figures"], values_in("train", trained["settings"])
    if tokenizer := found.manifests.get(("tokenizer", "")):
        settings |= values_in("tokenizer", tokenizer["settings"])
    place = CHECKPOINTS / model / figures.get("fingerprint", "")
    run = Run(
        model=model,
        fingerprint=figures.get("fingerprint", ""),
        is_present=True,
        when=when_trained(place, folder / manifest.NAME),
        done=figures["steps"],
        steps=figures["steps"],
        figures=figures,
        hours=0.0 if TAKEN in figures else training_hours(found.record),
        devices=devices_of(place),
        loss=last_loss(found.record),
        settings=settings,
        version=str(trained["settings"]["version"]),
    )
    if found.evaluation:
        about = metrics_of(found.evaluation)
        measured = found.evaluation["variants"][found.default]
        run.metrics = {name: score["value"] for name, score in measured.items() if name in about}
        run.units = {name: about[name].unit for name in run.metrics}
    for suite, scores in found.scores.items():
        rows = {code: head(model, code, suite, scores) for code in scores["languages"]}
        run.measures[suite] = measure_of(scores)
        run.suites[suite] = {code: row.score for code, row in rows.items() if row}
    for each in summarize(found.tuned):
        run.suites.setdefault(each.task, {})[each.language] = each.mean
    return run


def mixed_tunings(found: ReportedModel) -> Iterator[str]:
    """Yield a line for each task that a model was tuned for with different settings: the mean over seeds mixes them."""
    by_task: dict[str, set[str]] = {}
    for (stage, part), about in found.manifests.items():
        if stage == "tune":
            settings = {
                key: value for key, value in about["settings"].items() if key not in ("seed", "version", "keep")
            }
            by_task.setdefault(part.rpartition(".")[0], set()).add(canonical_json(settings))
    for task, ways in by_task.items():
        if len(ways) > 1:
            folder = STAGES["tune"].path(found.name, f"{task}.0").parent
            yield f"seeds in {folder} were tuned with different settings; delete the folders that are no longer wanted"


def other_run(folder: Path) -> Run:
    """Return the run of a folder in results/checkpoints."""
    settings, attempt = read_json(folder / "identity.json")["settings"], folder / "attempt.json"
    path = folder / "metrics.jsonl"
    record = read_record(path) if path.is_file() else []
    last: Line = next((line for line in reversed(record) if line["kind"] == "train"), {})
    return Run(
        model=folder.parent.name,
        fingerprint=folder.name,
        is_present=False,
        when=when_trained(folder, path if record else folder / "identity.json"),
        done=max((line["step"] for line in record), default=0),
        steps=read_json(attempt)["steps"] if attempt.is_file() else None,
        figures={"tokens": last.get("tokens"), "epochs": last.get("epoch")},
        hours=training_hours(record),
        devices=devices_of(folder),
        loss=last_loss(record),
        settings=values_in("train", settings),
        version=str(settings["version"]),
    )


def name_differences(run: Run, settings_of_model: Callable[[str], Values | None]) -> None:
    """Set `base` and `differs` of a run: the model that it is like, as its run settings say, or else its preset.

    `settings_of_model`: returns the settings of a model; None if they are not known.
    """
    about: dict[str, Any] = {}
    with contextlib.suppress(UserError):
        about = read_json(SETTINGS / run.model / "run.json")
    base = about.get("like")
    before = settings_of_model(base) if base else None
    if before is None and (base := about.get("preset")):
        with contextlib.suppress(UserError):  # a preset that no longer exists
            before = values_of_preset(base)
    if before is None:
        return
    run.base = str(base)
    changed = [f"{key}={shown(value)}" for key, value in run.settings.items() if before.get(key, ...) != value]
    run.differs = " ".join(sorted(changed))


def planned_settings(configuration: Configuration | None, model: str) -> Values | None:
    """Return the settings with which a model would be trained; None if the configuration does not say them."""
    if configuration is None or not configuration.is_model(model):
        return None
    found: Values = {}
    with contextlib.suppress(UserError):
        for stage in ("train", "tokenizer"):
            found |= values_in(stage, settings_of(configuration, model, stage))
        return found
    return None


def all_runs(configured: Callable[[], Configuration] | None = None) -> tuple[list[Run], list[str]]:
    """Return all runs of this folder, the newest last, and messages about what could not be read.

    `configured`: loads the configuration, which is needed only for models that others are like and that have no run.
    """
    problems: list[str] = []
    present: dict[str, Run] = {}
    others: list[Run] = []
    for path in sorted(STAGES["train"].path("x", "").parent.glob(f"*/{manifest.NAME}")):
        with reported(path.parent, problems):
            present[path.parent.name] = present_run(path.parent.name, problems)
    for path in sorted(CHECKPOINTS.glob("*/*/identity.json")):
        model, fingerprint = path.parent.parent.name, path.parent.name
        if model not in present or present[model].fingerprint != fingerprint:
            with reported(path.parent, problems):
                others.append(other_run(path.parent))

    @functools.cache
    def settings_of_model(model: str) -> Values | None:
        if model in present:
            return present[model].settings
        with contextlib.suppress(UserError):
            return planned_settings(configured() if configured else None, model)
        return None

    runs = [*present.values(), *others]
    for run in runs:
        name_differences(run, settings_of_model)
    return sorted(runs, key=lambda run: (run.when, run.name)), problems


@contextlib.contextmanager
def reported(folder: Path, problems: list[str]) -> Iterator[None]:
    """Add an error of damaged results to `problems`, and go on."""
    try:
        yield
    except UNREADABLE as error:
        known = isinstance(error, UserError | OSError)
        problems.append(str(error) if known else f"{folder}: cannot be read ({type(error).__name__}: {error})")


def table(runs: list[Run]) -> list[str]:
    """Return a heading and a line per run, without empty columns, and a line that explains the columns."""
    metrics = list(dict.fromkeys(name for run in runs for name in run.metrics))
    suites = list(dict.fromkeys(suite for run in runs for suite in run.suites))
    heading = ["model", "last trained", "steps", "words", "hours", "loss", *metrics, *suites, "base", "differs in"]
    rows = [heading]
    for run in runs:
        words, hours = run.figures.get("words"), hours_text(run.hours)
        whole = "?" if run.steps is None else f"{run.steps:,}"
        rows.append(
            [
                run.name,
                f"{run.when:%Y-%m-%d %H:%M}",
                whole if run.done == run.steps else f"{run.done:,}/{whole}",
                "" if words is None else short(words),
                f"{hours} x {run.where}" if run.where else hours,
                "" if run.loss is None else f"{run.loss:.3f}",
                *(f"{run.metrics[name]:.3f}" if name in run.metrics else "" for name in metrics),
                *(percent(run.suites[suite]) if run.suites.get(suite) else "" for suite in suites),
                run.base,
                run.differs,
            ]
        )
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    left = ("model", "last trained", "base", "differs in")
    lines = aligned(list(zip(*columns, strict=True)), [column[0] not in left for column in columns])
    units = {name: unit for run in runs for name, unit in run.units.items()}
    notes = [
        NOTE,
        *(
            f"{', '.join(name for name in metrics if units[name] == unit)}: {unit}"
            for unit in sorted(set(units.values()))
        ),
    ]
    if suites:
        several = any(len(scores) > 1 for run in runs for scores in run.suites.values())
        measures = {suite: measure for run in runs for suite, measure in run.measures.items() if measure}
        if shares := [suite for suite in suites if suite not in measures]:
            notes.append(f"{', '.join(shares)}: % right{', mean of languages' if several else ''}")
        notes += [f"{suite}: {measure} x 100" for suite, measure in measures.items()]
    return [*lines, "; ".join(notes)]


def percent(scores: dict[str, float]) -> str:
    """Return the mean score of a suite over languages in percent."""
    return f"{100 * statistics.fmean(scores.values()):.1f}"


def write_csv(runs: list[Run], file: IO[str]) -> None:
    """Write a row per run. Scores on suites are shares; headings have the unit of those on the validation text."""
    figures = ("epochs", "tokens", "words", "parameters", "energy_kwh")
    metrics = {name: f"{name} ({unit})" for run in runs for name, unit in run.units.items()}
    suites = dict.fromkeys((suite, code) for run in runs for suite, scores in run.suites.items() for code in scores)
    writer = csv.writer(file, lineterminator="\n")
    heading = ["model", "fingerprint", "present", "last_trained", "steps_done", "steps", *figures, "hours", "devices"]
    heading += ["validation_loss", *metrics.values(), *(f"{suite} {code}" for suite, code in suites)]
    writer.writerow(map(csv_cell, [*heading, "base", "differs", "version"]))
    for run in runs:
        row = [run.model, run.fingerprint, "yes" if run.is_present else "no", f"{run.when:%Y-%m-%d %H:%M:%S}"]
        row += [run.done, run.steps, *(run.figures.get(key) for key in figures), run.hours, run.where, run.loss]
        row += [run.metrics.get(name) for name in metrics]
        row += [run.suites.get(suite, {}).get(code) for suite, code in suites]
        row += [run.base, run.differs, run.version]
        writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else csv_cell(cell) for cell in row)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the table to this file, which is replaced")
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Print the runs, or write them to a file."""
    runs, problems = all_runs(functools.cache(lambda: loading.from_arguments(args)))
    for problem in problems:
        bars.say(f"not read: {problem}")
    if args.csv:
        with atomic_write(args.csv, "w") as file:
            write_csv(runs, file)
        print(f"{args.csv}: {plural(len(runs), 'run')}")
    elif runs:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
        print(*(line[:width] for line in table(runs)), sep="\n")
    else:
        print("no model has been trained in this folder")
