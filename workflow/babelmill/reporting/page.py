"""Make the page of a report: tables and figures of the scores (`table.py`) and of manifests, which a template lays out.

A score that does not exist is a dash, and the page explains only what it shows.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from babelmill import __version__
from babelmill.core import escape
from babelmill.core.words import plural
from babelmill.evaluation.metrics import SHARE, metrics_of
from babelmill.evaluation.overlaps import MEANING, in_training_text
from babelmill.evaluation.suite_scores import weighting
from babelmill.release.card.training_history import losses, training_hours
from babelmill.reporting import figures, table
from babelmill.reporting.results import ModelResults
from babelmill.reporting.table import ALL, TUNED, Frame, amount, less_is_better, rows_in, shown, unit_text

Asked = dict[str, Any]  # what `asked.asked_of` returns
COLUMNS = 6  # columns of a table of phenomena, so that it fits a printed page


@dataclass(frozen=True, order=True)
class Cell:
    """A text or a figure in a table, with notes in small letters."""

    text: Any  # a text from outside, which is escaped, or Markup
    notes: tuple[str, ...] = ()


class Table(NamedTuple):
    """A table, whose index names the lines. Cells are texts, `Cell`s, or None: a dash."""

    frame: Frame
    first: str = "model"  # the head of the index
    caption: str = ""
    look: str = "scores"  # classes of the style sheet


class Section(NamedTuple):
    """A section. `pictures`: figures beside each other, each with its caption. It is left out if it shows nothing."""

    title: str
    tables: Sequence[Table] = ()
    note: str = ""  # besides what the template says about sections with this title
    pictures: Sequence[tuple[Cell, Markup]] = ()


def page(asked: Asked, models: list[ModelResults]) -> str:
    """Return the report as one HTML file. Scores beside no baseline, and of paradigms, are only in the .csv."""
    scores = table.score_table(models)
    # A model of another project has no unigram model of its own; that of the other models on the same text will do.
    unigrams = scores[scores["suite"] == ""].groupby(["language", "method"])["simple"].transform("min")
    scores["simple"] = scores["simple"].fillna(unigrams)
    scores = labelled(asked, scores[scores["simple"].notna() & (scores["paradigm"] == ALL)])
    now = scores[scores["million_words"].isna()]
    sections = [Section("Models and languages", [overview(asked, now)]), *measured(asked, models, now)]
    learnt = Section("Learning in time", pictures=learning(asked, scores))
    return rendered(asked, models, [lacking(models), *sections, learnt, *trained(models)])


def trained(models: list[ModelResults]) -> list[Section]:
    """Return the sections about the training of models."""
    return [Section("Training", pictures=training(models)), Section("Costs of training", [costs(models)])]


def rendered(asked: Asked, models: list[ModelResults], sections: Iterable[Section]) -> str:
    """Return a page of sections. Those that show nothing are left out."""
    sections = [each._replace(tables=[some for some in each.tables if len(some.frame)]) for each in sections]
    states = Counter(model.state for model in models)
    counts = ", ".join(f"{n} {state}" for state, n in states.most_common())
    values = {"counts": f"{plural(len(models), 'model')}: {counts}", "version": __version__}
    values |= {"name": ", ".join(asked["name"].split("+"))}
    shown = [each for each in sections if each.tables or each.pictures]
    return environment().get_template("report.html").render(sections=shown, **values)


def environment() -> Environment:
    """Return an environment for the templates of pages.

    Names, notes, error messages and texts may hold HTML, which is escaped, and what terminals and browsers obey.
    """
    look = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    return Environment(loader=FileSystemLoader(Path(__file__).parent), finalize=plain, **look)


def plain(value: Any) -> Any:
    """Return text from outside on one line, without characters that reverse or hide text; other values as they are."""
    return escape.line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def lines(found: Iterable[Sequence[Any]], *heads: object) -> Frame:
    """Return a table whose lines begin with their names."""
    return table.frame_of(found, ["", *heads]).set_index("")


def distinct(names: dict[str, str]) -> dict[str, str]:
    """Return names for readers, with the code behind those that two codes have."""
    return {code: name if [*names.values()].count(name) == 1 else f"{name} ({code})" for code, name in names.items()}


def who(asked: Asked, model: str, code: str) -> Cell:
    """Return the name of a model, with its language."""
    language = distinct(asked["languages"]).get(code, code)
    return Cell(model, (language,) if language != model else ())


def labelled(asked: Asked, scores: Frame) -> Frame:
    """Return scores with columns for what a reader sees: `who`, `kind`, `column` and `text`."""
    kinds = {
        kind: distinct({name: each["title"] for name, each in asked[kind].items()}) for kind in ("suites", "tasks")
    }
    seen = []
    for row in rows_in(scores):
        kind = "tasks" if row.method == TUNED else "suites" if row.suite else ""
        title = kinds[kind][row.suite] if kind else row.method
        beside = Markup('<b class="bad">not better than {}</b>').format(row.baseline) if row.is_worse else row.baseline
        notes = row.ends, f"{row.method}, n = {row.n:,}" if kind == "suites" else f"n = {row.n:,}", row.remark, beside
        if row.phenomenon != ALL:  # tables of parts are large
            notes = (f"{row.ends}, n = {row.n:,}",)
        text = Cell(shown(row.score, row.unit), notes)
        seen.append((who(asked, row.model, row.language), kind, Cell(title, (unit_text(row.unit),)), text))
    return scores.join(table.frame_of(seen, ["who", "kind", "column", "text"]).set_index(scores.index))


def wide(scores: Frame, index: str, columns: str) -> Frame:
    """Return the texts of scores as a table of two columns' values, in the order in which they appear."""
    found = scores.pivot(index=index, columns=columns, values="text")
    return found.reindex(index=scores[index].unique(), columns=scores[columns].unique())


