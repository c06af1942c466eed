"""Explain the jobs of a model, and find the training run that present settings and data lead to."""

from pathlib import Path
from typing import Any

from babelmill import graph
from babelmill.config.model_source import ModelSource
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
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


def explain(configuration: Configuration, model: str) -> list[graph.Job]:
    """Return the jobs of a model as `graph.explain` does; training also says after which step it would continue."""
    jobs = graph.explain(configuration, model)
    for job in jobs:
        if job.stage.name == "train" and job.runs and not any(source.runs for source in job.reads):
            settings = settings_of(configuration, job.name, "train")
            if done := steps_done(settings, configuration.model(job.name).source):
                job.reasons.append(f"continues after step {done:,}")
    return jobs
