"""Make a finished tree of results without running anything: each file a few bytes, each manifest as the stage writes it."""

from babelmill.config.resolve import Configuration
from babelmill.core.files import sha256
from babelmill.core.local_sources import expand_glob
from babelmill.graph import Graph
from helpers.results.report_results import put

FILES = {
    "corpus": ("train.parquet", "validation.parquet"),
    "tokenizer": ("tokenizer.json",),
    "shards": ("train.safetensors", "validation.safetensors"),
    "train": ("model.safetensors", "ema.safetensors", "config.json", "metrics.jsonl"),
    "evaluate": ("evaluation.json",),
    "score": ("scores.json", "items.parquet"),
    "suite": ("items.parquet",),
}


def finish(configuration: Configuration, *models: str) -> None:
    """Write the results of some models into the present folder, where there are none, and their settings."""
    graph = Graph(configuration)
    for model in models:
        for result in graph.of_model(model):
            graph.write(result)
            if result.record.is_file():
                continue
            result.path.mkdir(parents=True)
            names = FILES.get(result.stage.stage, ("model.safetensors",))
            for name in names:
                text = f"{name} of {result.path}"
                (result.path / name).write_text(f'"{text}"' if name == "config.json" else text)
            paths = sorted({path for pattern in result.asked.get("sources", {}) for path in expand_glob(pattern)})
            figures = {"sources": [{"path": path, "sha256": sha256(path)} for path in paths]}
            put(result, names, figures)
        graph.begin(model)
