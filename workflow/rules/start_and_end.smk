"""What a run does before its first job and after its last job."""

import atexit
import contextlib
import functools
import shutil
from datetime import datetime
from importlib.util import find_spec

from snakemake.logging import logger

from babelmill.commands import clean, earlier_runs, run_view
from babelmill.config.datasets import task_note
from babelmill.config.inputs import few_documents
from babelmill.core.words import said_once
from babelmill.graph import edits
from babelmill.stages import CHECKPOINTS

MUCH = 2**30  # bytes of results that nobody asks for, above which a run says so at its end


def jobs_to_run():
    """Return the jobs of stages that this run makes, as (stage, name of the result)."""
    jobs = workflow.dag.needrun_jobs(exclude_finished=False)
    return [(job.rule.name, job.wildcards_dict.get("result", "")) for job in jobs if job.rule.name in STAGES]


@one_line
def refuse_missing_package():
    """Stop with an error if a training would find no package for `run.checkpoint_mirror`, perhaps days after its corpus."""
    if not WITH_CONDA:  # else jobs have other packages than this process
        for stage, name in jobs_to_run():
            if stage == "train":
                run = read_json(run_settings_of(GRAPH.find(stage, name).settings_file))["run"]
                mirror = run.get("checkpoint_mirror") or ""
                if mirror.startswith("s3://") and find_spec("s3fs") is None:
                    raise UserError(
                        f"run.checkpoint_mirror: {mirror} needs the package s3fs, in the environment of all jobs:"
                        " pip install 'babelmill[s3]'"
                    )


def begin_anew():
    """Delete the checkpoints of finished trainings that are made anew: else `-R train` would take them.

    One that is not finished continues, so after a kill the same command, `-R train` too, goes on where it was.
    """
    trainings = [GRAPH.find(stage, name) for stage, name in jobs_to_run() if stage == "train" and not workflow.touch]
    for name in [each.name for each in trainings if each.is_there and is_made_anew(each)]:
        if (CHECKPOINTS / name).exists():
            logger.info(f"training begins anew: {CHECKPOINTS / name} is deleted")
            shutil.rmtree(CHECKPOINTS / name)


@functools.cache
def say_what_is_left_out():
    """Say once for which tasks models are not fine-tuned, and which texts are too few documents, in a dry run as well."""
    notes = [(model, note) for model in asked_for() if (note := task_note(CONFIG, model))]
    languages = dict.fromkeys(code for model in asked_for() for code in CONFIG.languages_of(model))
    notes += [(code, note) for code in languages if (note := few_documents(CONFIG.corpus(code)))]
    for line in said_once(notes):
        logger.info(f"note: {line}")


@atexit.register
def say_edits(folder=os.getcwd()):
    """At the end of a dry run, name the modules that were edited since results were made that stay."""
    os.chdir(folder)  # with --directory, Snakemake has left it by now
    if workflow.dryrun and workflow.dag is not None and workflow.is_main_process:
        with contextlib.suppress(UserError):  # what is wrong in the configuration was said before
            run = set(jobs_to_run())
            there = {each.path: each for model in asked_for() for each in GRAPH.of_model(model)}
            for line in edits(each for each in there.values() if (each.stage.stage, each.name) not in run):
                print(escape.lines(line))


def end(complete):
    """Log which models are converted and which jobs failed. Snakemake's log has this summary, too."""
    failed = [job for each in workflow.scheduler.failed for job in (each.jobs if each.is_group() else [each])]
    ended = [
        run_view.FailedJob(job.rule.name, ".".join(job.wildcards_dict.values()), [*map(Path, job.log)], job.attempt)
        for job in sorted(failed)
    ]
    seconds = (datetime.now() - workflow.start_time).total_seconds()
    logger.info(run_view.summary(GRAPH, asked_for(), ended, complete, seconds))
    with contextlib.suppress(UserError):  # what is wrong with a model that this run does not ask for
        if (size := sum(map(clean.size_of, clean.unused(GRAPH)))) > MUCH:
            logger.info(f"{size / 2**30:,.1f} GiB of results are asked for by no setting: see `babelmill clean`")
    targets = {Path(target) for target in workflow.dag_settings.targets}
    for name in CONFIG.cells:
        if Path("experiments", name) in targets and Path("experiments", name, "table.md").is_file():
            logger.info(f"experiments/{name}/table.md, .tex, results.csv and page.html compare the cells")


onstart:
    refuse_missing_package()
    earlier_runs.cancel_slurm_jobs()
    begin_anew()
    for model in asked_for():
        GRAPH.begin(model)


onsuccess:
    end(complete=True)


onerror:
    end(complete=False)
