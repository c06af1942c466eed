"""Make the page of a report: its sections are tables and figures of the scores (`table.py`) and of manifests.

A score that does not exist is a dash, and the page explains only what it shows.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from babelmill import __version__
from babelmill.core.escape import line
from babelmill.core.words import plural, short
from babelmill.evaluation.metrics import SHARE, metrics_of
from babelmill.evaluation.overlaps import MEANING, in_training_text
from babelmill.evaluation.suite_scores import weighting
from babelmill.release.card.training_history import training_curves, training_hours
from babelmill.reporting import figures
from babelmill.reporting.results import ModelResults
from babelmill.reporting.table import (
    ALL,
    TUNED,
    Frame,
    differing_settings,
    frame_of,
    less_is_better,
    origin,
    rows_in,
    score_table,
    shown,
    unit_text,
)

Asked = dict[str, Any]  # what `asked.asked_of` returns
RECIPES = 6  # whose losses are drawn over each other: readers can tell so many colours apart
COLUMNS = 6  # columns of a table of phenomena, so that it fits a printed page


class Section(NamedTuple):
    """A heading, a note, and HTML below them. It is left out if it has no blocks."""

    title: str
    note: str
    blocks: Sequence[Markup]


def page(asked: Asked, models: list[ModelResults], first: Sequence[Section] = ()) -> str:
    """Return the report as one HTML file; `first`: sections that stand before all others."""
    scores = labelled(asked, score_table(models))
    now, states = scores[scores["million_words"].isna()], Counter(model.state for model in models)
    sections = [
        *first,
        Section("Not complete", "", lacking(models)),
        overview(asked, now),
        *measured(asked, models, now),
        *(challenge(asked, model) for model in models),
        learning(asked, models, scores),
        training(asked, models),
        tokenizers(asked, models),
        costs(models),
        Section("Made with", "", made_with(asked, models)),
    ]
    return (
        environment()
        .get_template("report.html")
        .render(
            name=", ".join(asked["name"].split("+")),
            counts=f"{plural(len(models), 'model')}: " + ", ".join(f"{n} {state}" for state, n in states.most_common()),
            version=__version__,
            sections=[each for each in sections if each.blocks],
        )
    )


def environment() -> Environment:
    """Return an environment for the templates of pages.

    Names, notes, error messages and texts may hold HTML, which is escaped, and what terminals and browsers obey.
    """
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: html(value) if isinstance(value, str) else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@dataclass(frozen=True, order=True)
class Html:
    """HTML in a cell or a head of a table. (pandas makes plain text of `Markup`, which is a str.)"""

    text: Markup

    def __html__(self) -> str:
        return self.text


def html(value: Any, *notes: object) -> Html:
    """Return a text from outside as HTML, with notes in small letters below it; a dash if there is none."""
    known = value is not None and value == value
    text = escape(value) if hasattr(value, "__html__") else escape(line(value)) if known else "–"
    small = (Markup(" <small>{}</small>").format(escape(line(note))) for note in notes if note)
    return Html(Markup("").join([text, *small]))


def table(frame: Frame, first: str = "model", caption: str = "", look: str = "scores") -> Iterator[Markup]:
    """Yield a table as HTML, if it has lines. `first`: the head of the index. `look`: classes of the style sheet."""
    if len(frame):
        nothing, label = Markup(""), html(caption or first)
        heads = nothing.join(Markup('<th scope="col">{}</th>').format(html(each)) for each in (first, *frame.columns))
        rows = [
            Markup('<tr><th scope="row">{}</th>{}</tr>\n').format(
                html(name), nothing.join(map(Markup("<td>{}</td>").format, map(html, cells)))
            )
            for name, *cells in frame.itertuples()
        ]
        yield Markup(
            '{}<div class="wide" role="region" tabindex="0" aria-label="{}"><table class="{}">\n'
            "<thead><tr>{}</tr></thead><tbody>\n{}</tbody></table></div>\n"
        ).format(
            Markup('<p class="soft">{}</p>').format(label) if caption else "", label, look, heads, nothing.join(rows)
        )


def lines(found: Iterable[Sequence[Any]], *heads: object) -> Frame:
    """Return a table whose lines begin with their names."""
    return frame_of(found, ["", *heads]).set_index("")


def beside(pictures: Iterable[tuple[Html, Markup]]) -> Iterator[Markup]:
    """Yield figures beside each other, each with its caption, if there are any."""
    if found := [Markup("<figure><figcaption>{}</figcaption>{}</figure>").format(*each) for each in pictures]:
        yield Markup('<div class="runs">{}</div>').format(Markup("").join(found))


def who(asked: Asked, model: str, code: str) -> Html:
    """Return the name of a model, with its language."""
    language = asked["languages"].get(code, code)
    return html(model, language if language != model else "")


def labelled(asked: Asked, scores: Frame) -> Frame:
    """Return scores with columns for what a reader sees: `who`, `column` and `text`."""
    seen: dict[str, list[Any]] = {"who": [], "column": [], "title": [], "text": []}
    for row in rows_in(scores):
        title = asked["suites"].get(row.suite, {}).get("title") or asked["tasks"].get(row.suite, {}).get("title")
        seen["who"].append(who(asked, row.model, row.language))
        seen["column"].append(html(title or row.method, unit_text(row.unit)))
        seen["title"].append(title or f"{row.method}, {row.unit}")
        method = row.method if row.suite in asked["suites"] else ""
        size = ", ".join(filter(None, [method, f"n = {row.n:,}"]))
        seen["text"].append(html(shown(row.score, row.unit), row.ends, size, row.remark))
    return scores.assign(**seen)


def wide(scores: Frame, index: str, columns: str) -> Frame:
    """Return the texts of scores as a table of two columns' values, in the order in which they appear."""
    found = scores.pivot(index=index, columns=columns, values="text")
    return found.reindex(index=scores[index].unique(), columns=scores[columns].unique())


