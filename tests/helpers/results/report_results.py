"""Make results in the form of the stages without any training: manifests, evaluations, scores and records."""

import json
import math
import random
from collections.abc import Iterable
from typing import Any

from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import sha256, write_json
from babelmill.core.local_sources import expand_glob
from babelmill.evaluation.statistics import wilson
from babelmill.graph import Graph, Result
from helpers.stages import any_settings

PHENOMENA = ("anaphor_agreement", "argument_structure", "binding", "control_raising", "ellipsis", "islands<b>")
STEPS = 2000  # of each training
FILES = {  # of stages, for `finish`
    "corpus": ("train.parquet", "validation.parquet"),
    "tokenizer": ("tokenizer.json",),
    "shards": ("train.safetensors", "validation.safetensors"),
    "train": ("model.safetensors", "ema.safetensors", "config.json", "metrics.jsonl"),
    "evaluate": ("evaluation.json",),
    "score": ("scores.json", "items.parquet"),
    "suite": ("items.parquet",),
}


def put(result: Result, files: Iterable[str] = (), figures: Any = None) -> None:
    """Write the manifest of a result, with files that are there, into the present folder."""
    result.path.mkdir(parents=True, exist_ok=True)
    upstream = [each.path for each in result.upstream if each.record.is_file()]
    manifest.write(result.path, any_settings(result.stage.stage, **result.asked), files, upstream, figures)


