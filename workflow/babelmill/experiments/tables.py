"""Write the tables of an experiment: tidy scores as .csv, and means with intervals as Markdown and LaTeX."""

import csv
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from babelmill.config.experiments import text_of
from babelmill.core import escape
from babelmill.experiments.comparison import LEVEL, Column, Effect, Line, Scores, best, effects, mean_of
from babelmill.reporting.results import ReportedModel, different_precisions
from babelmill.reporting.table import TUNED, ScoreRow, head, rows_of, snapshots_of

UNCOMPARED = ("unigram",)  # metrics of the text, not of a model
# Keys whose values need no words before them.
ALONE = ("train.optimizer", "train.objective", "model.architecture", "model.config.model_type", "preset")
VAGUE = ("type", "model", "source")  # endings of keys that say too little without the word before them
NAMES = {"lamb": "LAMB", "adamw": "AdamW", "muon": "Muon", "gpt_bert": "GPT-BERT", "norbert4": "NorBERT4"}
BASE = "base"  # a cell in which nothing varies


@dataclass(frozen=True)
class Table:
    """The scores of an experiment, compared."""

    name: str  # the name of the experiment
    columns: dict[Column, str]  # the scores, each with its title
    lines: list[Line]  # the rows, by base, language and cell, in the order of the configuration
    scores: Scores  # the scores
    effects: dict[tuple[Line, Column], Effect]  # the differences from the reference
    best: set[tuple[Line, Column]]  # the cells with the best scores, where their lead is significant
    labels: dict[str, str]  # what the table calls each cell: what varies, as a reader would say it
    reference: str | None  # the cell that the others are compared with
    seeds: int  # the number of seeds
    precisions: str = ""  # the precisions in which the models ran, if they differ

    def _shown(self, *names: str) -> list[str]:
        """Return those of a base, language and cell that rows begin with: the first two only if there are several."""
        several = [len({each[i] for each in self.lines}) > 1 for i in (0, 1)]
        return list(itertools.compress(names, [*several, True]))

    def row_names(self, line: Line) -> list[str]:
        return self._shown(line.base, line.language, self.labels[line.cell])

    @property
    def reference_label(self) -> str:
        """Return what the table calls the reference; "" if there is none."""
        return self.labels[self.reference] if self.reference else ""

    @property
    def heads(self) -> list[str]:
        return self._shown("base", "language", "cell")


def table_of(asked: dict[str, Any], models: list[ReportedModel]) -> Table:
    """Return the table of an experiment from the results of its models."""
    about = asked["experiment"]
    cells = {cell["name"]: cell for cell in about["cells"]}
    scores: Scores = {}
    for model in models:
        cell = cells[model.name]
        for row in compared(model, models):
            line = Line(cell["base"], row.language, cell["label"])
            column = Column(row.suite, row.method, row.unit)
            scores.setdefault(line, {}).setdefault(column, {})[cell["seed"]] = row.score
    columns = dict.fromkeys(column for of_line in scores.values() for column in of_line)
    columns = sorted(columns, key=lambda each: each.suite != "")  # the validation text first
    titles = {column: title_of(column, asked, columns) for column in columns}
    reference = next((cell["label"] for cell in about["cells"] if cell["reference"]), None)
    order = [
        Line(cell["base"], code, cell["label"])
        for cell in about["cells"]
        for code in asked["models"][cell["name"]]["languages"]
    ]
    groups = [*dict.fromkeys(line[:2] for line in order)]
    lines = sorted((line for line in dict.fromkeys(order) if line in scores), key=lambda line: groups.index(line[:2]))
    found = effects(scores, reference)
    marked = best(scores, found, reference)
    labels = labels_of(about["cells"])
    precisions = different_precisions((model.name, model.precision) for model in models)
    given = asked["name"], titles, lines, scores, found, marked, labels, reference, about["seeds"]
    return Table(*given, precisions)


def labels_of(cells: list[dict[str, Any]]) -> dict[str, str]:
    """Return {cell: what its values are, as `hybrid ratio 1/2, LAMB`}; where two look alike, with their names.

    Of a mapping, such as `model.config`, only what differs between the cells is there.
    """
    as_given = {cell["label"]: cell["values"] for cell in cells}
    taken_apart = {label: dict(single_values(values)) for label, values in as_given.items()}
    keys = {key for values in taken_apart.values() for key in values}
    common = {key for key in keys if len({repr(values.get(key, keys)) for values in taken_apart.values()}) == 1}
    if len(cells) == 1:
        common = set()
    found = {}
    for label, values in taken_apart.items():
        shown = [key for key in values if key in as_given[label] or key not in common]
        found[label] = ", ".join(said(key, values[key], keys) for key in shown or values) or BASE
    counts = Counter(found.values())
    return {label: text if counts[text] == 1 else f"{text} ({label})" for label, text in found.items()}