def lacking(models: list[ModelResults]) -> list[Markup]:
    """Return the models that are not complete, and why."""
    found = []
    for model in models:
        if model.state != "converted" or model.problems:
            more = [f"and {len(model.problems) - 5} more results like these"] if len(model.problems) > 5 else []
            found.append((model.name, model.state, html(model.note, *model.problems[:5], *more)))
    return [*table(lines(found, "state", "why"), look="text")]


def overview(asked: Asked, scores: Frame) -> Section:
    """Return all headline scores, one line per model and language."""
    heads = scores[scores["headline"] & (scores["method"] != TUNED)]
    found = wide(heads, "who", "column")
    for column, suite in heads[["column", "suite"]].drop_duplicates().itertuples(index=False):
        uncovered = ~heads["language"].isin(asked["suites"][suite]["covers"]) if suite else []
        found.loc[heads["who"][uncovered].unique(), column] = "not covered"
    note = (
        "With 95 % intervals, for the weights that a user loads by default. Of bits per byte of the validation text,"
        " less is better; of all else, more. An upper bound is at least the true score: compare it with other bounds"
        " only. A fused score of a sentence is the sum of its causal and its masked one. In the figures below, the bar"
        " is what guessing gets, or on validation text a unigram model (of codes: always predicting the most frequent"
        " one). Hollow points are published models, scored with the named pipeline: compare them with care."
    )
    return Section("Models and languages", note, [*table(found)])


