"""Show a run on the terminal: one line when a stage of a model begins or ends, errors, and little else.

The logger plugin passes Snakemake's events to `RunView`. Snakemake's other messages and all messages of stages are in
the log files. A dry run shows a table of what would run, grouped by stage and reason.
"""

import contextlib
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
from babelmill.config.inputs import SETTINGS
from babelmill.core import bars, escape
from babelmill.core.files import UserError, read_json
from babelmill.core.words import duration, plural
from babelmill.graph import steps_done
from babelmill.runtime.cost import has_gpu
from babelmill.settings import training_asked, trainings_there
from babelmill.stages import STAGES

LINES = 20  # lines of a failed job's log that are shown
REASONS = 4  # reasons per stage in a dry run
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
ANOTHER_JOB = "Input files updated by another job"


@dataclass
class AnnouncedJob:
    """A job as Snakemake announces it."""

    rule: str  # the name of its rule
    name: str  # the model or language; `model/language` where a model has several jobs
    makes: bool  # whether it has outputs; the rules of batches have none
    folder: Path | None  # the folder of its results; None if the rule is not a stage
    benchmark: str | None  # the file that says how long it ran
    reason: str  # why it runs, in Snakemake's words
    begun: float  # when it was announced (time.monotonic)

    @classmethod
    def announced(cls, record: Any) -> "AnnouncedJob":
        """Make a job from Snakemake's event."""
        wildcards = dict(record.wildcards or {})
        stage = STAGES.get(record.rule_name)
        return cls(
            rule=record.rule_name,
            name="/".join(dict.fromkeys(str(value) for key, value in wildcards.items() if key != "run")),
            makes=bool(record.output),
            folder=stage.path_of(wildcards) if stage else None,
            benchmark=record.benchmark,
            reason=record.reason,
            begun=time.monotonic(),
        )

    def seconds(self) -> float:
        """Return its running time, without the time that a SLURM job spent in the queue."""
        try:
            return float(Path(self.benchmark or "").read_text().splitlines()[1].split("\t")[0])
        except (OSError, IndexError, ValueError):
            return time.monotonic() - self.begun


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
            self._line(job, f"{duration(job.seconds()):>5}  {figures}", count)

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


def short_reason(job: AnnouncedJob) -> str:
    """Return Snakemake's reason in a few words, with * for the job's name, so that equal reasons can be grouped."""
    parts = [part.partition(": ") for part in job.reason.split("; ")]
    own = [(what, fitting(files.split(", "), 60)) for what, _, files in parts if what != ANOTHER_JOB]
    if not own:
        return "its inputs are made again"
    what, files = own[0]
    words = {"Missing output files": "results not made yet", "Updated input files": f"{files} changed"}
    name = job.name.split("/")[0]
    reason = words.get(what, f"{what}: {files}" if files else what)
    return re.sub(rf"(?<=/){re.escape(name)}(?=/)", "*", reason)


def with_steps_done(reason: str, job: AnnouncedJob, jobs: list[AnnouncedJob]) -> str:
    """Add to the reason of a training the step after which it continues, if its text and tokens do not change."""
    made = {(other.rule, other.name.split("/")[0]) for other in jobs}
    if job.rule != "train" or made & {("tokenizer", job.name), ("shards", job.name)}:
        return reason
    try:
        settings = read_json(SETTINGS / job.name / "train.json")
        if "source" in settings["model"]:  # only the configuration knows where the source is
            return reason
        done = steps_done(settings, None)
    except UserError:
        return reason
    return f"{reason}, continues after step {done:,}" if done else reason


def would_run(jobs: list[AnnouncedJob]) -> str:
    """Return the table of a dry run: a line for each stage and reason, with as many names as fit."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for job in jobs:
        groups[job.rule][with_steps_done(short_reason(job), job, jobs)].append(job.name)
    width = shutil.get_terminal_size((110, 24)).columns
    lines = [f"{plural(len(jobs), 'job')} would run:"]
    for stage in sorted(groups, key=lambda rule: list(STAGES).index(rule) if rule in STAGES else len(STAGES)):
        reasons = sorted(groups[stage].items(), key=lambda item: -len(item[1]))
        if len(reasons) > REASONS:
            others = [name for _, names in reasons[REASONS - 1 :] for name in names]
            reasons = [*reasons[: REASONS - 1], ("other reasons", others)]
        for reason, names in reasons:
            if len(names) == 1:
                reason = reason.replace("*", names[0].split("/")[0])
            named = fitting(sorted(names), width - len(reason) - WIDEST - 11)
            lines.append(f"  {stage:<{WIDEST}}  {len(names):>3}  {named}: {reason}")
    lines.append("This was a dry run.")
    if same := only_linked(jobs):
        lines.insert(-1, same)
    if any("changed" in line for line in lines):
        lines[-1] += " `babelmill why` says which values have changed."
    return "\n".join(lines)


def only_linked(jobs: list[AnnouncedJob]) -> str:
    """Return the line of a dry run that names trainings which take the result of another model; "" if there are none.

    The other model is trained already, or earlier in this run.
    """
    new_text = any(job.rule == "corpus" for job in jobs)
    names = [job.name for job in jobs if job.rule == "train"]
    there = {} if new_text else {asked: name for asked, name in trainings_there().items() if name not in names}
    first, found = dict[str, str](), []
    for name in names:
        with contextlib.suppress(UserError, LookupError):
            asked = training_asked(name)
            other = there.get(asked) or first.setdefault(asked, name)
            if other != name:
                found.append(f"{name} (as {other})")
    if not found:
        return ""
    width = shutil.get_terminal_size((110, 24)).columns
    text = (
        f"{plural(len(found), 'training')} of these {'is' if len(found) == 1 else 'are'} not made again, but linked: "
    )
    return text + fitting(sorted(found), width - len(text))


def fitting(names: list[str], width: int) -> str:
    """Join as many names as fit into `width` characters, and count the others."""
    text, left = names[0], len(names) - 1
    for name in names[1:]:
        if len(f"{text}, {name} and {left} more") > width:
            return f"{text} and {left} more"
        text, left = f"{text}, {name}", left - 1
    return text
