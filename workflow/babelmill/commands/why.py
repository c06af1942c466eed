"""Show what would run for a model, stage by stage, and why.

    babelmill why eng

`graph.py` compares the manifests in the results with the present settings, code and files. `snakemake -n` decides by
the same comparison; this command shows which value in them is the reason.
"""

import argparse
from pathlib import Path
from typing import Any

from babelmill import graph
from babelmill.config import loading
from babelmill.config.model_source import ModelSource
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.graph import Job
from babelmill.runtime.record import fingerprint, identity
from babelmill.settings import settings_of
from babelmill.stages import STAGES

CHECKPOINTS = Path("results/checkpoints")


def run_of(settings: dict[str, Any], source: ModelSource | None) -> dict[str, Any] | None:
    """Return the identity of the training run with some settings and the present data; None if data is missing.

    `source`: the model that it continues.
    """
    model = settings["name"]
    tokenizer = STAGES["tokenizer"].path(model, "")
    shards = [STAGES["shards"].path(model, language) for language in settings["languages"]]
    weights = source and source.weights
    needed = [tokenizer, *shards, *([weights] if weights else [])]
    there = all((folder / manifest.NAME).is_file() for folder in needed)
    return identity(settings, tokenizer, shards, weights) if there else None


def steps_done(settings: dict[str, Any], source: ModelSource | None) -> int:
    """Return the step after which training with some settings and the present data continues; 0 if it has to begin."""
    run = run_of(settings, source)
    saved = (CHECKPOINTS / settings["name"] / fingerprint(run)).glob("step-*.json") if run else ()
    return max((int(path.stem.removeprefix("step-")) for path in saved), default=0)


def explain(configuration: Configuration, model: str) -> list[Job]:
    """Return the jobs of a model as `graph.explain` does; training also says after which step it would continue."""
    jobs = graph.explain(configuration, model)
    for job in jobs:
        if job.stage.name == "train" and job.runs and not any(source.runs for source in job.reads):
            settings = settings_of(configuration, job.name, "train")
            if done := steps_done(settings, configuration.model(job.name).source):
                job.reasons.append(f"continues after step {done:,}")
    return jobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("models", nargs="*", help="model names (default: the configuration's targets)")
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Print, stage by stage, what would run for a model and why."""
    configuration = loading.from_arguments(args)
    for model in args.models or configuration.targets():
        jobs = explain(configuration, model)
        several = len({part for job in jobs if (part := job.part)}) > 1
        print(model)
        for job in jobs:
            title = f"{job.stage.name} {job.part}" if several and job.part else job.stage.name
            title = title if job.stage.of == "language" or job.name == model else f"{job.name}: {title}"
            print(f"  {title:<16} {'; '.join(job.reasons) or 'up to date'}")
        for table, reasons in graph.reasons_to_predict(configuration, model).items():
            reasons += [f"runs because {jobs[-1].stage.name} does"] if jobs[-1].runs and not reasons else []
            print(f"  {f'predict {table}':<16} {'; '.join(reasons) or 'up to date'}")
