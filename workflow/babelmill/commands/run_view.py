"""Show a run on the terminal: a line when a job begins and one when it ends, and a summary at the end of the run.

The logger plugin passes Snakemake's events to `RunView`. What is not about a job is shown in Snakemake's own words,
each message once. The messages of stages are in their logs.
"""

import logging
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from babelmill.commands.progress import last_words, tail
from babelmill.core import bars, escape, manifest
from babelmill.core.files import UNREADABLE
from babelmill.core.words import aligned, duration, plural
from babelmill.graph import MODELS_OF, Graph
from babelmill.stages import STAGES

LINES = 5  # lines of a failed job's log that are shown
STOPPED = "the same command"  # a stage that a signal ends says that the same command continues, or starts it again
NAMES = 3  # models that are named with a job
WIDEST = len("experiment")  # characters
# The events whose messages are shown; jobs have their own lines. An error of a job's command is told by its log, too.
SHOWN = (None, "", "error", "run_info")
NOISE = (
    "Assuming unrestricted shared filesystem",
    "Conda environments: ignored",
    "Elapsed time: ",
    "Exiting because a job execution failed",
    "Reasons:\n",
    "Removing output files of failed job",
    "Removing temporary output ",
    "Select jobs to execute",
    "Shutting down, this might take",
    "Using shell: ",
    "WorkflowError:\nAt least one job did not complete",
    "Would remove temporary output ",
)
COMMAND = re.compile(
    r"CalledProcessError in file .*/(\w+)\.smk.* (?:died with <Signals\.(\w+)|exit status (\d+))", re.DOTALL
)


def named(stage: str, name: str) -> str:
    """Return the name of a result, with the models that ask for it unless it has the name of its model."""
    models = [] if stage not in STAGES or STAGES[stage].named else MODELS_OF.get(STAGES[stage].path_of(name), [])
    return f"{name} ({escape.some(models, NAMES)})" if models else name


def summary_of(stage: str, name: str) -> str:
    """Return what a stage says of its result in one line; "" if it cannot be read, or says nothing, as a report."""
    if stage not in STAGES:
        return ""
    try:
        return manifest.read(STAGES[stage].path_of(name))["figures"].get("summary", "")
    except UNREADABLE:
        return ""


