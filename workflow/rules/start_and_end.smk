"""What a run does before its first job and after its last job."""

import atexit
import functools
import re
from datetime import datetime

from snakemake.logging import logger

from babelmill.commands.progress import earlier_runs
from babelmill.commands.terminal import run_summary
from babelmill.config.tasks import task_note
from babelmill.core.words import said_once
from babelmill.runtime.remote.places import check_package


def asked_for():
    """Return the models of this run's targets."""
    targets = [Path(target).as_posix() for target in workflow.dag_settings.targets] or ["all"]
    form = re.compile(
        r"converted/(.+)|(?:published|submissions)/(.+)\.json|reports/(.+)\.\w+|experiments/(.+)|(?:publish_)?(\w+)"
    )
    words = [next(filter(None, found.groups())) for found in map(form.fullmatch, targets) if found]
    names = [name for word in words for name in word.split("+")]
    return CONFIG.models_of([name for name in names if name in {"all", *CONFIG.batches} or CONFIG.is_model(name)])


@one_line
def refuse_living_jobs():
    """Stop with an error if a job of this run is still running because an earlier Snakemake was killed."""
    jobs = [job for job in workflow.dag.needrun_jobs() if job.rule.name in STAGES]
    words = {f"{job.rule.name} {job.wildcards_dict[STAGES[job.rule.name].of]}" for job in jobs}
    earlier_runs.refuse_beside_themselves(words)


@one_line
def refuse_missing_package():
    """Stop with an error if a training would find no package for `run.checkpoints`, perhaps days after its corpus."""
    if not WITH_CONDA:  # else jobs have other packages than this process
        for job in workflow.dag.needrun_jobs():
            if job.rule.name == "train":
                check_package(CONFIG.model(job.wildcards_dict["model"]).run.checkpoints or "")


def say_idle_gpus():
    """Log if this machine has more GPUs than the jobs of this run may use, which a profile cannot know."""
    limit = workflow.global_resources.get("gpu")
    if (
        workflow.local_exec
        and limit is not None
        and any(job.resources.get("gpu") for job in workflow.dag.needrun_jobs())
    ):
        if note := run_summary.idle_gpus(int(limit.value)):
            logger.info(note)


@functools.cache
def say_what_is_left_out():
    """Say once for which tasks models are not fine-tuned, in a dry run as well: when the first model is asked for."""
    notes = [(model, note) for model in asked_for() if (note := task_note(CONFIG, model))]
    for line in said_once(notes):
        logger.info(f"note: {line}")


@atexit.register
def say_edits():
    """At the end of a dry run, name the modules that were edited since results were made that stay."""
    if workflow.dryrun and workflow.dag is not None:
        jobs = [job for job in workflow.dag.needrun_jobs(exclude_finished=False) if job.rule.name in STAGES]
        for line in FILE_TIMES.edits({STAGES[job.rule.name].path_of(job.wildcards_dict) for job in jobs}):
            print(escape.lines(line))


def end(logs):
    """Log which models are converted, which failed and which still run. Snakemake's log has this summary, too."""
    seconds = (datetime.now() - workflow.start_time).total_seconds()
    logger.info(run_summary.summary(logs, CONFIG, asked_for(), seconds))
    targets = {Path(target) for target in workflow.dag_settings.targets}
    for name in CONFIG.cells:
        if Path("experiments", name) in targets and Path("experiments", name, "table.md").is_file():
            logger.info(f"experiments/{name}/table.md, .tex, results.csv and page.html compare the cells")


onstart:
    refuse_living_jobs()
    refuse_missing_package()
    earlier_runs.cancel_slurm_jobs()
    say_idle_gpus()


onsuccess:
    end(log)


onerror:
    end(log)