def record_of(draw: random.Random) -> list[dict[str, Any]]:
    """Return the record of a hybrid run: a line per twentieth step, and ten validations."""
    lines, level = [], draw.uniform(2.4, 3.6)
    for step in range(20, STEPS + 1, 20):
        done = step / STEPS
        loss = {k: level + add + 6 * math.exp(-6 * done) for k, add in (("masked", 0.4), ("causal", 0.0))}
        train = {f"loss_{k}": value + draw.gauss(0.1, 0.05) for k, value in loss.items()}
        line = {"step": step, "kind": "train", "loss": sum(train.values()) / 2, **train, "tokens": step * 32768}
        line |= {"epoch": 10 * done, "tokens_per_second": 90000.0, "energy": 90.0, "mask_rate": 0.2}
        line |= {"learning_rate": 0.01 * min(1, done / 0.02) * (0.55 + 0.45 * math.cos(math.pi * done))}
        lines.append(line | {"sequence_length": 128 if done < 0.7 else 256 if done < 0.9 else 512})
        if step % (STEPS // 10) == 0:
            averaged = {f"ema_loss_{k}": value - 0.15 * (1 - done) - 0.05 for k, value in loss.items()}
            last = {f"loss_{k}": value for k, value in loss.items()}
            lines.append({"step": step, "kind": "validation", "loss": sum(loss.values()) / 2, **last, **averaged})
            lines[-1]["ema_loss"] = sum(averaged.values()) / 2
    return lines


def evaluation_of(draw: random.Random, languages: list[str]) -> dict[str, Any]:
    """Return evaluation.json of a hybrid model."""

    def score(middle: float) -> dict[str, Any]:
        value = middle + draw.gauss(0, 0.1)
        return {"value": value, "standard_error": 0.012, "bytes": 99999, "tokens": 30000, "nats_per_token": 3.0}

    def of_language() -> dict[str, Any]:
        variants = {name: {"causal": score(1.2), "masked": score(1.0)} for name in ("main", "ema")}
        return {"variants": variants, "unigram": score(2.4), "documents": {"scored": 500, "of": 500}}

    about = {"unit": "bits per byte", "bound": False, "perplexity": False}
    meanings = {"causal": "each token from those before it", "masked": "each token hidden once, from both sides"}
    metrics = {n: about | {"name": n, "meaning": m, "task": ""} for n, m in (meanings | {"unigram": "alone"}).items()}
    quality = {"bytes_per_token": 4.1, "tokens_per_word": 1.2 + draw.random(), "vocabulary_used": 0.97}
    quality |= {"round_trip_rate": 1.0}
    found = {code: of_language() for code in languages}
    return {"languages": found, "metrics": metrics, "tokenizer": dict.fromkeys(languages, quality)} | of_language()


def scores_of(
    draw: random.Random,
    suite: str,
    languages: list[str],
    snapshots: Iterable[float] = (),
    max_masked_items: int | str = "all",
    phenomena: Iterable[str] = PHENOMENA,
) -> dict[str, Any]:
    """Return scores.json of a suite, also for snapshots after so many million words.

    Each phenomenon has 300 pairs of three paradigms, or `max_masked_items` of each paradigm for masked scores.
    """
    names = list(phenomena)

    def share(count: int, middle: float) -> dict[str, Any]:
        score = round(count * min(0.99, max(0.4, draw.gauss(middle, 0.1)))) / count
        return {"score": score, "n": count, "interval": wilson(score, count)}

    def method(name: str, middle: float = 0.75) -> dict[str, Any]:
        each = 100 if max_masked_items == "all" or name == "causal" else int(max_masked_items)
        whole = {of: share(3 * each * len(names), middle) for of in ("pairs", "paradigms")}
        groups = {group: share(3 * each, middle) for group in names}
        paradigms = {f"{group}_{i}": share(each, middle) for group in names for i in (1, 2, 3)}
        return whole | {"by_phenomenon": groups, "by_paradigm": paradigms}

    where = {"hub": {"repository": f"lab/{suite}", "revision": "main", "commit": "5" * 40}, "sources": []}
    found, of = {}, "pairs" if suite == "multiblimp" else "paradigms"
    for code in languages:
        methods = {name: method(name) for name in ("causal", "masked", "fused")}
        pairs = where | {"pairs": 300 * len(names)}
        found[code] = {"headline": methods["fused"][of], "methods": methods, "pairs": pairs}
    headline = {"method": "fused", "of": of}
    kept = []
    for point in snapshots:
        middle = 0.5 + 0.08 * math.log10(1 + point)
        now = {"methods": {name: method(name, middle) for name in ("causal", "masked", "fused")}}
        about = {"name": f"chck_{point:g}M", "million_words": point, "words": round(1e6 * point), "tokens": 5e5 * point}
        kept.append(about | {"step": int(point * 40), "languages": dict.fromkeys(languages, now)})
    about = {"suite": suite, "headline": headline, "max_masked_items": max_masked_items, "languages": found}
    return about | ({"snapshots": kept} if kept else {})


def make(
    graph: Graph,
    model: str,
    suites: dict[str, list[str]],
    snapshots: Iterable[float] = (),
    max_masked_items: int | str = "all",
) -> None:
    """Write the results of a model into the present folder.

    Args:
        graph: where its results are.
        model: its name.
        suites: {suite: codes that it covers}.
        snapshots, max_masked_items: see `scores_of`.
    """
    languages = list(graph.configuration.languages_of(model))
    draw = random.Random(f"{model} {languages}")
    for code in languages:
        hub = {"repository": f"lab/texts-{code}", "revision": "main", "commit": "7" * 40}
        put(graph.result("corpus", code), figures={"hub": hub, "sources": [], "documents": {"train": 12_345}})
        put(graph.result("shards", model, code))
    put(graph.result("tokenizer", model), figures={"vocab_size": 16384, "report": {}})
    train = graph.result("train", model)
    train.path.mkdir(parents=True, exist_ok=True)
    (train.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in record_of(draw)))
    figures = {"parameters": 31_400_000, "steps": STEPS, "tokens": STEPS * 32768, "epochs": 10.0}
    put(train, ["metrics.jsonl"], figures)
    put(graph.result("export", model))
    evaluate = graph.result("evaluate", model)
    write_json(evaluate.path / "evaluation.json", evaluation_of(draw, languages))
    put(evaluate, ["evaluation.json"])
    for suite, covered in suites.items():
        score = graph.result("score", model, suite)
        mine = [code for code in languages if code in covered]
        write_json(score.path / "scores.json", scores_of(draw, suite, mine, snapshots, max_masked_items))
        put(score, ["scores.json"])


def finish(configuration: Configuration, *models: str) -> None:
    """Write the results of some models into the present folder, where there are none, and their settings.

    Each file has a few bytes, each manifest is as the stage writes it.
    """
    graph = Graph(configuration)
    for model in models:
        for result in graph.of_model(model):
            graph.write(result)
            if result.record.is_file():
                continue
            result.path.mkdir(parents=True)
            names = FILES.get(result.stage.stage, ("model.safetensors",))
            for name in names:
                (result.path / name).write_text(f'"{name} of {result.path}"')
            paths = sorted({path for pattern in result.asked.get("sources", {}) for path in expand_glob(pattern)})
            figures = {"sources": [{"path": path, "sha256": sha256(path)} for path in paths]}
            put(result, names, figures)
        graph.begin(model)
