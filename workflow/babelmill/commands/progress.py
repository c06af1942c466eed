"""Find how far a model is, only from the files, so on any machine that sees the folder and its locks.

A stage is done if its result is there. A job runs as long as its process holds its log (`core/stage_entry.py`). The log
also shows errors. The lock and the metrics in the folder of a training run show how far training is.
"""

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

from babelmill.core.files import UserError, is_locked
from babelmill.graph import CHECKPOINTS, Graph, Result, steps_done
from babelmill.runtime.run_lock import holder
from babelmill.stages import STAGES

TAIL = 2**16  # bytes read from the end of a file; a line of metrics has less than 2,000
LOCKS = Path(".snakemake/locks")  # each run keeps a list of its outputs there until it ends
DONE = ("converted", "measured")  # the last is that of a model that is not trained here
STATES = ("failed", "running", "stopped", "waiting")  # of several jobs, the first is shown


# What a job writes while it runs.


def tail(path: Path) -> list[str]:
    """Return the last whole lines of a file; [] if there is no file."""
    try:
        with open(path, "rb") as file:
            start = max(0, path.stat().st_size - TAIL)
            file.seek(start)
            return file.read().decode("utf-8", errors="replace").splitlines()[start > 0 :]
    except OSError:
        return []


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the last lines of the metrics in a folder; the very last one may be only half written."""
    return [json.loads(line) for line in tail(run / "metrics.jsonl") if line.endswith("}")]


def last_words(log: Path) -> tuple[bool, str]:
    """Return whether a log contains an error, and the message of that error, or else the last line."""
    lines = [line for line in tail(log) if line.strip()]
    failed = [line for line in lines if "error: " in line]
    if not failed:
        return False, lines[-1] if lines else ""
    line = lines[-1] if "error: unexpected" in failed[-1] else failed[-1].partition("error: ")[2]
    return True, line.strip()


# The states of jobs and models.


@dataclasses.dataclass
class Status:
    """How far a model is; None means unknown or not applicable."""

    model: str
    stage: str = ""  # the present stage; if the model has several jobs of it, also how many of them are done
    # One of DONE or STATES. stopped: the last job ended without an error message, and no run begins it again yet;
    # waiting: the present run, or the last one, has not tried it.
    state: str = "waiting"
    # step, steps: optimizer steps done (of a training that does not run, those that are saved), and in the whole run.
    step: int | None = None
    steps: int | None = None
    loss: float | None = None  # loss of the last logged training step, if training runs or is done; so is the speed
    tokens_per_second: float | None = None
    left: float | None = None  # seconds of training that remain, at the present speed
    attempt: int | None = None  # attempt of the training job, counted from 1; None for the first one without SLURM
    job: str | None = None  # number of the SLURM job, and its machine where that is known
    note: str = ""  # the last message of a failed job, or what is being done
    # Where to read more; for training, the log of its newest attempt, which stays after the job.
    log: Path | None = None


def log_of(result: Result) -> Path:
    """Return the log of the job that makes a result."""
    return Path("logs", result.stage.stage, f"{result.name}.log")


def state_of(model: str, result: Result) -> Status:
    """Return the state, note and log of a job whose result is not there."""
    log = log_of(result)
    if not log.is_file() or is_taken_up(result, log):
        return Status(model)
    failed, note = last_words(log)
    if is_locked(log):
        return Status(model, state="running", note=note, log=log)
    of_other_settings = result.record.is_file() and not failed  # not tried again since
    if of_other_settings or not all(each.is_there for each in result.upstream):  # what it reads is not there yet
        return Status(model)
    return Status(model, state="failed" if failed else "stopped", note=note, log=log)


def is_taken_up(result: Result, log: Path) -> bool:
    """Return whether the log of a job is an earlier run's, and the present run will make the result."""
    outputs = {str(result.path), str(result.record)}
    with contextlib.suppress(OSError):  # the run has just ended, or is another user's
        newer = [each for each in LOCKS.glob("*.output.lock") if each.stat().st_mtime > log.stat().st_mtime]
        return any(not outputs.isdisjoint(each.read_text().splitlines()) for each in newer)
    return False


def add_training(status: Status, training: Result) -> None:
    """Fill in how far a training is, from the folder of its run."""
    run = CHECKPOINTS / training.name
    if not (run / "attempt.json").is_file():
        return
    kept = max((run / "logs").glob("*.log"), default=None)
    if status.log and kept and kept.stat().st_mtime >= status.log.stat().st_mtime:
        status.log = kept
    attempt = json.loads((run / "attempt.json").read_text())
    status.attempt = attempt["attempt"] if attempt["attempt"] > 1 or attempt["job"] else None
    status.steps, owner = attempt["steps"], None if training.is_there else holder(run)
    status.step = max(attempt["began_after_step"], steps_done(training))
    trained = [line for line in metrics(run) if line["kind"] == "train"]
    if trained and (owner or training.is_there):
        status.step = max(status.step, trained[-1]["step"])
        status.loss, status.tokens_per_second = trained[-1]["loss"], trained[-1]["tokens_per_second"]
    if owner:
        status.state, status.note = "running", ""
        status.job = f"{owner['job']} on {owner['host']}" if owner["job"] else owner["host"]
        if trained:
            status.left = (attempt["tokens"] - trained[-1]["tokens"]) / trained[-1]["tokens_per_second"]


def under_way(result: Result) -> str:
    """Return that a job runs now, and how far a training is; "" if none makes this result."""
    status = Status("") if result.is_there else state_of("", result)
    if result.stage.stage == "train":
        add_training(status, result)
    step = "" if status.steps is None else f", step {status.step:,} of {status.steps:,}"
    return f"runs now{step}" if status.state == "running" else ""


def status_of(graph: Graph, model: str) -> Status:
    """Return how far a model is: at a job that runs, failed or was stopped, or else at the first missing stage."""
    try:
        results = graph.of_model(model)
        missing = list(dict.fromkeys(results[-1].runs()))
    except UserError as error:
        return Status(model, state="failed", note=str(error))
    statuses = dict[str, Status]()
    for name, stage in STAGES.items():
        if of_stage := [state_of(model, each) for each in missing if each.stage is stage]:
            statuses[name] = min(of_stage, key=lambda each: STATES.index(each.state))
            count = sum(each.stage is stage for each in results)
            statuses[name].stage = f"{name} {count - len(of_stage)}/{count}" if count > 1 else name
    first = ("running", *STATES)
    stage = min(statuses, key=lambda name: first.index(statuses[name].state), default=results[-1].stage.stage)
    status = statuses.get(stage) or Status(model, stage, DONE[not graph.configuration.is_trained(model)])
    training = results[-1].training
    if training and (stage == "train" or training.is_there):
        add_training(status, training)
    return status
