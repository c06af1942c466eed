"""Make the page of a report: prepare what its template shows as plain lists, and render it.

A score that does not exist is a dash, and the page explains only what it shows.
"""

import functools
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from babelmill import __version__
from babelmill.core import escape
from babelmill.core.words import plural
from babelmill.evaluation.metrics import SHARE, Metric
from babelmill.evaluation.overlaps import MEANING, in_training_text
from babelmill.evaluation.suite_scores import METHODS, chance, headline_method, measure_of, sampled, weighting
from babelmill.evaluation.tuned_scores import summarize
from babelmill.release.card.training_history import training_curves, training_hours
from babelmill.reporting import figures
from babelmill.reporting.asked import STYLE, TEMPLATE
from babelmill.reporting.figures import moments
from babelmill.reporting.results import ReportedModel
from babelmill.reporting.surveys import surveys
from babelmill.reporting.table import ALL, ScoreRow, differing_settings, metrics_of_all, rows_of, unit_of
from babelmill.runtime.store import TAKEN

NOTHING = Markup("")
RECIPES = 6  # whose losses are drawn over each other: readers can tell so many colours apart
COLUMNS = 6  # columns of a table of phenomena, so that it fits a printed page


def page(asked: dict[str, Any], models: list[ReportedModel], first: Markup = NOTHING) -> str:
    """Return the report as one HTML file; `first`: a section that stands before all others."""
    template = environment()
    template.filters |= {"amount": figures.number, "percent": percent, "part": part, "shade": shade, "unit": unit_of}
    rows = [row for model in models for row in rows_of(model)]
    states = Counter(model.state for model in models)
    return template.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        first=first,
        asked=asked,
        name=", ".join(asked["name"].split("+")),
        version=__version__,
        models=models,
        counts=f"{plural(len(models), 'model')}: " + ", ".join(f"{n} {state}" for state, n in states.most_common()),
        lacking=[model for model in models if model.state != "converted" or model.problems],
        overview=overview(asked, models, rows),
        texts=[of_metric(name, metric, models, rows) for name, metric in metrics_of_all(models).items()],
        tuned=tuned(asked, models),
        suites=[found for name in asked["suites"] if (found := of_suite(name, asked, models, rows))["lines"]],
        learning=learning(asked, models),
        **training(models),
        looked_at=surveys(asked["languages"], corpora_of(asked)),
        tokenizers=tokenizers(models),
        recipes=recipes(models),
        made_with=made_with(models),
        costs=[cost(model) for model in models if ("train", "") in model.manifests],
        challenges=challenges(asked, models),
        coverage=coverage(asked, models),
        versions=versions(models),
        sources=sources(models),
    )


def corpora_of(asked: dict[str, Any]) -> set[Path]:
    """Return the corpora that the models use."""
    results = [item for model in asked["models"].values() for item in model.get("results", {}).items()]
    return {Path(path) for title, path in results if title.startswith("corpus ")}


