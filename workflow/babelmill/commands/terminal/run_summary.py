"""Say at the end of a run which models are converted and which jobs failed, and at its start which GPUs stay idle."""

import glob
import os
from pathlib import Path
from typing import NamedTuple

from babelmill.commands.progress.logs import last_words, tail
from babelmill.commands.terminal.run_view import named, summary_of
from babelmill.core.words import aligned, duration, plural
from babelmill.graph import Graph

GPU_FILES = "/dev/nvidia[0-9]*"  # one for each GPU, of NVIDIA's driver
LINES = 5  # lines of a failed job's log that are shown
STOPPED = "the same command"  # a stage that a signal ends says that the same command continues, or starts it again


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
                return "\n    ".join([title, f"{log}:", *(f"  {line}" for line in words[-LINES:])])
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
        parts.append("interrupted: the same command continues from here")
    end = ", ".join(parts) or "done"
    table = aligned([(model, summary_of(graph.final(model).stage.stage, model)) for model in done], [False, False])
    jobs = [job.text() for job in failed]
    return "\n".join(["", *table, "", end if jobs else f"{end} in {duration(seconds)}", *jobs])


def nvidia_gpus() -> int:
    """Return how many NVIDIA GPUs of this machine jobs may see, without starting the driver."""
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len(chosen.split(",")) if chosen not in ("", "-1") else 0
    return len(glob.glob(GPU_FILES))


def idle_gpus(limit: int) -> str:
    """Return a note if a run may use `limit` GPUs of this machine, at least one, and it has more; "" otherwise."""
    if limit == 0 or (count := nvidia_gpus()) <= limit:
        return ""
    return (
        f"this run uses {limit} of this machine's {plural(count, 'GPU')}: to use all, put --resources gpu={count} at"
        f" the end of the command, or write gpu: {count} in the profile"
    )