def measured(asked: Asked, models: list[ModelResults], scores: Frame) -> Iterator[Section]:
    """Yield a section for each metric, suite and task: a figure of its headline scores, and tables of their parts."""
    evaluations = [model.evaluation for model in models if model.evaluation]
    meanings = {name: each.meaning for found in evaluations for name, each in metrics_of(found).items()}
    for (suite, _), heads in scores[scores["headline"]].groupby(["suite", "column"], sort=False):
        methods = dict(zip(heads["model"], heads["method"], strict=True))
        every = scores[scores["suite"] == suite]
        mine, baselines = every[every["method"] == every["model"].map(methods)], []
        if suite in asked["suites"]:
            about = asked["suites"][suite]
            note = (
                f"Score: {heads['unit'].iloc[0] if heads['unit'].iloc[0] != SHARE else weighting(about['headline'])}."
            )
            note += f" Note: {about['note']}." if about["note"] else ""
            note += f" Published scores: {'; '.join(about['sources'])}." if about["sources"] else ""
            baselines = [each for each in about["baselines"] if each["language"] in set(heads["language"])]
        else:
            note = (
                "{metric}, {protocol}".format(**asked["tasks"][suite])
                if suite
                else f"{meanings[methods.popitem()[1]]}."
            )
        overlaps = [
            (row.who, in_training_text(model.overlaps[suite], row.language))
            for model in models
            for row in heads[heads["model"] == model.name].itertuples()
            if suite in model.overlaps
        ]
        parts = [
            *strips(asked, heads, baselines),
            *table(lines(overlaps, "in the training text"), caption=MEANING, look="text"),
            *grouped(
                every[every["suite"].ne("") & (every["phenomenon"] == ALL) & (every["paradigm"] == ALL)], "method"
            ),
            *grouped(mine[~mine["phenomenon"].isin((ALL, ""))], "phenomenon"),
        ]
        if folded := Markup("").join(grouped(mine[mine["paradigm"] != ALL], "paradigm")):
            parts.append(Markup("<details><summary>Paradigms</summary>{}</details>").format(folded))
        yield Section(heads["title"].iloc[0], note, parts)


def strips(asked: Asked, heads: Frame, baselines: list[dict[str, Any]]) -> Iterator[Markup]:
    """Yield scores with their strips, language by language, the best first; published baselines stand among them."""
    rows, published = rows_in(heads), [(each, each["score"] / 100) for each in baselines]
    unit, less = rows[0].unit, less_is_better(rows[0].unit)
    ends = [end for row in rows for end in (row.low, row.high, row.score, row.simple)]
    drawn, found, best = figures.Strips([*ends, *(value for _, value in published)]), [], dict[str, float]()
    for row, name, text in zip(rows, heads["who"], heads["text"], strict=True):
        better = row.score if less else -row.score
        best[row.language] = min(better, best.get(row.language, math.inf))
        found.append((row.language, better, name, text, drawn.strip(row.score, (row.low, row.high), row.simple)))
    for each, value in published:
        name = html(each["model"], asked["languages"][each["language"]], each["pipeline"])
        strip = drawn.strip(value, (None, None), rows[0].simple, "hollow")
        found.append((each["language"], value if less else -value, name, html(shown(value, unit), "published"), strip))
    found.sort(key=lambda each: (best[each[0]], each[0], each[1]))
    frame = lines([(name, text, Html(strip)) for *_, name, text, strip in found], "score", "strip")
    yield from table(
        frame.rename(columns={"score": unit_text(unit), "strip": Html(drawn.axis(1 if less else 100))}),
        look="scores inline strips",
    )


def grouped(scores: Frame, kind: str) -> Iterator[Markup]:
    """Yield tables of the scores by method, phenomenon or paradigm (`kind`), the one with the best mean first.

    They have at most COLUMNS columns, so that they fit a printed page.
    """
    order = scores.groupby(kind)["score"].mean().sort_values(ascending=False).index
    if len(order) < 2:
        return
    found = wide(scores, kind, "who").reindex(order)
    found.index = [str(name).replace("_", " ") for name in order]
    turned = len(order) <= COLUMNS < found.shape[1]
    found = found.T if turned else found
    for start in range(0, found.shape[1], COLUMNS):
        yield from table(
            found.iloc[:, start : start + COLUMNS], "model" if turned else kind, f"By {kind}", "scores inline"
        )


