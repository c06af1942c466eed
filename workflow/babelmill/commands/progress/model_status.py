"""Find how far a model is, only from the files, so on any machine that sees the folder.

A stage is done if it has a manifest that agrees with the settings. The stage's log shows errors. Snakemake's markers of
unfinished outputs show which jobs are running. The lock and the metrics in the folder of a training run show how far
training is.
"""

import base64
import dataclasses
import json
import time
from pathlib import Path

from babelmill.commands.progress.logs import last_words, metrics
from babelmill.config.inputs import PREDICTIONS
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError, canonical_json, read_json
from babelmill.graph import CHECKPOINTS, Job, explain, reasons_to_predict
from babelmill.runtime.record import newest_log
from babelmill.runtime.run_lock import DEAD_AFTER, died_here
from babelmill.settings import settings_of
from babelmill.stages import STAGES, TO_CONVERTED, leading_to

SNAKEMAKE = Path(".snakemake")
STATES = ("failed", "running", "queued", "stopped", "waiting", "outdated")  # of several jobs, the first is shown


@dataclasses.dataclass
class Status:
    """How far a model is; None means unknown or not applicable."""

    model: str
    stage: str = ""  # the present stage; if the model has several languages, also how many of them are done
    # converted, or one of STATES. stopped: a job ended without an error message; waiting: it has not been tried;
    # outdated: its result exists, but settings or files have changed since.
    state: str = "waiting"
    # step, steps: optimizer steps done, and in the whole run.
    step: int | None = None
    steps: int | None = None
    loss: float | None = None  # loss of the last logged training step
    tokens_per_second: float | None = None
    left: float | None = None  # seconds of training that remain, at the present speed
    attempt: int | None = None  # attempt of the training job, counted from 1; None for the first one without SLURM
    job: str | None = None  # number of the SLURM job, and its machine where that is known
    gpus: str = ""  # use, memory, power and temperature, if the driver reports them
    note: str = ""  # the last message of a failed job, or why a stage is outdated
    # Where to read more; for training, the log of its newest attempt, which stays after the job.
    log: Path | None = None


def submitted(folder: Path) -> tuple[str, float] | None:
    """Return Snakemake's unfinished job for a stage's folder: (SLURM job, time of submission); None if there is none.

    The SLURM job is "" without SLURM; the time is in seconds since the epoch.

    Snakemake marks the outputs of unfinished jobs by a file named after the output. The marks of an interrupted job
    stay, but the lock of the folder exists only while a run holds it.
    """
    if not any((SNAKEMAKE / "locks").glob("*")):
        return None
    for output in (folder, folder / "manifest.json"):
        name = base64.urlsafe_b64encode(output.as_posix().encode()).decode()
        marker = SNAKEMAKE / "incomplete" / name
        if marker.is_file():
            try:
                job = str(json.loads(marker.read_text())["external_jobid"] or "")
            except (ValueError, KeyError):
                job = ""
            return job, marker.stat().st_mtime
    return None


def find_log(stage: str, model: str, language: str) -> Path | None:
    """Return the log of a stage's last job: its own or, if it did not write one, SLURM's; None if there is none."""
    name = language if STAGES[stage].of == "language" else "/".join(filter(None, (model, language)))
    log = Path("logs", stage, f"{name}.log")
    if log.is_file():
        return log
    slurm = (SNAKEMAKE / "slurm_logs" / f"rule_{stage}" / name.replace("/", "_")).glob("*.log")
    return max(slurm, key=lambda path: path.stat().st_mtime, default=None)


def state_of_job(stage: str, model: str, language: str, folder: Path) -> Status:
    """Return the state, job, note and log of a stage that is not done."""
    status = Status(model, state="waiting", log=find_log(stage, model, language))
    under_way = submitted(folder)
    if under_way is not None:
        # An older log belongs to an earlier job. A training job of SLURM may be back in the queue: it runs only while
        # it holds a lock (`add_training`).
        job, since = under_way
        log = status.log if status.log is not None and status.log.parts[0] == "logs" else None
        begun = log is not None and log.stat().st_mtime >= since and (stage != "train" or not job)
        status.state, status.job = "running" if begun else "queued", job or None
    elif (folder if folder.suffix else folder / "manifest.json").is_file():
        status.state = "outdated"
    elif status.log is not None:
        failed, status.note = last_words(status.log)
        status.state = "failed" if failed else "stopped"
    return status


def begun(configuration: Configuration) -> list[str]:
    """Return the targets, and all models that have a tokenizer or a log of making one."""
    found = {path.name for path in Path("results/tokenizers").glob("*")}
    found |= {path.stem for path in Path("logs/tokenizer").glob("*.log")}
    targets = configuration.targets()
    return targets + sorted(model for model in found - set(targets) if configuration.is_model(model))


def newest_run(model: str) -> Path | None:
    """Return the folder of a model's newest training run; None if there is none."""
    notes = (CHECKPOINTS / model).glob("*/attempt.json")
    newest = max(notes, key=lambda path: path.stat().st_mtime, default=None)
    return newest.parent if newest else None


