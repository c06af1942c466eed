"""Show what would run for a model, stage by stage, and why.

    babelmill why               # for the configuration's targets
    babelmill why eng

This command compares what each result was made from with the present settings, versions and files, and names the values
that differ. `snakemake -n` decides by the same comparison. Modules that were edited since are named, too: an edit alone
makes nothing run.
"""

import argparse

from babelmill.config import loading
from babelmill.core.escape import line
from babelmill.graph import Job, edits, explain, reasons_to_predict, reasons_to_submit


def state_of(job: Job) -> str:
    """Say that a job does not run: its results are there, or they are not needed."""
    if not (missing := job.missing):
        return "up to date"
    return f"{missing if job.there else 'not there'}; not needed, since what was made from it is there"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    words = "a model, batch or experiment (default: the configuration's targets)"
    parser.add_argument("models", nargs="*", metavar="MODEL", help=words)
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Print, stage by stage, what would run for a model and why."""
    configuration = loading.from_arguments(args)
    for model in configuration.models_of(args.models or ["all"]):
        jobs = explain(configuration, model)
        several = len({part for job in jobs if (part := job.part)}) > 1
        print(model)
        for job in jobs:
            title = f"{job.stage.name} {job.part}" if several and job.part else job.stage.name
            title = title if job.stage.of == "language" or job.name == model else f"{job.name}: {title}"
            print(line(f"  {title:<16} {'; '.join(job.reasons) or state_of(job)}"))
        for table, reasons in reasons_to_predict(configuration, model).items():
            print(later(f"predict {table}", reasons, jobs[-1]))
        if (reasons := reasons_to_submit(configuration, model)) is not None:
            print(later("submission", reasons, jobs[-1]))
        for text in edits(job for job in jobs if not job.runs):
            print(line(text))


def later(title: str, reasons: list[str], converted: Job) -> str:
    """Return the line of a stage after `converted`."""
    reasons = reasons or ([f"runs because {converted.stage.name} does"] if converted.runs else [])
    return line(f"  {title:<16} {'; '.join(reasons) or 'up to date'}")
