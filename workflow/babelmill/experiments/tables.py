"""Make the tables and the page of an experiment: means over seeds, intervals, and differences from the reference."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
from markupsafe import Markup
from markupsafe import escape as html

from babelmill.config.experiments import text_of
from babelmill.core import escape
from babelmill.evaluation.metrics import SHARE
from babelmill.experiments.comparison import LEVEL, compare
from babelmill.reporting.figures import Strips
from babelmill.reporting.page import Cell, Section, Table, lacking, lines, rendered, trained
from babelmill.reporting.results import ModelResults, different_precisions
from babelmill.reporting.table import ALL, TUNED, Frame, amount, frame_of, less_is_better, not_better, shown, unit_text

# Keys whose values need no words before them.
ALONE = ("train.optimizer", "train.objective", "model.architecture", "preset")
NOTE = (
    "A dot is the mean of a cell{intervals}. The bar is what guessing gets, or on the validation text a unigram model."
    ' "babelmill report {name}" shows the scores of each model, also of phenomena.'
)
OF_SEEDS = ", a line its 95 % interval, and hollow dots are single seeds"
NOT_BETTER = "†"  # the mark of a score that guessing gets, too


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The scores of an experiment, compared."""

    name: str  # the name of the experiment
    # With the columns of `compare`, and `row` (what a reader calls it), `column` (its number), `is_reference`, and
    # `worse`: whether the mean is not better than what stands beside it.
    cells: Frame
    heads: list[tuple[str, str]]  # the title and the unit of each column
    facts: dict[str, dict[str, str]]  # {row: its number of seeds, parameters and so on}
    reference: str  # what a reader calls the cell that the others are compared with; "" if there is none
    precisions: str = ""  # the precisions in which the models ran, if they differ

    @property
    def caption(self) -> str:
        """Say what the numbers are."""
        cells, seeds = self.cells, max(int(fact["seeds"]) for fact in self.facts.values())
        text = f"Mean over {seeds} seeds ± half of its 95 % interval (t distribution)."
        if seeds == 1:
            text = "One seed: there is no interval, and no difference is tested."
        if cells["difference"].notna().any():
            text += f" In parentheses: the difference from the reference ({self.reference})"
            text += ", seed by seed, ± half of its 95 % interval." if seeds > 1 else "."
        if tests := cells["p"].notna().sum():
            text += f" * The difference is significant (paired t test over seeds, p below {LEVEL} after Holm's"
            text += f" correction over all {tests} tests of the table). Bold: the best cell, if that is significant."
        if cells["worse"].any():
            text += f" {NOT_BETTER} Not better than guessing, or on the validation text than a unigram model."
        return text + (f" Note: {self.precisions}." if self.precisions else "")


def comparison(asked: dict[str, Any], models: list[ModelResults], table: Frame) -> Comparison:
    """Return the comparison of an experiment's cells from the table of their scores that stand beside a baseline."""
    labels = labels_of(asked["cells"])
    reference = next((cell["label"] for cell in asked["cells"] if cell["reference"]), "")
    rows = with_cells(asked, table)
    # On suites, each cell by the methods of all headlines.
    headlines = set(zip(*(rows[rows["headline"]][key] for key in ("suite", "method")), strict=True))
    rows = rows[[each in headlines for each in zip(rows["suite"], rows["method"], strict=True)]]
    rows = rows[(rows["phenomenon"] == ALL) & (rows["paradigm"] == ALL) & rows["million_words"].isna()]
    rows = rows[rows["simple"].notna()].astype({"score": float, "simple": float})
    several = [rows[key].nunique() > 1 for key in ("base", "language")]

    def name(each: Any) -> str:
        return ", ".join([*itertools.compress((each.base, each.language), several), labels[each.cell]])

    found = compare(pd.concat(alike for _, alike in rows.groupby(["base", "language"], sort=False)), reference)
    columns = dict.fromkeys(zip(found["suite"], found["method"], found["unit"], strict=True))
    columns = sorted(columns, key=lambda column: column[0] != "")  # the validation text first
    found = found.assign(
        is_reference=found["cell"] == reference,
        row=[name(each) for each in found.itertuples()],
        column=[columns.index((each.suite, each.method, each.unit)) for each in found.itertuples()],
        worse=[not_better(each.mean, each.simple, each.unit) for each in found.itertuples()],
    )
    of_name = {model.name: model for model in models}
    members = rows.assign(row=[name(each) for each in rows.itertuples()]).groupby("row")["model"].unique()
    return Comparison(
        name=asked["name"],
        cells=found,
        heads=[title_of(*column, asked, headlines) for column in columns],
        facts={row: facts_of([of_name[each] for each in members[row]]) for row in found["row"].unique()},
        reference=labels.get(reference, ""),
        precisions=different_precisions(models),
    )


