"""Find how far a model is, only from the files, so on any machine that sees the folder.

A stage is done if its result is there. The stage's log shows errors. The lock and the metrics in the folder of a
training run show how far training is.
"""

import dataclasses
import json
from pathlib import Path

from babelmill.commands.progress.logs import last_words, metrics
from babelmill.core.files import UserError
from babelmill.graph import CHECKPOINTS, Graph, Result
from babelmill.runtime.run_lock import holder
from babelmill.stages import STAGES, UNFINISHED, PredictStage

LOCKS = Path(".snakemake/locks")  # there is a file in it as long as a run holds this folder
DONE = ("converted", "measured")  # the last is that of a model that is not trained here
STATES = ("failed", "running", "stopped", "waiting")  # of several jobs, the first is shown


@dataclasses.dataclass
class Status:
    """How far a model is; None means unknown or not applicable."""

    model: str
    stage: str = ""  # the present stage; if the model has several jobs of it, also how many of them are done
    # One of DONE or STATES. stopped: a job ended without an error message; waiting: it has not been tried.
    state: str = "waiting"
    # step, steps: optimizer steps done, and in the whole run.
    step: int | None = None
    steps: int | None = None
    loss: float | None = None  # loss of the last logged training step
    tokens_per_second: float | None = None
    left: float | None = None  # seconds of training that remain, at the present speed
    attempt: int | None = None  # attempt of the training job, counted from 1; None for the first one without SLURM
    job: str | None = None  # number of the SLURM job, and its machine where that is known
    note: str = ""  # the last message of a failed job, or what is being done
    # Where to read more; for training, the log of its newest attempt, which stays after the job.
    log: Path | None = None


def state_of(model: str, result: Result) -> Status:
    """Return the state, note and log of a job whose result is not there."""
    log = Path("logs", result.stage.stage, f"{result.name}.log")
    if not log.is_file():
        return Status(model)
    failed, note = last_words(log)
    if result.record.is_file() and not failed:  # it was made with other settings, and not tried again since
        return Status(model)
    running = any(LOCKS.glob("*"))
    return Status(model, state="failed" if failed else "running" if running else "stopped", note=note, log=log)


def add_training(status: Status, run: Path, running: bool) -> None:
    """Fill in how far a training run is, from its folder. `running`: training is the present stage."""
    if not (run / "attempt.json").is_file():
        return
    kept = max((run / "logs").glob("*.log"), default=None)
    if running and kept and (status.log is None or kept.stat().st_mtime >= status.log.stat().st_mtime):
        status.log = kept
    attempt = json.loads((run / "attempt.json").read_text())
    status.attempt = attempt["attempt"] if attempt["attempt"] > 1 or attempt["job"] else None
    status.steps = attempt["steps"]
    trained = [line for line in metrics(run) if line["kind"] == "train"]
    saved = [int(path.stem.removeprefix("step-")) for path in run.glob("step-*.safetensors")]
    status.step = max([attempt["began_after_step"], *saved, *(line["step"] for line in trained[-1:])])
    if trained:
        status.loss, status.tokens_per_second = trained[-1]["loss"], trained[-1]["tokens_per_second"]
    if running and (owner := holder(run)):
        status.state = "running"
        status.job = f"{owner['job']} on {owner['host']}" if owner["job"] else owner["host"]
        if trained:
            status.note = validating(run)
            status.left = (attempt["tokens"] - trained[-1]["tokens"]) / trained[-1]["tokens_per_second"]


def validating(folder: Path) -> str:
    """Return how far the validation of a run is: "validating, 45 %"; "" if there is none."""
    try:
        found = json.loads((folder / "validating.json").read_text())
        return f"validating, {100 * found['share']:.0f} %"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def status_of_jobs(model: str, results: list[Result], missing: list[Result]) -> Status:
    """Return the status of a stage that is not done; `missing`: those of its results that are not there."""
    status = min((state_of(model, each) for each in missing), key=lambda each: STATES.index(each.state))
    name = results[0].stage.stage
    status.stage = f"{name} {len(results) - len(missing)}/{len(results)}" if len(results) > 1 else name
    return status


def status_of(graph: Graph, model: str) -> Status:
    """Return how far a model is: at the stage with a job under way, or else at the first stage that is not done."""
    try:
        results = graph.of_model(model)
        missing = list(dict.fromkeys(results[-1].runs()))
    except UserError as error:
        return Status(model, state="failed", note=str(error))
    statuses = {}
    for stage in STAGES.values():
        if of_stage := [each for each in missing if each.stage is stage]:
            statuses[stage.stage] = status_of_jobs(model, [each for each in results if each.stage is stage], of_stage)
    under_way = [stage for stage, status in statuses.items() if status.state == "running"]
    stage = next(iter([*under_way, *statuses]), None)
    done = Status(model, results[-1].stage.stage, DONE[not graph.configuration.is_trained(model)])
    status = statuses[stage] if stage else status_of_tables(graph, done)
    training = results[-1].training
    if training and (stage == "train" or training.is_there):
        add_training(status, CHECKPOINTS / training.name, running=stage == "train")
    elsewhere = graph.configuration.model(model).run.checkpoints
    if stage == "train" and elsewhere and status.state != "running":
        status.note = "; ".join(filter(None, [status.note, f"{elsewhere} may have a later checkpoint"]))
    return status


def status_of_tables(graph: Graph, converted: Status) -> Status:
    """Add to a converted model's status how many tables are predicted.

    The state stays `converted` if none of the other tables was begun.
    """
    model = converted.model
    tables = [graph.result("predict", model, part) for part in STAGES["predict"].parts(graph.configuration, model)]
    missing = [each for each in tables if not each.is_there]
    note = f"{len(tables) - len(missing)}/{len(tables)} tables predicted" if tables else ""
    status = status_of_jobs(model, tables, missing) if missing else converted
    if status.state in (*DONE, "waiting"):
        return dataclasses.replace(converted, note=note)
    done = []
    for table in missing:
        folder = UNFINISHED / "predict" / table.name  # `labels/prediction.py` writes it
        if parts := len(list(folder.glob("*.npz"))):
            done.append(f"{table.part}: {parts * PredictStage.at_once:,} texts")
    return dataclasses.replace(status, note="; ".join(filter(None, [*done, status.note])))