def single_values(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (key, value), with mappings taken apart: `model.config: {n_layer: 2}` is `model.config.n_layer`, 2."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from single_values({f"{key}.{name}": inner for name, inner in value.items()})
        else:
            yield key, value


def said(key: str, value: Any, keys: set[str]) -> str:
    """Return a key and its value in words: `hybrid ratio 1/2`; names that say what they are about stand alone.

    The words are the shortest ending of the key that no other of the keys has: of `model.source` and
    `tokenizer.source`, it is the whole key. A word such as `source` never stands alone, since it says too little.
    """
    parts = key.split(".")
    endings = [parts[-count:] for count in range(2 if parts[-1] in VAGUE else 1, len(parts))]
    own = (end for end in endings if all(other == key or other.split(".")[-len(end) :] != end for other in keys))
    words = " ".join(next(own, parts)).replace("_", " ")
    if isinstance(value, bool):
        return f"{words} {'on' if value else 'off'}"
    if value is None:
        return f"no {words}"
    if isinstance(value, list):
        return f"{words} {' / '.join(map(text_of, value))}"
    return NAMES.get(str(value), str(value)) if key in ALONE else f"{words} {text_of(value)}"


def compared(model: ReportedModel, models: list[ReportedModel]) -> Iterator[ScoreRow]:
    """Yield the scores of a model that are compared: on the validation text, after fine-tuning, and on suites.

    On suites, they are those of the methods of all headlines.
    """
    methods: dict[str, set[str]] = {}
    for other in models:
        for suite, scores in other.scores.items():
            first = next(iter(scores["languages"]))
            if row := head(other.name, first, suite, scores):
                methods.setdefault(suite, set()).add(row.method)
    for row in rows_of(model):
        of_text = row.suite == "" and row.method not in UNCOMPARED
        of_suite = row.method in methods.get(row.suite, ())
        if row.is_whole and (of_text or of_suite or row.method == TUNED):
            yield row


def title_of(column: Column, asked: dict[str, Any], columns: list[Column]) -> str:
    """Return the title of a column, with the method where a suite has several."""
    if not column.suite:
        return f"{column.method}, {column.unit}"
    if column.method == TUNED:
        about = asked["tasks"][column.suite]
        return f"{about['title']} ({TUNED}, {about['protocol']})"
    title = asked["suites"][column.suite]["title"]
    several = sum(other.suite == column.suite for other in columns) > 1
    return f"{title} ({column.method})" if several else title


def number(value: float, column: Column, signed: bool = False) -> str:
    """Return a score: shares in percent with one digit, others with three digits."""
    sign = "+" if signed else ""
    return f"{100 * value:{sign}.1f}" if column.more_is_better else f"{value:{sign}.3f}"


def with_interval(value: float, half: float | None, column: Column, signed: bool = False) -> str:
    """Return a number and half of its interval, as `61.2 ± 0.8`."""
    text = number(value, column, signed)
    return text if half is None else f"{text} ± {number(half, column)}"


def caption(table: Table) -> str:
    """Say what the numbers are, in one or two sentences."""
    note = f" Note: {table.precisions}." if table.precisions else ""
    if table.seeds == 1:
        return f"One seed: there is no interval, and no difference is tested.{note}"
    text = f"Mean over {table.seeds} seeds ± half of its 95 % interval (t distribution)."
    if table.reference:
        tests = sum(effect.p is not None for effect in table.effects.values())
        text += (
            f" Bold: the best cell, if its difference from the reference ({table.reference_label}) is significant"
            f" (paired t test over seeds, p < {LEVEL} after Holm's correction over all {tests} tests of the table)."
        )
    return text + note


def heads(table: Table) -> list[tuple[str, str, str]]:
    """Return (title, unit, arrow) of each column; the arrow says whether more or less is better."""
    found = [(title, "", "") for title in table.heads]
    for column, title in table.columns.items():
        name = title.removesuffix(f", {column.unit}")
        found.append((name, "%", "↑") if column.more_is_better else (name, column.unit, "↓"))
    return found


def score(table: Table, line: Line, column: Column) -> str:
    """Return the mean of a score over seeds as text."""
    if column not in table.scores[line]:
        return "–"
    mean = mean_of([*table.scores[line][column].values()])
    return with_interval(mean.value, mean.half, column)


def difference(table: Table, line: Line, column: Column) -> str:
    """Return a difference from the reference as text."""
    if (effect := table.effects.get((line, column))) is None:
        return "–"
    return with_interval(effect.difference, effect.half, column, signed=True) + (" *" if effect.significant else "")


def markdown(table: Table) -> str:
    """Return the table as Markdown: the scores, and the differences from the reference."""

    def grid(titles: list[str], lines: list[Line], text: Callable[[Table, Line, Column], str], bold: bool) -> str:
        rows = [titles, ["---"] * len(titles)]
        for line in lines:
            cells = [(text(table, line, column), bold and (line, column) in table.best) for column in table.columns]
            names = [escape.cell(name) for name in table.row_names(line)]
            rows.append(names + [f"**{cell}**" if best else cell for cell, best in cells])
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    titles = [
        escape.cell(f"{title}{f', {unit}' if unit else ''} {arrow}".strip()) for title, unit, arrow in heads(table)
    ]
    about = caption(table).replace(table.reference_label, escape.markdown(table.reference_label))
    parts = [
        f"# {escape.markdown(table.name)}",
        about,
        grid(titles, table.lines, score, bold=True),
    ]
    if table.effects:
        others = [line for line in table.lines if line.cell != table.reference]
        parts.append(
            f"Differences from {escape.markdown(table.reference_label)}, seed by seed, with 95 % intervals;"
            " \\* significant after Holm's correction:"
        )
        parts.append(grid(titles, others, difference, bold=False))
    return "\n\n".join(parts) + "\n"


def latex(table: Table) -> str:
    r"""Return the scores for LaTeX: `\input` it in a document with `\usepackage{booktabs}`."""
    # Two lines, since a line of titles with units is wider than a page.
    titles = [f"{title} {arrow}".strip() for title, _, arrow in heads(table)], [unit for _, unit, _ in heads(table)]
    rows = []
    for before, line in zip([None, *table.lines], table.lines, strict=False):
        if before and before[:2] != line[:2]:
            rows.append(r"    \midrule")
        fields = [escape.latex(name) for name in table.row_names(line)]
        for column in table.columns:
            text = escape.latex(score(table, line, column))
            fields.append(rf"\textbf{{{text}}}" if (line, column) in table.best else text)
        rows.append(rf"    {' & '.join(fields)} \\")
    return "\n".join(
        [
            rf"% Made by Babelmill from experiments/{table.name}; needs \usepackage{{booktabs}}",
            r"\begin{table}",
            r"  \centering",
            r"  \setlength{\belowcaptionskip}{6pt}",
            rf"  \caption{{{escape.latex(caption(table))}}}",
            rf"  \label{{tab:{table.name}}}",
            rf"  \begin{{tabular}}{{@{{}}{'l' * len(table.heads)}{'r' * len(table.columns)}@{{}}}}",
            r"    \toprule",
            *(rf"    {' & '.join(map(escape.latex, line))} \\" for line in titles),
            r"    \midrule",
            *rows,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def write_csv(asked: dict[str, Any], models: list[ReportedModel], file: IO[str]) -> None:
    """Write all scores, one line per score and seed, with the base, the cell and its values in columns of their own."""
    cells = {cell["name"]: cell for cell in asked["experiment"]["cells"]}
    keys = [*dict.fromkeys(key for cell in cells.values() for key in cell["values"])]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["experiment", "base", "cell", *keys, "seed", *ScoreRow._fields, "million_words"])
    for model in models:
        cell = cells[model.name]
        values = [
            value if isinstance(value := cell["values"].get(key), str | None) else json.dumps(value) for key in keys
        ]
        begin = [asked["name"], cell["base"], cell["label"], *values, cell["seed"]]
        rows = [(*begin, *row, None) for row in rows_of(model)]
        rows += [(*begin, *row, words) for words, row in snapshots_of(model)]
        for row in rows:
            writer.writerow(f"{each:.6g}" if isinstance(each, float) else escape.csv_cell(each) for each in row)
