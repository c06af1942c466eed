"""How a run of the workflow begins and ends: nothing left over from the last one, and a summary of what failed.

The Snakefile calls `cancel_leftovers` when a run begins and `summary` when it ends with errors. What failed is read
from Snakemake's own log, since a job that was cancelled or never started leaves no trace in any log of a stage.
"""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from babelmill.commands.status import tail
from babelmill.commands.why import explain
from babelmill.config.resolve import Configuration
from babelmill.core.words import plural

LINES = 5  # of a failed job's log
PATIENCE = 120  # seconds for cancelled jobs to end
SHOWN_LOG = re.compile(r"^Logfile [^\n]*:\n(=+)\n.*?^\1$", re.MULTILINE | re.DOTALL)  # by show-failed-logs


@dataclass
class Failure:
    """A job that failed in its last attempt.

    Attributes:
        rule: of the job.
        output: its first output.
        logs: its own log and SLURM's.
        status: how SLURM says it ended, or why it did not take it, if it was a SLURM job.
        attempts: how many there were.
    """

    rule: str
    output: Path
    logs: list[Path] = field(default_factory=list)
    status: str = ""
    attempts: int = 0

    @property
    def name(self) -> str:
        """The model or language, as in the path of the stage's log."""
        log = next((path for path in self.logs if path.parts[:2] == ("logs", self.rule)), None)
        return Path(*log.parts[2:]).with_suffix("").as_posix() if log else self.output.as_posix()

    def __str__(self) -> str:
        attempts = f"{self.attempts} attempts" if self.attempts > 1 else ""
        title = f"{self.rule} {self.name}: {', '.join(filter(None, [attempts, self.status]))}".rstrip()
        if self.status.startswith("sbatch: "):
            return title  # the job has not begun
        for log in self.logs:
            words = [line for line in tail(log) if line.strip()]
            if log.parts[0] != "logs":  # SLURM's log is Snakemake's own talk in the main
                words = [line for line in words if "error: " in line] or words
            if words:
                return "\n    ".join([title, f"{log}:", *(f"  {line}" for line in words[-LINES:])])
        return "\n    ".join([title, "left no log; see Snakemake's messages above"])


def failures(logs: list[str]) -> list[Failure]:
    """The jobs that failed for good, from Snakemake's logs of this run: those whose outputs are still not there."""
    found: dict[str, Failure] = {}
    said = "".join(Path(log).read_text(encoding="utf-8", errors="replace") for log in logs)
    said = SHOWN_LOG.sub("", said)  # the Snakemake inside of a SLURM job has told of the same failure there
    # A message may have several lines, of which the first alone is indented; the next event begins with [its time].
    for rule, text in re.findall(r"^Error in rule (\w+):\n(.*?)(?=^\[|\Z)", said, re.MULTILINE | re.DOTALL):
        values = dict(reversed(re.findall(r"^    (\w+): (.*)$", text, re.MULTILINE)))
        output = values.get("output", "").split(", ")[0]
        job = found.setdefault(f"{rule} {output}", Failure(rule, Path(output)))
        job.attempts += 1
        job.logs = [Path(path) for path in values.get("log", "").partition(" (check")[0].split(", ") if path]
        status = re.search(r"(SLURM-job '\d+') failed, SLURM status is: '([^']*)'", values.get("message", ""))
        job.status = f"{status[1]} {status[2]}".replace("'", "") if status else ""
        if refused := re.findall(r"sbatch: error: (.*?)'?\.?$", text, re.MULTILINE):
            job.status = f"sbatch: {'; '.join(refused)}"
    return [job for job in found.values() if not job.output.exists()]


def summary(logs: list[str], configuration: Configuration, models: list[str]) -> str:
    """What was converted and what failed. `logs`: Snakemake's own of this run; `models`: those that were asked for."""
    failed = failures(logs)
    done = sum(not any(job.reasons for job in explain(configuration, model)) for model in models)
    jobs = plural(len(failed), "job")
    lines = [f"{done} of {plural(len(models), 'model')} converted, {jobs} failed:"] if models else [f"{jobs} failed:"]
    return "\n".join([*lines, *(f"  {job}" for job in failed)])


def leftovers() -> list[str]:
    """SLURM jobs of an earlier run in this folder that are still there, as far as SLURM can be asked."""
    try:
        command = ["squeue", "--me", "--noheader", "--format", "%i|%Z|%k"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return []
    jobs = [line.split("|", 2) for line in answer.stdout.splitlines() if line.count("|") >= 2]
    return [job for job, folder, comment in jobs if folder == os.getcwd() and comment.startswith("rule_")]


def cancel_leftovers() -> None:
    """Cancel the jobs that a killed Snakemake left in the queue, and wait for their end.

    Snakemake holds this folder's lock now, so nobody waits for these jobs: they would do the same work twice. Training
    saves a checkpoint when it is cancelled, and the new job goes on from there.
    """
    jobs = leftovers()
    if not jobs:
        return
    print(f"Cancelling SLURM jobs that an earlier run left behind: {', '.join(jobs)}", file=sys.stderr)
    subprocess.run(["scancel", *jobs], check=False)
    end = time.monotonic() + PATIENCE
    while leftovers() and time.monotonic() < end:
        time.sleep(1)