class RunView:
    """Shows a run, event by event. `options`: Snakemake's, of its output."""

    def __init__(self, options: Any):
        self._options = options
        self._stream = sys.stdout if options.dryrun else sys.stderr  # as Snakemake does
        self._begun: dict[int, tuple[str, str, float]] = {}  # stage, name of the result, and when, of each job
        self._done = self._total = 0
        self._remote = False  # whether jobs are sent to a cluster
        self._said: set[str] = set()
        if not options.dryrun:  # stages on the same terminal then show only warnings and progress
            os.environ[bars.TERMINAL] = bars.terminal_id()

    def show(self, record: Any) -> None:
        """Show an event if it has something to show; with --quiet, only warnings and errors."""
        if record.levelno < logging.WARNING and self._options.quiet and not self._options.dryrun:
            return
        event = getattr(record, "event", None)
        if event == "run_info":
            self._total = sum(number for rule, number in record.stats.items() if rule in STAGES)
        self._remote |= event == "resources_info" and hasattr(record, "nodes")
        if event in SHOWN:
            self._say(record)
        elif event == "shellcmd" and self._options.printshellcmds and getattr(record, "shellcmd", None):
            self._print(record.shellcmd)
        elif event == "job_info" and record.output and not self._options.dryrun:  # the rule of a group makes nothing
            self._begin(record)
        elif event == "job_finished" and record.job_id in self._begun:
            self._end(*self._begun[record.job_id])
        elif event == "job_error" and record.jobid in self._begun:
            self._fail(record)

    def _say(self, record: logging.LogRecord) -> None:
        """Show a message of Snakemake, which says many of them again and again."""
        text = record.getMessage()
        if command := COMMAND.search(text):
            rule, signal, code = command.groups()
            if not signal and int(code) <= 128:
                return
            text = f"{rule} was ended by {signal or f'signal {int(code) - 128}'}"
        if self._options.dryrun and text.startswith("Error: Directory cannot be locked"):
            text = "note: another run works in this folder now; this is only a preview"
        if text not in self._said and (self._options.verbose or not text.startswith(NOISE)):
            self._said.add(text)
            self._print(text)

    def _begin(self, record: Any) -> None:
        stage, name = record.rule_name, ".".join(dict(record.wildcards or {}).values())
        self._begun[record.jobid] = stage, name, time.monotonic()
        self._line("", stage, name, "begins" if record.local or not self._remote else "is submitted")

    def _end(self, stage: str, name: str, begun: float) -> None:
        self._done += stage in STAGES
        text = f"{duration(time.monotonic() - begun):>5}  {summary_of(stage, name)}"
        self._line(f"[{self._done}/{self._total}]" if stage in STAGES else "", stage, name, text)

    def _fail(self, record: Any) -> None:
        """Show that an attempt of a job failed, with the last words of its log, or else of its executor."""
        stage, name, begun = self._begun[record.jobid]
        found = [words for log in record.log if (words := last_words(Path(log)))[1]]
        why = " ".join((record.rule_msg or "").split())
        failed, words = found[0] if found else (bool(why), why)
        words = re.sub(r"^[\d:]+ ", "", words)  # the time in a log
        self._line("failed" if failed else "stopped", stage, name, f"{duration(time.monotonic() - begun):>5}  {words}")

    def _line(self, count: str, stage: str, name: str, text: str) -> None:
        shown = named(stage, name)
        self._print(f"{time.strftime('%H:%M:%S')} {count:>8}  {stage:<{WIDEST}}  {shown:<8}  {text}".rstrip())

    def _print(self, text: str) -> None:
        bars.say(escape.terminal(text), self._stream)


# The end of a run.


class FailedJob(NamedTuple):
    """A job that failed in its last attempt, or that a signal ended."""

    stage: str
    name: str  # of its result
    logs: list[Path]
    attempts: int

    @property
    def stopped(self) -> bool:
        """Return whether a signal ended it, and it said so."""
        return any(STOPPED in last_words(log)[1] for log in self.logs)

    def text(self) -> str:
        """Return which job failed, and the last lines of its log."""
        title = f"  {self.stage} {named(self.stage, self.name)}: {plural(self.attempts, 'attempt')}"
        for log in self.logs:
            if words := [line for line in tail(log) if line.strip()]:
                why = "" if last_words(log)[0] else ", killed before it could say why (memory?)"
                return "\n    ".join([title + why, f"{log}:", *(f"  {line}" for line in words[-LINES:])])
        return f"{title}; it left no log, perhaps because memory ran out at its start: see the messages above"


def summary(graph: Graph, models: list[str], ended: list[FailedJob], complete: bool, seconds: float) -> str:
    """Return the summary of a run of some models; `complete`: whether all its jobs are done."""
    done = [model for model in models if graph.final(model).is_there]
    word = "converted" if all(map(graph.configuration.is_trained, models)) else "converted or measured"
    failed = [job for job in ended if not job.stopped]
    parts = [f"{len(done)} of {plural(len(models), 'model')} {word}"] if models else []
    if failed:
        parts.append(f"{plural(len(failed), 'job')} failed:")
    elif not complete:
        parts.append(f"interrupted after {duration(seconds)}: the same command continues from here")
    else:
        parts[-1:] = [f"{parts[-1] if parts else 'done'} in {duration(seconds)}"]
    table = aligned([(model, summary_of(graph.final(model).stage.stage, model)) for model in done], [False, False])
    jobs = [job.text() for job in failed]
    return "\n".join(["", *table, "", ", ".join(parts), *jobs])
