"""Make the tables of an experiment: means over seeds with their intervals, and differences from the reference."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd

from babelmill.config.experiments import text_of
from babelmill.core import escape
from babelmill.evaluation.statistics import over_seeds
from babelmill.experiments.comparison import LEVEL, Column, Effect, Line, Scores, best, effects
from babelmill.reporting.results import ModelResults, different_precisions
from babelmill.reporting.table import ALL, TUNED, Frame, frame_of, less_is_better, shown, unit_text

# Keys whose values need no words before them.
ALONE = ("train.optimizer", "train.objective", "model.architecture", "preset")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The scores of an experiment, compared."""

    name: str  # the name of the experiment
    columns: dict[Column, tuple[str, str]]  # the scores, each with its title and unit
    names: dict[Line, str]  # the rows, in the order of the configuration, each with what a reader calls it
    labels: dict[str, str]  # what a reader calls each cell: what varies
    scores: Scores  # the scores
    effects: dict[tuple[Line, Column], Effect]  # the differences from the reference
    best: set[tuple[Line, Column]]  # the cells with the best scores, where their lead is significant
    reference: str  # the label of the cell that the others are compared with; "" if there is none
    seeds: int  # the number of seeds
    precisions: str = ""  # the precisions in which the models ran, if they differ

    @property
    def caption(self) -> str:
        """Say what the numbers are."""
        text = "One seed: there is no interval, and no difference is tested."
        if self.seeds > 1:
            text = f"Mean over {self.seeds} seeds ± half of its 95 % interval (t distribution)."
        if self.seeds > 1 and self.reference:
            tests = sum(effect.p is not None for effect in self.effects.values())
            text += (
                f" Bold: the best cell, if its difference from the reference ({self.reference}) is significant (paired"
                f" t test over seeds, p < {LEVEL} after Holm's correction over all {tests} tests of the table)."
            )
        return text + (f" Note: {self.precisions}." if self.precisions else "")


def comparison(asked: dict[str, Any], models: list[ModelResults], table: Frame) -> Comparison:
    """Return the comparison of an experiment's cells from the table of their scores."""
    cells, labels = {cell["name"]: cell for cell in asked["cells"]}, labels_of(asked["cells"])
    headlines = set(table[table["headline"]][["suite", "method"]].itertuples(index=False, name=None))
    rows = table[(table["phenomenon"] == ALL) & (table["paradigm"] == ALL) & table["million_words"].isna()]
    scores, columns = Scores(), dict[Column, tuple[str, str]]()
    for row in rows.itertuples():
        if (row.suite, row.method) in headlines:  # on suites, by the methods of all headlines
            cell, column = cells[row.model], Column(row.suite, row.method, row.unit)
            line = Line(cell["base"], row.language, cell["label"])
            scores.setdefault(line, {}).setdefault(column, {})[cell["seed"]] = row.score
            columns[column] = title_of(column, asked, headlines), unit_text(row.unit)
    columns = dict(sorted(columns.items(), key=lambda each: each[0].suite != ""))  # the validation text first
    groups = list(dict.fromkeys(line[:2] for line in scores))
    several = [len({each[i] for each in groups}) > 1 for i in (0, 1)]
    names = {
        line: ", ".join([*itertools.compress(line[:2], several), labels[line.cell]])
        for line in sorted(scores, key=lambda line: groups.index(line[:2]))
    }
    reference = next((cell["label"] for cell in asked["cells"] if cell["reference"]), None)
    found = effects(scores, reference)
    return Comparison(
        **{"name": asked["name"], "columns": columns, "names": names, "labels": labels, "scores": scores},
        **{"effects": found, "best": best(scores, found, reference), "reference": labels.get(reference or "", "")},
        **{"seeds": max(cell["seed"] for cell in asked["cells"]), "precisions": different_precisions(models)},
    )


