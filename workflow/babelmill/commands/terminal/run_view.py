"""Show a run on the terminal: one line when a stage of a model begins or ends, errors, and little else.

The logger plugin passes Snakemake's events to `RunView`. Snakemake's other messages and all messages of stages are in
the log files. A dry run shows a table of what would run, grouped by stage.
"""

import logging
import os
import re
import shutil
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from babelmill.commands.progress.earlier_runs import who_holds_the_lock
from babelmill.commands.terminal.key_figures import key_figures
from babelmill.commands.terminal.run_summary import INTERRUPTED, Failure
from babelmill.core import bars, escape
from babelmill.core.words import duration, plural
from babelmill.graph import MODELS_OF
from babelmill.runtime.cost import has_gpu
from babelmill.stages import STAGES

LINES = 20  # lines of a failed job's log that are shown
# Messages of Snakemake and its SLURM executor that do not help users. All others are shown.
NOISE = (
    "Assuming unrestricted shared filesystem",
    "Building DAG of jobs",
    "Cleaning up SLURM log files",
    "Conda environments: ",
    "Config file ",  # ... is extended by the command line
    "Elapsed time: ",
    "Exiting because a job execution failed",
    "Falling back to 'sacct'",
    "Group jobs: ",
    "Provided ",
    "Reasons:\n",
    "Removing output files of failed job",
    "SLURM run ID: ",
    "Select jobs to execute",
    "Shutting down, this might take",
    "This was a dry-run",
    "Using shell: ",
    "Removing temporary output ",
    "Would remove temporary output ",
    "WorkflowError:\nAt least one job did not complete",
)
SUBMITTED = re.compile(  # the last group: without SLURM, by a profile's command
    r"(?:Job|Submitted job) (\d+) (?:has been submitted with SLURM jobid (\d+)|with external jobid '(.+)')"
)
RESTARTED = re.compile(r"Trying to restart job (\d+)")
FAILED_COMMAND = re.compile(
    r"CalledProcessError in file .*/(\w+)\.smk.* (?:died with <Signals\.(\w+)|exit status (\d+))", re.DOTALL
)
WIDEST = len("experiment")  # characters
NAMES = 40  # characters of the names of models


@dataclass
class AnnouncedJob:
    """A job as Snakemake announces it."""

    rule: str  # the name of its rule
    name: str  # the name of its result, with the models that ask for it
    makes: bool  # whether it has outputs; the rules of batches have none
    folder: Path | None  # the folder of its results; None if the rule is not a stage
    begun: float  # when it was announced (time.monotonic)

    @classmethod
    def announced(cls, record: Any) -> "AnnouncedJob":
        """Make a job from Snakemake's event."""
        name, stage = ".".join(map(str, dict(record.wildcards or {}).values())), STAGES.get(record.rule_name)
        folder = stage.path_of(name) if stage else None
        if folder and (models := MODELS_OF.get(folder)) and models != [name]:
            name = f"{name} ({fitting(models, NAMES)})"
        return cls(record.rule_name, name, bool(record.output), folder, time.monotonic())


