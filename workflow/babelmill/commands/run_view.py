"""What a run shows on the terminal: one line as each stage of each model begins and ends, errors, and little else.

The logger plugin hands Snakemake's events to `RunView`. What Snakemake says besides, and every message of a stage, is
in the log files. A dry run is a table: what would run, grouped by stage and reason.
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
from typing import Any, Protocol

from babelmill.commands.key_figures import key_figures
from babelmill.commands.run_summary import INTERRUPTED, Failure, counted, duration
from babelmill.core.stage_entry import TERMINAL, terminal_id
from babelmill.stages import STAGES

LINES = 20  # of a failed job's log
REASONS = 4  # of a stage, in a dry run
# What Snakemake and its SLURM executor say that is of no use to who waits for models. The rest is shown.
NOISE = re.compile(
    r"Assuming unrestricted shared filesystem|Config file .* is extended|Building DAG of jobs|Using shell: |Provided "
    r"|Group jobs: |Conda environments: |Singularity containers: |Select jobs to execute|Shutting down, this might"
    r"|Elapsed time: |Reasons:\n|This was a dry-run|Removing output files of failed job|Exiting because a job execution failed"
    r"|host: |Trying to restart job|SLURM run ID: |Cleaning up SLURM log files|Falling back to 'sacct'"
    r"|'sacct' unavailable|WorkflowError:\nAt least one job did not complete|\Z"
)
SUBMITTED = re.compile(r"Job (\d+) has been submitted with SLURM jobid (\d+)")
FAILED_COMMAND = re.compile(r"CalledProcessError in file .* returned non-zero exit status", re.DOTALL)
ANOTHER_JOB = "Input files updated by another job"


class OutputSettings(Protocol):
    """What Snakemake tells a logger plugin of its own options."""

    dryrun: bool
    printshellcmds: bool
    verbose: bool
    stdout: bool


@dataclass
class Job:
    """A job as Snakemake announces it.

    Attributes:
        rule: its name.
        name: the model or language; `model/language` where a model has several jobs.
        folder: of its results; None if the rule is no stage.
        benchmark: the file that says how long it ran.
        reason: why it runs, in Snakemake's words.
        begun: when it was announced (time.monotonic).
    """

    rule: str
    name: str
    folder: Path | None
    benchmark: str | None
    reason: str
    begun: float

    @classmethod
    def announced(cls, record: Any) -> "Job":
        """Make a job of Snakemake's event."""
        wildcards = dict(record.wildcards or {})
        model, language = wildcards.get("model", ""), wildcards.get("language", "")
        stage = STAGES.get(record.rule_name)
        return cls(
            rule=record.rule_name,
            name="/".join(dict.fromkeys(map(str, wildcards.values()))),
            folder=stage.path(model, language) if stage else None,
            benchmark=record.benchmark,
            reason=record.reason,
            begun=time.monotonic(),
        )

    def seconds(self) -> float:
        """How long it ran: a job of SLURM's has been in the queue, too."""
        try:
            return float(Path(self.benchmark or "").read_text().splitlines()[1].split("\t")[0])
        except (OSError, IndexError, ValueError):
            return time.monotonic() - self.begun