def lacking(models: list[ModelResults]) -> Section:
    """Return the models that are not complete, and why."""
    found = []
    for model in models:
        if model.state not in ("converted", "measured") or model.problems:
            more = [f"and {len(model.problems) - 5} more results like these"] if len(model.problems) > 5 else []
            found.append((model.name, model.state, Cell(model.note, (*model.problems[:5], *more))))
    return Section("Not complete", [Table(lines(found, "state", "why"), look="text")])


def overview(asked: Asked, scores: Frame) -> Table:
    """Return all headline scores, one line per model and language."""
    heads = scores[scores["headline"] & (scores["method"] != TUNED)]
    found = wide(heads, "who", "column")
    for column, suite in heads[["column", "suite"]].drop_duplicates().itertuples(index=False):
        uncovered = ~heads["language"].isin(asked["suites"][suite]["covers"]) if suite else []
        found.loc[heads["who"][uncovered].unique(), column] = "not covered"
    return Table(found)


def measured(asked: Asked, models: list[ModelResults], scores: Frame) -> Iterator[Section]:
    """Yield a section for each metric, suite and task: a figure of its headline scores, and tables of their parts."""
    for (kind, suite, column), heads in scores[scores["headline"]].groupby(["kind", "suite", "column"], sort=False):
        every, unit = scores[(scores["suite"] == suite) & (scores["kind"] == kind)], heads["unit"].iloc[0]
        title, note, parts, baselines = column.text, "", [], []
        if kind == "suites":
            about = asked[kind][suite]
            note = f"Score: {weighting(about['headline']) if unit == SHARE else unit}."
            note += f" Note: {about['note']}." if about["note"] else ""
            note += f" Published scores: {'; '.join(about['sources'])}." if about["sources"] else ""
            baselines = [each for each in about["baselines"] if each["language"] in set(heads["language"])]
            named = dict(zip(heads["model"], heads["method"], strict=True))
            mine = every[every["method"] == every["model"].map(named)]
            overlaps = [
                (who(asked, model.name, code), in_training_text(model.overlaps[suite], code))
                for model in models
                for code in (model.scores[suite]["languages"] if suite in model.overlaps else ())
            ]
            parts = [
                Table(lines(overlaps, "in the training text"), caption=MEANING, look="text"),
                *grouped(every[every["phenomenon"] == ALL], "method"),
                *grouped(mine[mine["phenomenon"] != ALL], "phenomenon"),
            ]
        elif kind == "tasks":
            note = "{metric}, {protocol}".format(**asked["tasks"][suite])
        else:
            evaluations = [model.evaluation for model in models if model.evaluation]
            meanings = {name: each.meaning for found in evaluations for name, each in metrics_of(found).items()}
            title, note = f"{title}, {unit}", f"Scored: {meanings[title]}."
        yield Section(title, [strips(asked, heads, baselines), *parts], note)