def facts_of(models: list[ModelResults]) -> dict[str, str]:
    """Return how many seeds a row has, and how large its models, their trainings and their texts are."""
    figures, made = models[0].manifest("train")["figures"], models[0].manifests.items()
    texts = [about["figures"].get("documents", {}) for (stage, _), about in made if stage == "corpus"]
    known = {key: figures.get(key) for key in ("parameters", "steps")}
    known["documents"] = sum(text.get("train", 0) for text in texts) or None
    return {"seeds": str(len(models))} | {key: amount(value) or "–" for key, value in known.items()}


def with_cells(asked: dict[str, Any], table: Frame) -> Frame:
    """Return the table of scores, with the experiment, the base, the cell and the values that vary beside the model."""
    keys = list(dict.fromkeys(key for cell in asked["cells"] for key in cell["values"]))
    rows = [
        [cell["name"], asked["name"], cell["base"], cell["label"], *map(cell["values"].get, keys), cell["seed"]]
        for cell in asked["cells"]
    ]
    cells = frame_of(rows, ["model", "experiment", "base", "cell", *keys, "seed"])
    return cells.merge(table.drop(columns="seed"), on="model")


def title_of(suite: str, method: str, unit: str, asked: dict[str, Any], headlines: Any) -> tuple[str, str]:
    """Return what a reader of a paper calls a score, with an arrow to the better ones, and what is below this title."""
    title, below = (unit, method) if less_is_better(unit) else (method, unit_text(unit))
    if method == TUNED:
        task = asked["tasks"][suite]
        title, below = task["title"], f"{task['metric']} x 100, {TUNED}, {task['protocol']}"
    elif suite:
        title, below = asked["suites"][suite]["title"], "% right" if unit == SHARE else below
        below += f", {method}" if sum(of == suite for of, _ in headlines) > 1 else ""
    return f"{title} {'↓' if less_is_better(unit) else '↑'}", below


def labels_of(cells: list[dict[str, Any]]) -> dict[str, str]:
    """Return {cell: what its values are, as `hybrid ratio 1/2, lamb`}; where two look alike, with their names."""
    keys = {key for cell in cells for key in cell["values"]}
    words = {key: key.rpartition(".")[2].replace("_", " ") for key in keys}
    counts = Counter(words.values())
    words = {key: word if counts[word] == 1 else key.replace(".", " ").replace("_", " ") for key, word in words.items()}

    def said(key: str, value: Any) -> str:
        if value is None or key in ALONE:
            return f"no {words[key]}" if value is None else text_of(value)
        return f"{words[key]} {text_of(value) if not isinstance(value, bool) else 'on' if value else 'off'}"

    found = {cell["label"]: ", ".join(said(*item) for item in cell["values"].items()) or "base" for cell in cells}
    counts = Counter(found.values())
    return {label: text if counts[text] == 1 else f"{text} ({label})" for label, text in found.items()}


def with_half(value: float, half: float, unit: str, signed: bool = False) -> str:
    """Return a number and half of its interval, as `61.2 ± 0.8`."""
    return shown(value, unit, signed) + ("" if math.isnan(half) else f" ± {shown(half, unit)}")