def challenge(asked: Asked, model: ModelResults) -> Section:
    """Return the numbers of a model's submission to its challenge, and published scores beside them."""
    about, made = asked["models"][model.name].get("challenge"), model.submission
    if not (about and made):
        hint = lines([(model.name, f"none yet: snakemake submissions/{model.name}.json makes it")], "submission")
        return Section("Challenge", "", [*table(hint, look="text")] if about else [])
    numbers = {
        made["titles"][name]: (made["numbers"][name], about["published"].get(name, [])) for name in made["order"]
    }
    numbers["mean of all: the leaderboard's number"] = made["leaderboard"] | {"missing": []}, []
    found = []
    for title, (each, published) in numbers.items():
        others = [f"{other['score']:.2f} {other['model']} ({other['protocol']})" for other in published]
        ends = "" if each["missing"] else " to ".join(f"{end:.2f}" for end in each["interval"])
        found.append((title, html(f"{each['score']:.2f}", ends), "; ".join(each["missing"]), html("", *others)))
    there, lost = made["checkpoints"]["there"], made["checkpoints"]["missing"]
    note = (
        f"What the leaderboard makes of the submission (track {made['track']}, backend {made['backend']}), in percent"
        f" with 95 % intervals, by the rules of {made['state']}. What is missing counts 0. {len(there)} of"
        f" {len(there) + len(lost)} checkpoints are there{'; missing: ' if lost else ''}{', '.join(lost)}."
    )
    note += "".join(f" {task} is missing at them: {why}." for task, why in made["checkpoints"]["without"].items())
    return Section(
        f"{model.name}: {about['title']}",
        note,
        [*table(lines(found, "score", "missing", "published"), "number", look="text")],
    )


def learning(asked: Asked, models: list[ModelResults], scores: Frame) -> Section:
    """Return the scores of snapshots over the words that they had read."""
    of_model = {model.name: model for model in models}
    kept = scores[scores["headline"] & scores["suite"].isin(scores[scores["million_words"].notna()]["suite"])].copy()
    for at, row in kept[kept["million_words"].isna()].iterrows():
        last, tokens = (
            of_model[row["model"]].scores[row["suite"]].get("snapshots", [{}])[-1],
            of_model[row["model"]].manifest("train")["figures"].get("tokens"),
        )
        if last and tokens:  # the words of the whole run: in proportion to those of its last snapshot
            kept.loc[at, "million_words"] = last["words"] / 1e6 * tokens / last["tokens"]
    kept = kept.dropna(subset="million_words").sort_values("million_words", kind="stable")
    kept[["score", "low", "high", "simple"]] *= 100
    ends = kept[["score", "low", "simple"]].min().min() - 2, kept[["score", "high", "simple"]].max().max() + 2
    curves = kept.groupby(["who", "suite"], sort=False)
    drawn = [
        (
            name,
            figures.learning_picture(
                f"{asked['suites'][suite]['title']}, %", points, points["simple"].iloc[0], ends, len(curves) == 1
            ),
        )
        for (name, suite), points in curves
    ]
    note = (
        "The scores of weights that were kept during training, by the number of words that the model had read (repeated"
        " text counts again), with 95 % intervals. The square is the finished model, the dashed line is guessing."
    )
    return Section("Learning in time", note, [*beside(drawn)])


def training(asked: Asked, models: list[ModelResults]) -> Section:
    """Return the losses of all runs on the same axes; if few recipes were trained, also together."""
    points, differing = [], differing_settings(models)
    for model in models:
        settings = [f"{key.rpartition('.')[2]} {value}" for key, value in differing.get(model.name, {}).items()]
        recipe = ", ".join([" and ".join(asked["languages"][code] for code in model.languages), *settings])
        for kind, curves in training_curves(model.record)["kinds"].items() if model.record else ():
            points += [(model.name, recipe, kind, name, *at) for name, curve in curves.items() for at in curve]
    losses = frame_of(points, ["model", "recipe", "kind", "curve", "tokens", "loss"]).astype(
        {"tokens": float, "loss": float}
    )
    names, together = losses["model"].unique(), None
    if len(names) > 1 and losses["recipe"].nunique() <= RECIPES:
        together = figures.overlaid(losses)
    blocks = [*beside([(html("Means over seeds, between their extremes"), together)] if together else [])]
    blocks += beside((html(name), figures.training_picture(name, losses)) for name in names)
    note = "Cross-entropy of each kind of rows, as they are trained (with dropout) and on the validation text."
    return Section("Training", note, blocks)


def amount(value: float | None) -> str | None:
    """Return a number in short."""
    return (
        None
        if value is None or value != value
        else short(value)
        if value >= 1e6
        else f"{value:,.0f}"
        if value >= 1e3
        else f"{value:.4g}"
    )


