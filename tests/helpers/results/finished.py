"""Make a finished tree of results without running anything: each file a few bytes, each manifest as the stage writes it."""

from pathlib import Path

from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import sha256
from babelmill.core.globs import expand_glob
from babelmill.graph import jobs_of
from babelmill.reporting import asked
from babelmill.settings import settings_of
from babelmill.stages import TO_CONVERTED, Stage

FILES = {
    "corpus": ("train.parquet", "validation.parquet"),
    "tokenizer": ("tokenizer.json",),
    "shards": ("train.safetensors", "validation.safetensors"),
    "train": ("model.safetensors", "ema.safetensors", "config.json", "metrics.jsonl"),
    "evaluate": ("evaluation.json",),
    "score": ("scores.json", "pairs.parquet"),
    "suite": ("pairs.parquet",),
}


def finish_report(configuration: Configuration, name: str) -> None:
    """Write a report."""
    asked.write_settings(configuration, name)
    for path in [Path(f"reports/{name}.{end}") for end in ("html", "csv")]:
        path.parent.mkdir(exist_ok=True)
        path.write_text("a report")


def finish(configuration: Configuration, *models: str, stages: dict[str, Stage] = TO_CONVERTED) -> None:
    """Write the results of all stages (or these) of some models into the present folder, where there are none."""
    for model in models:
        for job in jobs_of(configuration, model, stages):
            if job.stage.record(job.name, job.part).is_file():
                continue
            settings = settings_of(configuration, job.name, job.stage.settings_name(job.part))
            about = manifest.StageRequest(job.stage.name, job.name, settings)
            names = FILES.get(job.stage.name, ("model.safetensors",))
            job.folder.mkdir(parents=True)
            for name in names:
                text = f"{name} of {job.folder}"
                (job.folder / name).write_text(f'"{text}"' if name == "config.json" else text)
            paths = sorted({path for pattern in settings.get("sources", {}) for path in expand_glob(pattern)})
            figures = {"sources": [{"path": path, "sha256": sha256(path)} for path in paths]}
            manifest.write(job.folder, about, names, [source.folder for source in job.reads], figures)
            benchmark = job.stage.benchmark(job.name, job.part)
            benchmark.parent.mkdir(parents=True, exist_ok=True)
            benchmark.write_text("seconds\n")