def grid(
    found: Comparison, safe: Callable[[str], str], bold: str, pair: str = "{} {}"
) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Return the heads of the table, each with its unit, and its rows.

    Texts pass `safe`. The best stand in `bold`, such as `**{}**`, with their differences as in `pair`.
    """

    def text(each: Any) -> str:
        mean = safe(with_half(each.mean, each.half, each.unit))
        mean = (bold.format(mean) if each.best else mean) + (safe(NOT_BETTER) if each.worse else "")
        if math.isnan(each.difference):
            return mean
        star = "*" if each.p < LEVEL else ""
        return pair.format(mean, safe(f"({with_half(each.difference, each.spread, each.unit, signed=True)}{star})"))

    texts = {(each.row, each.column): text(each) for each in found.cells.itertuples()}
    heads = [("cell", ""), *((fact, "") for fact in next(iter(found.facts.values()), {})), *found.heads]
    return [(safe(title), safe(below)) for title, below in heads], [
        [*map(safe, (row, *facts.values())), *(texts.get((row, i), "–") for i in range(len(found.heads)))]
        for row, facts in found.facts.items()
    ]


def markdown(found: Comparison) -> str:
    """Return the table as Markdown."""
    heads, rows = grid(found, escape.cell, "**{}**")
    table = frame_of(rows, [", ".join(filter(None, head)) for head in heads])
    text = table.to_markdown(index=False, disable_numparse=True)
    return f"# {escape.markdown(found.name)}\n\n{escape.markdown(found.caption)}\n\n{text}\n"


def latex(found: Comparison) -> str:
    r"""Return the table for LaTeX: `\input` it in a document with `\usepackage{booktabs}`."""
    heads, rows = grid(found, escape.latex, r"\textbf{{{}}}", r"\shortstack[r]{{{}\\{}}}")
    # Heads of two lines, since a line of titles with units is wider than a page.
    frame = pd.DataFrame(rows, columns=pd.MultiIndex.from_tuples(heads))
    look: dict[str, Any] = {
        "caption": escape.latex(found.caption),
        "label": f"tab:{found.name}",
        "position_float": "centering",
    }
    look |= {"hrules": True, "sparse_columns": False, "column_format": "l" + "r" * (len(heads) - 1)}
    text = frame.style.hide(axis="index").to_latex(**look)
    return f"% Made by Babelmill from experiments/{found.name}; needs \\usepackage{{booktabs}}\n{text}"


# The page.


def experiment_page(asked: dict[str, Any], models: list[ModelResults], found: Comparison) -> str:
    """Return the page as one HTML file."""
    heads, rows = grid(found, lambda text: html(escape.line(text)), Markup("<b>{}</b>"), Markup("{}<small>{}</small>"))
    whole = Table(lines(rows, *(Cell(title, (unit,)) for title, unit in heads[1:])), "cell", look="scores cells")
    strips = [of_score(found, number) for number in range(len(found.heads))]
    note = NOTE.format(name=found.name, intervals=OF_SEEDS if found.cells["half"].notna().any() else "")
    sections = [Section("Comparison", [whole], found.caption), Section("Scores", strips, note)]
    return rendered(asked, models, [*sections, lacking(models), *trained(models)])


def of_score(found: Comparison, number: int) -> Table:
    """Return the table of a score: the mean of each cell, with its seeds, and its difference from the reference."""
    cells = found.cells[found.cells["column"] == number]
    unit = cells["unit"].iloc[0]
    least, most = (0, 1) if unit == SHARE else (-math.inf, math.inf)
    low, high = (cells["mean"] - cells["half"]).clip(least), (cells["mean"] + cells["half"]).clip(upper=most)
    cells, rows = cells.assign(low=low.fillna(cells["mean"]), high=high.fillna(cells["mean"])), []
    drawn = Strips(
        [*cells["low"], *cells["high"], *cells["simple"], *(each for seeds in cells["seeds"] for each in seeds)]
    )
    for each in cells.itertuples():
        seeds = each.seeds if len(each.seeds) > 1 else ()
        strip = drawn.strip(each.mean, (each.low, each.high) if seeds else None, each.simple, seeds=seeds)
        difference = "reference" if each.is_reference else None
        if not math.isnan(each.difference):
            difference = with_half(each.difference, each.spread, unit, signed=True)
        p = None if math.isnan(each.p) else "< 0.001" if each.p < 0.001 else f"{each.p:.3f}"
        bold = Markup("<b>{}</b>").format(difference) if each.p < LEVEL else difference
        rows.append((each.row, with_half(each.mean, each.half, unit), Cell(strip), bold, p))
    axis = Cell(drawn.axis(1 if less_is_better(unit) else 100), (unit_text(unit),))
    caption = ", ".join(found.heads[number])
    return Table(lines(rows, "mean", axis, "difference", "p"), "cell", caption, "scores inline strips")