class RunView:
    """Shows a run, event by event."""

    def __init__(self, dry_run: bool, quiet: bool, commands: bool, verbose: bool):
        """Prepare for a run; `quiet`, `commands` and `verbose` are Snakemake's options --quiet, -p and --verbose."""
        self._dry_run, self._quiet, self._commands, self._verbose = dry_run, quiet and not dry_run, commands, verbose
        self._stream = sys.stdout if dry_run else sys.stderr  # as Snakemake does
        self._jobs: dict[int, AnnouncedJob] = {}
        self._total = self._done = 0
        self._failed: dict[int, str] = {}  # for each job, the last log lines of its last attempt
        self._interrupted = self._warned_of_no_gpu = False
        self._farewells: set[str] = set()  # what Snakemake has said of an interruption
        self._remote = False  # whether jobs are sent to a cluster
        if not dry_run:  # stages on the same terminal then show only warnings and progress
            os.environ[bars.TERMINAL] = bars.terminal_id()

    def show(self, record: Any) -> None:
        """Show an event if it has something to show; with --quiet, only warnings and errors."""
        if INTERRUPTED.match(text := record.getMessage()):
            if text in self._farewells:  # Snakemake says so again and again
                return
            self._farewells.add(text)
            self._interrupted = True
        if self._quiet and record.levelno < logging.WARNING:
            return
        match getattr(record, "event", None):
            case "run_info":
                self._total = sum(number for rule, number in record.stats.items() if rule in STAGES)
            case "resources_info":
                self._remote = self._remote or hasattr(record, "nodes")
            case "job_info":
                self._begin(record)
            case "job_finished":
                self._end(record)
            case "job_error":
                self._fail(record)
            case "shellcmd":
                if self._commands and (command := getattr(record, "shellcmd", None)):
                    self._print(command)
            case "error" | "" | None:
                self._message(record)

    def close(self) -> None:
        """Show what would run, after a dry run; clear what was drawn."""
        bars.draw("")
        jobs = [job for job in self._jobs.values() if job.makes]
        if self._dry_run and (self._total or jobs):
            self._print(would_run(jobs) if jobs else f"{plural(self._total, 'job')} would run")  # no jobs with -q
        self._total, self._jobs = 0, {}  # Python's logging closes every handler again at the end

    def _print(self, text: str, error: bool = False) -> None:
        bars.say(escape.terminal(text), sys.stderr if error else self._stream)

    def _line(self, job: AnnouncedJob, text: str, count: str = "") -> None:
        self._print(f"{time.strftime('%H:%M:%S')} {count:>8}  {job.rule:<{WIDEST}}  {job.name:<8}  {text}".rstrip())

    def _begin(self, record: Any) -> None:
        job = self._jobs[record.jobid] = AnnouncedJob.announced(record)
        if job.makes and not self._dry_run and (record.local or not self._remote):
            self._line(job, f"begins{self._without_gpu(record)}")

    def _without_gpu(self, record: Any) -> str:
        """Return, once, the note that a training asks for a GPU and this machine has none."""
        asked = getattr(getattr(record, "resources", None), "gpu", 0)
        if record.rule_name != "train" or not asked or self._warned_of_no_gpu or has_gpu():
            return ""
        self._warned_of_no_gpu = True
        return " on the CPU: this machine has no GPU"

    def _end(self, record: Any) -> None:
        job = self._jobs.get(record.job_id)
        if job and job.makes and not self._dry_run:
            self._done += job.folder is not None
            figures = key_figures(job.rule, job.folder) if job.folder else ""
            count = f"[{self._done}/{self._total}]" if job.folder else ""
            self._line(job, f"{duration(time.monotonic() - job.begun):>5}  {figures}", count)

    def _fail(self, record: Any) -> None:
        outputs = [Path(output) for output in record.output] or [Path()]
        failure = Failure.reported(record.rule_name, outputs[0], record.log, record.rule_msg or "")
        if self._interrupted and not failure.has_error:
            words = failure.last_words  # none if it was stopped before its first message
            self._line(self._jobs[record.jobid], f"stops: {words}" if words else "stops")
            return
        title, *lines = failure.text(LINES).splitlines()
        self._print(f"{time.strftime('%H:%M:%S')}   failed  {title.removesuffix(':')}")
        self._failed[record.jobid] = "\n".join(lines)  # shown if the job is tried again; else the summary shows them

    def _message(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        submitted = SUBMITTED.match(text)
        if submitted and int(submitted[1]) in self._jobs:
            job = f"SLURM job {submitted[2]}" if submitted[2] else f"job {submitted[3]} of the cluster"
            self._line(self._jobs[int(submitted[1])], f"is {job}")
        elif restarted := RESTARTED.match(text):
            if lines := self._failed.get(int(restarted[1])):
                self._print(lines)
        elif "Directory cannot be locked" in text:
            self._print(f"{'note' if self._dry_run else 'error'}: {who_holds_the_lock()}", error=not self._dry_run)
        elif failed := FAILED_COMMAND.search(text):
            signal = failed[2] or (f"signal {int(failed[3]) - 128}" if int(failed[3]) > 128 else "")
            if signal and not self._interrupted:  # other failures are shown with the job's error
                self._print(f"{time.strftime('%H:%M:%S')}           {failed[1]} was ended by {signal}", error=True)
        elif self._verbose or not text.startswith(NOISE):
            self._print(text, error=record.levelno >= logging.WARNING)


def would_run(jobs: list[AnnouncedJob]) -> str:
    """Return the table of a dry run: a line for each stage, with as many names as fit."""
    groups: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        groups[job.rule].append(job.name)
    width = shutil.get_terminal_size((110, 24)).columns - WIDEST - 11
    order = [*STAGES, *groups]
    lines = [f"{plural(len(jobs), 'job')} would run:"]
    for stage in sorted(groups, key=order.index):
        lines.append(f"  {stage:<{WIDEST}}  {len(groups[stage]):>3}  {fitting(sorted(groups[stage]), width)}")
    return "\n".join([*lines, "This was a dry run. `babelmill why MODEL` says why each would run."])


def fitting(names: list[str], width: int) -> str:
    """Join as many names as fit into `width` characters, and count the others."""
    text, left = names[0], len(names) - 1
    for name in names[1:]:
        if len(f"{text}, {name} and {left} more") > width:
            return f"{text} and {left} more"
        text, left = f"{text}, {name}", left - 1
    return text