def environment() -> Environment:
    """Return an environment for the templates of pages.

    Names, notes, error messages and texts may hold HTML, which is escaped, and what terminals and browsers obey.
    """
    return Environment(
        loader=FileSystemLoader(STYLE.parent),
        autoescape=True,
        finalize=plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def plain(value: Any) -> Any:
    """Return text from outside on one line, without characters that reverse or hide text; other values as they are."""
    return escape.line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def learning(asked: dict[str, Any], models: list[ReportedModel]) -> list[tuple[ReportedModel, str, Markup]]:
    """Return the curves of all suites on the same axes, for the models and languages whose snapshots were scored."""
    found = [
        (model, code, about["title"], curve, chance(model.scores[suite]))
        for suite, about in asked["suites"].items()
        for model in models
        for code in model.languages
        if (curve := moments(model, code, suite))
    ]
    pictures = figures.learning_pictures([each[2:] for each in found])
    return [(model, code, picture) for (model, code, *_), picture in zip(found, pictures, strict=True)]


def training(models: list[ReportedModel]) -> dict[str, Any]:
    """Return the curves of all runs on the same axes, and the kinds of lines in them."""
    runs = [(model, training_curves(model.record)) for model in models if model.record]
    pictures = figures.training_pictures([(model.name, curves) for model, curves in runs])
    by_name = {model.name: curves for model, curves in runs}
    recipes_of = [[by_name[name] for name in names if name in by_name] for names in recipes(models)["models"]]
    together = len(runs) > 1 and len(recipes_of) <= RECIPES
    kinds = [kind for _, curves in runs for kind in curves["kinds"].values()]
    lines = [name for name in ("training", "raw", "averaged") if any(kind[name] for kind in kinds)]
    return {
        "trained": list(zip((model for model, _ in runs), pictures, strict=True)),
        "lines": lines,
        "overlaid": figures.fitted(functools.partial(figures.overlaid, recipes_of), alone=True) if together else "",
    }


def percent(share: float | None) -> str:
    """Return a share in percent as text; a dash if it is not known."""
    return "–" if share is None else f"{100 * share:.1f}"


def part(value: float | None, digits: int = 2) -> str:
    """Return a number as text; a dash if it is not known."""
    return "–" if value is None else f"{value:,.{digits}f}"


def headline_of(model: ReportedModel, suite: str) -> str:
    """Return the method of a model's headline score on a suite; "" if there is no score."""
    return headline_method(model.scores[suite]) if suite in model.scores else ""


def overview(asked: dict[str, Any], models: list[ReportedModel], rows: list[ScoreRow]) -> dict[str, Any]:
    """Return the overview table: its columns, and one line per model and language."""
    found = {(row.model, row.language, row.suite, row.method): row for row in rows if row.is_whole}
    metrics = metrics_of_all(models)
    suites = [suite for suite in asked["suites"] if any(row.suite == suite for row in found.values())]
    lines = []
    for model in models:
        for code in model.languages:
            cells = [found.get((model.name, code, "", metric)) for metric in metrics]
            cells += [found.get((model.name, code, suite, headline_of(model, suite))) for suite in suites]
            lines.append({"model": model, "language": code, "cells": cells})
    return {"metrics": metrics, "lines": lines}


def of_metric(name: str, metric: Metric, models: list[ReportedModel], rows: list[ScoreRow]) -> dict[str, Any]:
    """Return the strips of a metric on the validation text, the best model first."""
    mine = [row for row in rows if row.suite == "" and row.method == name]
    mine.sort(key=lambda row: (row.score if metric.unit != SHARE else -row.score, row.model, row.language))
    simple = {(model.name, code): simple_score(model, code, name) for model in models for code in model.languages}
    ends = [end for row in mine for end in (row.low, row.high, row.score) if end is not None]
    ends += [beside for row in mine if (beside := simple[row.model, row.language]) is not None]
    room = 0.04 * (max(ends) - min(ends)) or 0.1
    scale = figures.Scale(min(ends) - room, max(ends) + room, 0, 100)
    return {
        "name": name,
        "unit": unit_of(metric),
        "simple": "most frequent code" if metric.unit == SHARE else "unigram",
        "compared": any(simple[row.model, row.language] is not None for row in mine),
        "meaning": metric.meaning,
        "axis": figures.axis(scale, False),
        "languages": len({row.language for row in mine}),
        "lines": [
            {
                "row": row,
                "simple": (beside := simple[row.model, row.language]),
                "strip": figures.strip(scale, row.score, row.low, row.high, beside=beside),
            }
            for row in mine
        ],
    }


def tuned(asked: dict[str, Any], models: list[ReportedModel]) -> list[dict[str, Any]]:
    """Return the lines of the table of scores after fine-tuning: task by task and language, the best model first."""
    lines = [
        {"model": model.name, "score": each} | {key: asked["tasks"][each.task][key] for key in ("title", "protocol")}
        for model in models
        for each in summarize(model.tuned)
    ]
    order = list(asked["tasks"])
    return sorted(
        lines, key=lambda line: (order.index(line["score"].task), line["score"].language, -line["score"].mean)
    )


def simple_score(model: ReportedModel, code: str, metric: str) -> float | None:
    """Return the score of a much simpler model: a unigram model, or one that always gives the most frequent code."""
    found = model.variants_of(code)
    score = found.get("unigram") or found.get("most_frequent", {}).get(metric)
    return score["value"] if score else None


def of_suite(name: str, asked: dict[str, Any], models: list[ReportedModel], rows: list[ScoreRow]) -> dict[str, Any]:
    """Return the strips of a suite and its published baselines, by language, and the table of its phenomena."""
    about, by_name = asked["suites"][name], {model.name: model for model in models}
    every = [row for row in rows if row.suite == name]
    mine = [row for row in every if row.method == headline_of(by_name[row.model], name)]
    heads = [row for row in mine if row.is_whole]
    scored_models = [by_name[row.model].scores[name] for row in heads]
    by_chance = chance(scored_models[0]) if heads else 0.5
    measure = measure_of(scored_models[0]) if heads else ""
    low = min([by_chance, *(row.low for row in heads if row.low is not None)])
    high = max((row.high for row in heads if row.high is not None), default=1.0)
    ends = (low - 0.02, min(1.0, high + 0.02)) if measure else (max(0.0, low - 0.02), 1.0)
    scale = figures.Scale(*ends, 0, 100)
    lines: list[dict[str, Any]] = [
        {"row": row, "score": row.score, "language": row.language, "baseline": None} for row in heads
    ]
    scored = {row.language for row in heads}
    lines += [
        {"row": None, "score": each["score"] / 100, "language": each["language"], "baseline": each}
        for each in about["baselines"]
        if each["language"] in scored
    ]
    for each in about["originals"]:
        reproductions = {model for model, of in asked["models"].items() if of["preset"] == each["preset"]}
        ours = [row for row in heads if row.language == each["language"] and row.model in reproductions]
        if ours:
            same = {"language": each["language"], "score": each["score"], "pipeline": each["protocol"]}
            lines = [line for line in lines if not same.items() <= (line["baseline"] or {}).items()]
            baseline = {"model": each["model"], "pipeline": f"{each['protocol']}; {each['source']}"}
            line = {"row": None, "score": each["score"] / 100, "language": each["language"], "baseline": baseline}
            lines.append(line | {"reproduced": [difference_from(row, each["score"] / 100) for row in ours]})
    for line in lines:
        ends = (line["row"].low, line["row"].high) if line["row"] else (None, None)
        line["strip"] = figures.strip(scale, line["score"], *ends, baseline=line["row"] is None, beside=by_chance)
    # The language with the best model comes first. Baselines are among the models of their language.
    best = {code: max(line["score"] for line in lines if line["language"] == code and line["row"]) for code in scored}
    lines.sort(key=lambda line: (-best[line["language"]], line["language"], -line["score"]))
    limits = {sampled(by_name[row.model].scores[name], row.method) for row in heads}
    return about | {
        "name": name,
        "lines": lines,
        "axis": figures.axis(scale, True),
        "methods": sorted({row.method for row in heads}),
        "samples": sorted(f"{most:,}" for most in limits if most is not None),
        "headline": f"{measure} x 100" if measure else weighting(about["headline"]),
        "measure": measure,
        "chance": by_chance,
        "noun": "pairs" if all("kind" not in scores for scores in scored_models) else "items",
        "by_method": by_method(heads, every),
        "overlaps": [
            (row.model, row.language, in_training_text(overlap, row.language))
            for row in heads
            if (overlap := by_name[row.model].overlaps.get(name))
        ],
        "continued": any(by_name[row.model].manifest("train")["figures"].get("source") for row in heads),
        "meaning_of_overlap": MEANING,
        "phenomena": grouped([row for row in mine if row.phenomenon not in (ALL, "")], "phenomenon", by_chance),
        "paradigms": grouped([row for row in mine if row.paradigm != ALL], "paradigm", by_chance),
    }


def difference_from(row: ScoreRow, original: float) -> str:
    """Return by how many points a reproduction differs from its original, with the interval of its own score."""
    ends = [end for end in (row.low, row.high) if end is not None]
    interval = f" ({' to '.join(f'{100 * (end - original):+.1f}' for end in ends)})" if ends else ""
    return f"{row.model} {100 * (row.score - original):+.1f}{interval}"


def by_method(heads: list[ScoreRow], rows: list[ScoreRow]) -> dict[str, Any]:
    """Return the table of the scores by all methods, a line per model and language; {} if there is only one method."""
    found = {(row.model, row.language, row.method): row for row in rows if row.is_whole}
    methods = sorted({method for _, _, method in found}, key=METHODS.index)
    if len(methods) < 2:
        return {}
    keys = [(row.model, row.language) for row in heads]
    return {"methods": methods, "lines": [(key, [found.get((*key, method)) for method in methods]) for key in keys]}


def grouped(rows: list[ScoreRow], kind: str, by_chance: float) -> list[dict[str, Any]]:
    """Return tables of the scores by phenomenon or paradigm (`kind`), the one with the best mean first.

    Groups are lines and models are columns, COLUMNS in a table, so that it fits a page. If there are few groups and
    many models, groups are the columns of one table. `by_chance`: the score of guessing, for shades.
    """
    unit = "percent" if not rows or rows[0].unit == SHARE else f"{rows[0].unit} x 100"
    common = {"kind": kind, "chance": by_chance, "unit": unit}
    groups: dict[str, list[ScoreRow]] = {}
    for row in rows:
        groups.setdefault(getattr(row, kind), []).append(row)
    if len(groups) < 2:
        return []
    names = sorted(groups, key=lambda name: -statistics.fmean(row.score for row in groups[name]))
    found = {(row.model, row.language, getattr(row, kind)): row for row in rows}
    keys = list(dict.fromkeys((row.model, row.language) for row in rows))
    counted = [(name, pairs(groups[name])) for name in names]
    if len(names) <= COLUMNS < len(keys):
        lines = [(key, [found.get((*key, name)) for name in names]) for key in keys]
        return [{**common, "groups_are_lines": False, "heads": counted, "lines": lines}]
    tables = []
    for start in range(0, len(keys), COLUMNS):
        part_of_keys = keys[start : start + COLUMNS]
        lines = [(group, [found.get((*key, group[0])) for key in part_of_keys]) for group in counted]
        tables.append({**common, "groups_are_lines": True, "heads": part_of_keys, "lines": lines})
    return tables


def pairs(rows: list[ScoreRow]) -> str:
    """Return the number of pairs of a phenomenon as text; it may differ between languages."""
    fewest, most = min(row.n for row in rows), max(row.n for row in rows)
    return f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"


def shade(score: float, by_chance: float) -> int:
    """Return the shade of a cell, from 0 (chance or below) to 5 (all items right)."""
    return max(0, min(5, int((score - by_chance) / (1 - by_chance) * 5 + 0.5)))


def tokenizers(models: list[ReportedModel]) -> list[dict[str, Any]]:
    """Return what is known about each model's tokenizer, by language, the fewest tokens per word first."""
    found = []
    for model in models:
        figures_of = model.manifest("tokenizer")["figures"]
        of_text = (model.evaluation or {}).get("tokenizer", {})
        for code in model.languages:
            known = figures_of.get("report", {}).get(code, {}) | of_text.get(code, {})
            if known:
                found.append({"model": model.name, "language": code, "size": figures_of.get("vocab_size"), **known})
    return sorted(found, key=lambda line: (line.get("tokens_per_word", 0), line["model"]))


def cost(model: ReportedModel) -> dict[str, Any]:
    """Return the cost of training a model. Its `energy` is None unless all of the training was measured."""
    figures_of = model.manifest("train")["figures"]
    joules = [line.get("energy") for line in model.record if line["kind"] == "train"]
    measured = [each for each in joules if each is not None]
    hours = training_hours(model.record)
    return {
        "model": model.name,
        "hours": hours,
        "speed": figures_of["tokens"] / hours / 3600 if hours else None,
        "energy": sum(measured) / 3.6e6 if joules and len(measured) == len(joules) else None,
        **{key: figures_of.get(key) for key in ("parameters", "steps", "tokens", "epochs")},
    }


def made_with(models: list[ReportedModel]) -> dict[str, Any]:
    """Return which processors and which code trained the models, [(text, number of models)], and the cost.

    A model that was taken from another one counts only if the other one is not in the report.
    """
    trained = [model for model in models if ("train", "") in model.manifests]
    found: dict[str, Counter[str]] = {"processors": Counter(), "code": Counter()}
    costs: list[dict[str, Any]] = []
    counted: set[str] = set()
    for model in sorted(trained, key=is_taken):
        about = model.manifest("train")
        runs = about["figures"].get("ran_with", [])
        for what, counter in found.items():
            if of_runs := dict.fromkeys(each[what] for each in runs if what in each):
                counter[", then ".join(of_runs)] += 1
        key = about["key"]  # of what it was made from
        if not is_taken(model) or key not in counted:
            costs.append(cost(model))
        counted.add(key)
    energies = [line["energy"] for line in costs]
    sums = {what: sum(line[what] or 0 for line in costs) for what in ("hours", "tokens")}
    return {
        **{what: counter.most_common() for what, counter in found.items()},
        "precision": Counter(model.precision for model in trained if model.precision).most_common(),
        "cost": sums | {"trainings": len(costs), "energy": None if None in energies else sum(energies)},
    }


def is_taken(model: ReportedModel) -> bool:
    """Return whether the weights of a model are those of another model, which was trained alike."""
    return TAKEN in model.manifest("train")["figures"]


def recipes(models: list[ReportedModel]) -> dict[str, Any]:
    """Return the recipes of the models: those with the same languages and settings, but other seeds.

    "models" are the names of each recipe's models; "tables", in parts that fit a printed page, the settings in which
    the recipes differ, and their values for each recipe.
    """
    differing, found = differing_settings(models), {}
    for model in models:
        if model.name in differing:
            key = tuple(model.languages), tuple(differing[model.name].values())
            found.setdefault(key, []).append(model.name)
    keys = [*next(iter(differing.values()), {})]
    parts = [slice(start, start + COLUMNS) for start in range(0, len(keys), COLUMNS)]
    tables = [(keys[part], [(names, values[part]) for (_, values), names in found.items()]) for part in parts]
    return {"models": [*found.values()], "tables": tables}


def coverage(asked: dict[str, Any], models: list[ReportedModel]) -> dict[str, Any]:
    """Return, for each language and suite, how many pairs there are, or that the suite does not cover the language."""
    lines = []
    for code in asked["languages"]:
        cells = []
        for suite, about in asked["suites"].items():
            found = [m.scores[suite]["languages"] for m in models if suite in m.scores]
            of_pairs = all("kind" not in m.scores[suite] for m in models if suite in m.scores)
            count = next((each[code]["pairs"]["pairs"] for each in found if code in each), None)
            noun = "pairs" if of_pairs else "items"
            cells.append(f"{count:,} {noun}" if count else "covered, no score yet")
            if code not in about["covers"]:
                cells[-1] = "not covered"
        lines.append((code, cells))
    return {"suites": [about["title"] for about in asked["suites"].values()], "lines": lines}


def challenges(asked: dict[str, Any], models: list[ReportedModel]) -> list[dict[str, Any]]:
    """Return the numbers of each model's submission to its challenge, and published scores beside them."""
    found = []
    for model in models:
        about, made = asked["models"][model.name].get("challenge"), model.submission
        if not about:
            continue
        lines: list[dict[str, Any]] = []
        if made:
            for name in made["order"]:
                known = {"title": made["titles"][name], "published": about["published"].get(name, [])}
                lines.append(known | made["numbers"][name])
            whole = {"title": "mean of all: the leaderboard's number", "published": []}
            lines.append(whole | made["leaderboard"] | {"missing": []})
        beside = [score for line in lines for score in line["published"]]
        sources = list(dict.fromkeys(f"{score['protocol']} ({score['source']})" for score in beside))
        found.append({"model": model.name, "title": about["title"], "made": made, "lines": lines, "sources": sources})
    return found


def versions(models: list[ReportedModel]) -> list[tuple[str, str, list[str]]]:
    """Return the versions that made the results: (stage, version, models made by it)."""
    found: dict[tuple[str, str], list[str]] = {}
    for model in models:
        for (stage, _), about in model.manifests.items():
            code = f"version {about['settings']['version']}, babelmill {about['version']}"
            found.setdefault((stage, code), []).append(model.name)
    return [(stage, code, list(dict.fromkeys(names))) for (stage, code), names in sorted(found.items())]


def sources(models: list[ReportedModel]) -> list[tuple[str, str, str]]:
    """Return where texts and suites come from: (what, language, origin)."""
    found: dict[tuple[str, str], str] = {}
    for model in models:
        for (stage, part), about in model.manifests.items():
            if stage == "corpus":
                found["text", part] = origin(about)
        for suite, scores in model.scores.items():
            for code, each in scores["languages"].items():
                found[suite, code] = origin({"figures": each["pairs"], "settings": {}})
    return [(what, code, where) for (what, code), where in sorted(found.items())]


def origin(about: dict[str, Any]) -> str:
    """Return where the data of a manifest comes from."""
    figures_of, settings = about["figures"], about["settings"]
    hub = figures_of.get("hub")
    if isinstance(hub, dict):
        parts = hub.get("parts", [hub])
        return ", ".join(f"{each['repository']} at {each['commit'][:12]}" for each in parts if "commit" in each)
    if files := figures_of.get("sources"):
        digests = ", ".join(f"sha256 {each['sha256'][:12]}" for each in files[:1] if "sha256" in each)
        return f"{plural(len(files), 'local file')}" + (f", {digests}" if digests else "")
    builtin = settings.get("corpus", {}).get("builtin")
    return f"{builtin} {settings.get('sources', {}).get(builtin, '')}".strip() if builtin else "–"