class RunView:
    """Shows a run, event by event."""

    def __init__(self, settings: OutputSettings):
        self._settings = settings
        self._stream = sys.stdout if settings.stdout else sys.stderr
        self._jobs: dict[int, Job] = {}
        self._total = self._done = 0
        self._interrupted = False
        self._remote = False  # whether jobs are sent to a cluster
        self._events = {
            "run_info": self._count,
            "resources_info": self._note_executor,
            "job_info": self._begin,
            "job_finished": self._end,
            "job_error": self._fail,
            "shellcmd": self._command,
            "error": self._message,
            "": self._message,
        }
        if not settings.dryrun:  # stages that write here, too, leave it to these lines
            os.environ[TERMINAL] = terminal_id()

    def show(self, record: logging.LogRecord) -> None:
        """Show what an event says, if it says anything."""
        event = str(getattr(record, "event", None) or "")
        if event in self._events:
            self._events[event](record)

    def close(self) -> None:
        """Show what would run, after a dry run."""
        jobs, self._jobs = [job for job in self._jobs.values() if job.folder], {}  # Python's logging closes it again
        if self._settings.dryrun and jobs:
            self._print(would_run(jobs))

    def _print(self, text: str) -> None:
        """Write lines; the progress bar of a stage makes room for them."""
        room = "\r\033[K" if self._stream.isatty() else ""
        print(room + text, file=self._stream, flush=True)

    def _line(self, job: Job, text: str, count: str = "") -> None:
        self._print(f"{time.strftime('%H:%M:%S')} {count:>8}  {job.rule:<9}  {job.name:<8}  {text}".rstrip())

    def _count(self, record: Any) -> None:
        self._total = sum(number for rule, number in record.stats.items() if rule in STAGES)

    def _note_executor(self, record: Any) -> None:
        self._remote = self._remote or hasattr(record, "nodes")

    def _begin(self, record: Any) -> None:
        job = self._jobs[record.jobid] = Job.announced(record)
        if job.folder and not self._settings.dryrun and (record.local or not self._remote):
            self._line(job, "begins")

    def _end(self, record: Any) -> None:
        job = self._jobs.get(record.job_id)
        if job and job.folder and not self._settings.dryrun:
            self._done += 1
            figures = key_figures(job.rule, job.folder)
            self._line(job, f"{duration(job.seconds()):>5}  {figures}", f"[{self._done}/{self._total}]")

    def _fail(self, record: Any) -> None:
        outputs = [Path(output) for output in record.output] or [Path()]
        failure = Failure.told(record.rule_name, outputs[0], record.log, record.rule_msg or "")
        if self._interrupted and not failure.has_error:
            self._line(self._jobs[record.jobid], "stops")
            return
        self._print(f"{time.strftime('%H:%M:%S')}   failed  {failure.text(LINES)}")

    def _command(self, record: Any) -> None:
        command = getattr(record, "shellcmd", None)
        if self._settings.printshellcmds and command:
            self._print(command)

    def _message(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._interrupted = self._interrupted or bool(INTERRUPTED.match(text))
        if submitted := SUBMITTED.match(text):
            self._line(self._jobs[int(submitted[1])], f"is SLURM job {submitted[2]}")
        elif self._settings.verbose or not (
            record.levelno < logging.INFO or NOISE.match(text) or FAILED_COMMAND.search(text)
        ):
            self._print(text)


def short_reason(job: Job) -> str:
    """Say Snakemake's reason in a few words, with * for the job's name, so that equal reasons of several are equal."""
    parts = [part.partition(": ") for part in job.reason.split("; ")]
    own = [(what, files) for what, _, files in parts if what != ANOTHER_JOB]
    if not own:
        return "what it reads is made again"
    words = {"Missing output files": "not there yet", "Updated input files": f"{own[0][1]} changed"}
    name = job.name.split("/")[0]
    said = words.get(own[0][0], ": ".join(filter(None, own[0])))
    return re.sub(rf"(?<=/){re.escape(name)}(?=/)", "*", said)


def would_run(jobs: list[Job]) -> str:
    """Make the table of a dry run: a line for each stage and reason, with as many names as fit."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for job in jobs:
        groups[job.rule][short_reason(job)].append(job.name)
    width = shutil.get_terminal_size((110, 24)).columns
    lines = [f"{counted(len(jobs), 'job')} would run:"]
    for stage in (stage for stage in STAGES if stage in groups):
        reasons = sorted(groups[stage].items(), key=lambda item: -len(item[1]))
        if len(reasons) > REASONS:
            others = [name for _, names in reasons[REASONS - 1 :] for name in names]
            reasons = [*reasons[: REASONS - 1], ("other reasons", others)]
        for reason, names in reasons:
            if len(names) == 1:
                reason = reason.replace("*", names[0].split("/")[0])
            lines.append(f"  {stage:<9}  {len(names):>3}  {fitting(sorted(names), width - len(reason) - 20)}: {reason}")
    lines.append("This was a dry run.")
    if any("changed" in line for line in lines):
        lines[-1] += " `babelmill why` says which values have changed."
    return "\n".join(lines)


def fitting(names: list[str], width: int) -> str:
    """Join names, as many as fit."""
    said, left = names[0], len(names) - 1
    for name in names[1:]:
        if len(f"{said}, {name} and {left} more") > width:
            return f"{said} and {left} more"
        said, left = f"{said}, {name}", left - 1
    return said