def tokenizers(asked: Asked, models: list[ModelResults]) -> Section:
    """Return what is known about each model's tokenizer, by language, the fewest tokens per word first."""
    heads = {"tokens_per_word": "tokens per word", "bytes_per_token": "bytes per token", "vocab_size": "entries"}
    heads |= {
        "vocabulary_used": "share used",
        "words_kept_whole": "words kept whole",
        "round_trip_rate": "texts given back",
    }
    found = []
    for model in models:
        made = model.manifest("tokenizer")["figures"]
        for code in model.languages:
            of_text = (model.evaluation or {}).get("tokenizer", {}).get(code, {})
            if known := made.get("report", {}).get(code, {}) | of_text:
                known |= {"vocab_size": made.get("vocab_size")}
                found.append((who(asked, model.name, code), *(known.get(key) for key in heads)))
    found = [(name, *map(amount, each)) for name, *each in sorted(found, key=lambda each: each[1] or 0)]
    note = "Words are separated by white space; in scripts without it, such words are clauses."
    return Section("Tokenizers", note, [*table(lines(found, *heads.values()))])


def costs(models: list[ModelResults]) -> Section:
    """Return the costs of training. Energy is shown of trainings that were measured as a whole."""
    found: list[tuple[Any, ...]] = []
    sums: dict[Path, tuple[float, float, float]] = {}  # models that share their weights count once
    for model in models:
        if ("train", "") in model.manifests:
            about, hours = model.manifest("train")["figures"], training_hours(model.record)
            joules = [each.get("energy", math.nan) for each in model.record if each["kind"] == "train"]
            energy, tokens = sum(joules) / 3.6e6 if joules else math.nan, about.get("tokens") or 0
            speed = tokens / hours / 3600 if hours else None
            sizes = [about.get(key) for key in ("parameters", "steps", "tokens", "epochs")]
            found.append((model.name, *map(amount, [*sizes, hours, speed, energy])))
            sums[model.folders["train", ""].resolve()] = tokens, hours, energy
    if len(found) > 1:
        tokens, hours, energy = map(sum, zip(*sums.values(), strict=True))
        title = html("in all", f"{len(sums)} trainings" if len(sums) < len(found) else "")
        found.append((title, None, None, amount(tokens), None, amount(hours), None, amount(energy)))
    heads = "parameters", "steps", "tokens", "epochs", "hours", "tokens per second", "energy, kWh"
    note = "Hours are those of the training steps over all attempts. Energy is that of the GPUs, where it was measured."
    return Section("Costs of training", note, [*table(lines(found, *heads))])


def made_with(asked: Asked, models: list[ModelResults]) -> list[Markup]:
    """Return what the results were made with: settings that differ, machines, code, texts and suites."""
    found: dict[tuple[str, str], list[str]] = {}
    differing = differing_settings(models)
    for model in models:
        facts = [(f"setting {key}", value) for key, value in differing.get(model.name, {}).items()]
        runs = model.manifest("train")["figures"].get("ran_with", [])
        for title, key in (("trained on", "processors"), ("trained by", "code")):
            facts.append((title, ", then ".join(dict.fromkeys(run[key] for run in runs if key in run))))
        facts.append(("precision", model.precision or ""))
        for (stage, part), about in model.manifests.items():
            facts.append(
                (f"stage {stage}", f"version {about['settings'].get('version')}, babelmill {about['version']}")
            )
            facts += (
                [(f"text, {asked['languages'].get(part, part)}", origin(about["figures"]))] if stage == "corpus" else []
            )
        for suite, scores in model.scores.items():
            for code, each in scores["languages"].items():
                title = f"{asked['suites'][suite]['title']}, {asked['languages'].get(code, code)}"
                facts.append((title, origin(each.get("pairs", {}))))
        for fact in dict.fromkeys(facts):
            found.setdefault(fact, []).append(model.name)
    every = [
        (what, value, "all" if len(names) == len(models) > 3 else ", ".join(names))
        for (what, value), names in sorted(found.items())
        if value
    ]
    return [*table(lines(every, "made with", "models"), "what", look="text")]