def strips(asked: Asked, heads: Frame, baselines: list[dict[str, Any]]) -> Table:
    """Return scores with their strips, language by language, the best first; published baselines stand among them."""
    rows, published = rows_in(heads), [(each, each["score"] / 100) for each in baselines]
    unit, sign = rows[0].unit, 1 if less_is_better(rows[0].unit) else -1
    ends = [end for row in rows for end in (row.low, row.high, row.score, row.simple)]
    drawn, found, best = figures.Strips([*ends, *(value for _, value in published)]), [], dict[str, float]()
    for row, name, text in zip(rows, heads["who"], heads["text"], strict=True):
        best[row.language] = min(sign * row.score, best.get(row.language, math.inf))
        found.append((row.language, row.score, name, text, drawn.strip(row.score, (row.low, row.high), row.simple)))
    for each, value in published:
        name = Cell(each["model"], (asked["languages"][each["language"]], each["pipeline"]))
        text, strip = Cell(shown(value, unit), ("published",)), drawn.strip(value, None, rows[0].simple, "hollow")
        found.append((each["language"], value, name, text, strip))
    found.sort(key=lambda each: (best[each[0]], each[0], sign * each[1]))
    axis = Cell(drawn.axis(1 if sign > 0 else 100), (unit_text(unit),))
    rest = [(name, text, Cell(strip)) for *_, name, text, strip in found]
    return Table(lines(rest, "score", axis), look="scores inline strips")


def grouped(scores: Frame, kind: str) -> Iterator[Table]:
    """Yield tables of the scores by method or phenomenon (`kind`), the one with the best mean first.

    They have at most COLUMNS columns, so that they fit a printed page.
    """
    order = scores.groupby(kind)["score"].mean().sort_values(ascending=False).index
    found = wide(scores, kind, "who").reindex(order)
    found.index = [str(name).replace("_", " ") for name in order]
    turned = len(order) <= COLUMNS < found.shape[1]
    found = found.T if turned else found
    for start in range(0, found.shape[1] if len(order) > 1 else 0, COLUMNS):
        caption = f"By {kind}" + (f", part {start // COLUMNS + 1}" if found.shape[1] > COLUMNS else "")
        yield Table(found.iloc[:, start : start + COLUMNS], "model" if turned else kind, caption)


def learning(asked: Asked, scores: Frame) -> list[tuple[Cell, Markup]]:
    """Return the scores of snapshots over the words that they had read; those of a suite and language on equal axes."""
    kept = scores[scores["headline"] & scores["million_words"].notna()].copy()
    kept[["score", "low", "high", "simple"]] *= 100
    found = []
    for (suite, _), alike in kept.groupby(["suite", "language"], sort=False):
        ends = alike[["score", "low", "simple"]].min().min() - 2, alike[["score", "high", "simple"]].max().max() + 2
        for name, points in alike.groupby("who", sort=False):
            title = f"{asked['suites'][suite]['title']}, %"
            found.append((name, figures.learning_picture(title, points, ends)))
    return found


def training(models: list[ModelResults]) -> list[tuple[Cell, Markup]]:
    """Return the losses of all runs. Only those of the same languages and tokenizer have equal axes."""
    groups: dict[tuple[Any, ...], dict[str, Frame]] = {}
    for model in models:
        if len(found := losses(model.record)):
            alike = tuple(model.languages), model.folders.get(("tokenizer", ""))
            groups.setdefault(alike, {})[model.name] = found
    return [
        (Cell(name), figures.training_picture(name, kind, mine, shared))
        for runs in groups.values()
        for shared in [pd.concat(runs.values())]
        for name, mine in runs.items()
        for kind in mine["kind"].unique()
    ]


def costs(models: list[ModelResults]) -> Table:
    """Return the costs of training. Energy is shown of trainings that were measured as a whole."""
    rows, folders = dict[str, dict[str, float | None]](), list[Path]()
    for model in models:
        if ("train", "") in model.manifests:
            about, hours = model.manifest("train")["figures"], training_hours(model.record)
            rows[model.name] = row = {key: about.get(key) for key in ("parameters", "steps", "tokens", "epochs")}
            joules = [each.get("energy", math.nan) for each in model.record if each["kind"] == "train"]
            row |= {"hours": hours, "tokens per second": (row["tokens"] or 0) / hours / 3600 if hours else None}
            row["energy, kWh"] = sum(joules) / 3.6e6 if joules else None
            folders.append(model.folders["train", ""].resolve())
    found: Frame = pd.DataFrame.from_dict(rows, orient="index", dtype=float)
    if len(found) > 1:  # models that share their weights count once
        sums = found[~pd.Index(folders).duplicated()][["tokens", "hours", "energy, kWh"]].sum(skipna=False)
        found.loc["in all"] = sums.reindex(found.columns)
    return Table(found.map(amount))