def add_training(status: Status, running: bool) -> None:
    """Fill in how far the newest training run of the model is. `running`: training is the present stage."""
    folder = newest_run(status.model)
    if folder is None:
        return
    kept = newest_log(folder)
    if running and kept and (status.log is None or kept.stat().st_mtime >= status.log.stat().st_mtime):
        status.log = kept
    attempt = json.loads((folder / "attempt.json").read_text())
    status.attempt = attempt["attempt"] if attempt["attempt"] > 1 or attempt["job"] else None
    status.steps = attempt["steps"]
    trained = [line for line in metrics(folder) if line["kind"] == "train"]
    saved = [int(path.stem.removeprefix("step-")) for path in folder.glob("step-*.safetensors")]
    status.step = max([attempt["began_after_step"], *saved, *(line["step"] for line in trained[-1:])])
    if trained:
        status.loss, status.tokens_per_second = trained[-1]["loss"], trained[-1]["tokens_per_second"]
    lock = folder / "lock.json"
    if not running or not lock.is_file():
        return
    owner = json.loads(lock.read_text())
    if time.time() - lock.stat().st_mtime < DEAD_AFTER and not died_here(owner):
        status.state = "running"
        status.job = f"{owner['job']} on {owner['host']}" if owner["job"] else owner["host"]
        if trained:
            status.gpus = gpu_figures(trained[-1])
            status.note = validating(folder)
            status.left = (attempt["tokens"] - trained[-1]["tokens"]) / trained[-1]["tokens_per_second"]


def validating(folder: Path) -> str:
    """Return how far the validation of a run is: "validating, 45 %"; "" if there is none."""
    try:
        found = json.loads((folder / "validating.json").read_text())
        return f"validating, {100 * found['share']:.0f} %"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def gpu_figures(line: dict[str, float]) -> str:
    """Return the GPU figures of a line of metrics: `98% 71GB 2.3kW 61C`; "" if the driver does not report them."""
    figures = [
        ("gpu_utilization", 1, "{:.0f}%"),
        ("gpu_memory", 1024, "{:.0f}GB"),
        ("gpu_power", 1000, "{:.1f}kW"),
        ("gpu_temperature", 1, "{:.0f}C"),
    ]
    return " ".join(text.format(line[name] / size) for name, size, text in figures if name in line)


def mention_earlier_settings(configuration: Configuration, status: Status, job: Job) -> None:
    """Say of a job that failed if that may have been with other settings than those of today."""
    path = job.stage.settings_file(job.name, job.part)
    if status.state != "failed" or status.log is None or not path.is_file():
        return
    # A dry run writes the file, too: it is then younger than the log.
    if path.stat().st_mtime > status.log.stat().st_mtime or path.read_text(encoding="utf-8") != canonical_json(
        settings_of(configuration, job.name, path.stem)
    ):
        status.note = f"perhaps with other settings: {status.note}"


def status_of_stage(configuration: Configuration, stage: str, model: str, jobs: list[Job]) -> Status:
    """Return the status of a stage that is not done; `jobs`: all its jobs."""
    found = []
    for job in jobs:
        if job.reasons:
            part = f"{job.part}/{job.name}" if stage == "suite" else job.part  # the name of its log
            found.append(state_of_job(stage, model, part, job.folder))
            mention_earlier_settings(configuration, found[-1], job)
            if found[-1].state == "outdated":
                found[-1].note = job.reasons[0]
    status = min(found, key=lambda status: STATES.index(status.state))
    status.stage = f"{stage} {len(jobs) - len(found)}/{len(jobs)}" if len(jobs) > 1 else stage
    return status


def status_of(configuration: Configuration, model: str) -> Status:
    """Return how far a model is: at the stage with a job under way, or else at the first stage that is not done."""
    try:
        explained = explain(configuration, model)
    except UserError as error:
        return Status(model, state="failed", note=str(error))
    statuses = {}
    for stage in TO_CONVERTED:
        of_stage = (job for job in explained if job.stage.name == stage)
        mine = [job for job in of_stage if job.stage.of == "language" or job.name == model]
        if any(job.reasons for job in mine):
            statuses[stage] = status_of_stage(configuration, stage, model, mine)
    under_way = [stage for stage, status in statuses.items() if status.state in ("running", "queued")]
    stage = next(iter([*under_way, *statuses]), None)
    status = statuses[stage] if stage else Status(model, "convert", "converted")
    if not stage:
        status = status_of_tables(configuration, status)
    if stage == "train" or stage not in leading_to("train"):
        add_training(status, running=stage == "train")
    elsewhere = configuration.model(model).run.checkpoints
    if stage == "train" and elsewhere and status.state != "running":
        status.note = "; ".join(filter(None, [status.note, f"{elsewhere} may have a later checkpoint"]))
    return status


def status_of_tables(configuration: Configuration, converted: Status) -> Status:
    """Add to a converted model's status how many tables are predicted.

    The state stays `converted` if none of the other tables was begun.
    """
    tables = reasons_to_predict(configuration, converted.model)
    reasons = {table: because for table, because in tables.items() if because}
    note = f"{len(tables) - len(reasons)}/{len(tables)} tables predicted" if tables else ""
    if not reasons:
        return dataclasses.replace(converted, note=note)
    stage = STAGES["predict"]
    jobs = [Job(stage, converted.model, table, because) for table, because in tables.items()]
    status = status_of_stage(configuration, "predict", converted.model, jobs)
    if status.state == "waiting":
        return dataclasses.replace(converted, note=note)
    done = []
    for table in reasons:
        folder = PREDICTIONS / converted.model / table  # `labels/windows.py` writes it
        windows = len(list(folder.glob("*.csv")))
        identity = read_json(folder / "identity.json") if windows else {}
        if identity:
            rows = identity["rows"]
            done.append(f"{table}: {min(windows * identity['window'], rows):,} of {rows:,} rows")
    return dataclasses.replace(status, note="; ".join(done + ([status.note] if status.note else [])))