def with_cells(asked: dict[str, Any], table: Frame) -> Frame:
    """Return the table of scores, with the experiment, the base, the cell and the values that vary beside the model."""
    keys = list(dict.fromkeys(key for cell in asked["cells"] for key in cell["values"]))
    rows = [
        [cell["name"], asked["name"], cell["base"], cell["label"], *map(cell["values"].get, keys), cell["seed"]]
        for cell in asked["cells"]
    ]
    cells = frame_of(rows, ["model", "experiment", "base", "cell", *keys, "seed"])
    return cells.merge(table.drop(columns=["seed", "settings"]), on="model")


def title_of(column: Column, asked: dict[str, Any], headlines: set[tuple[str, str]]) -> str:
    """Return the title of a score, with the method where a suite has several, and whether more or less is better."""
    title = column.method
    if title == TUNED:
        title = f"{asked['tasks'][column.suite]['title']} ({TUNED}, {asked['tasks'][column.suite]['protocol']})"
    elif column.suite:
        several = sum(suite == column.suite for suite, _ in headlines) > 1
        title = asked["suites"][column.suite]["title"] + (f" ({column.method})" if several else "")
    return f"{title} {'↓' if less_is_better(column.unit) else '↑'}"


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


def with_half(value: float, half: float | None, unit: str, signed: bool = False) -> str:
    """Return a number and half of its interval, as `61.2 ± 0.8`."""
    return shown(value, unit, signed) + (f" ± {shown(half, unit)}" if half is not None else "")


def grid(found: Comparison, safe: Callable[[str], str], text: Callable[[Line, Column], str]) -> Frame:
    """Return a table of texts; names and titles pass `safe`."""
    rows = [[safe(name), *(text(line, column) for column in found.columns)] for line, name in found.names.items()]
    return frame_of(rows, ["cell", *(safe(", ".join(title)) for title in found.columns.values())])


def means(found: Comparison, safe: Callable[[str], str], bold: str) -> Frame:
    """Return the table of means; the best cells stand in `bold`, such as `**{}**`."""

    def text(line: Line, column: Column) -> str:
        values = [*found.scores[line].get(column, {}).values()]
        mean = safe(with_half(*over_seeds(values), column.unit) if values else "–")
        return bold.format(mean) if (line, column) in found.best else mean

    return grid(found, safe, text)


def markdown(found: Comparison) -> str:
    """Return the tables as Markdown: the scores, and the differences from the reference."""

    def text(line: Line, column: Column) -> str:
        effect = found.effects.get((line, column))
        star = " *" if effect and effect.significant else ""
        return with_half(effect.difference, effect.half, column.unit, signed=True) + star if effect else "–"

    look = {"index": False, "disable_numparse": True}
    parts = [f"# {escape.markdown(found.name)}", escape.markdown(found.caption).replace("p &lt; ", "p < ")]
    parts.append(means(found, escape.cell, "**{}**").to_markdown(**look))
    if found.effects:
        about = "seed by seed, with 95 % intervals; * significant after Holm's correction:"
        parts.append(escape.markdown(f"Differences from {found.reference}, {about}"))
        others = {line: name for line, name in found.names.items() if found.labels[line.cell] != found.reference}
        parts.append(grid(dataclasses.replace(found, names=others), escape.cell, text).to_markdown(**look))
    return "\n\n".join(parts) + "\n"


def latex(found: Comparison) -> str:
    r"""Return the scores for LaTeX: `\input` it in a document with `\usepackage{booktabs}`."""
    frame = means(found, escape.latex, r"\textbf{{{}}}")
    # Two lines, since a line of titles with units is wider than a page.
    heads = [("cell", ""), *([escape.latex(part) for part in title] for title in found.columns.values())]
    frame.columns = pd.MultiIndex.from_tuples(list(map(tuple, heads)))
    look = {"caption": escape.latex(found.caption), "label": f"tab:{found.name}", "position_float": "centering"}
    text = frame.style.hide(axis="index").to_latex(
        hrules=True, sparse_columns=False, column_format="l" + "r" * len(found.columns), **look
    )
    return f"% Made by Babelmill from experiments/{found.name}; needs \\usepackage{{booktabs}}\n{text}"
