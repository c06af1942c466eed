"""Say what stands out in a sample: lines for the terminal, and a page. All text is from outside, and is escaped."""

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from babelmill import __version__
from babelmill.config.identifiers import PY3LANGID
from babelmill.core.escape import line
from babelmill.core.words import plural
from babelmill.corpus.identification import load
from babelmill.reporting.page import environment
from babelmill.survey.sample import SHOWN, UNKNOWN, frequent_lines, oddest, shares_of, table

TEMPLATE = Path(__file__).with_name("page.html")
EXCERPT = 400  # characters of a document that is shown
MOST_LINES = 100  # lines of a table
MOSTLY = 0.9  # share of the documents that are expected to be in the language


def summary(documents: pd.DataFrame, read: Counter[str], name: str, tag: str | None) -> list[str]:
    """Return what stands out in a text, one thing a line; `tag` is the code of its language, `name` its name."""
    words, size = documents["words"].sum(), documents["text"].str.encode("utf-8").str.len().sum()
    sampled = f" (a sample of {len(documents):,} is measured)" if len(documents) < read.total() else ""
    number = f"{plural(read.total(), 'document')} in {plural(len(read), 'file')}"
    lines = [f"{number}{sampled}, {words:,} words, {size / 1e6:,.1f} MB"]
    languages = [language for language in documents["language"] if language]
    for what, values in (("script", documents["script"]), ("language", languages)):
        shares = [f"{value} {share:.1%}" for value, share in shares_of(values).items() if share >= 0.0005]
        lines.append(f"{what}: {', '.join(shares[:4])}")
    asked = shares_of(language for language in languages if language != UNKNOWN).get(tag or "", 0.0)
    if tag in load(PY3LANGID).labels and {*languages} - {UNKNOWN} and asked < MOSTLY:
        lines.append(f"only {asked:.1%} of the documents that are not too short look like {name}")
    if copies := len(documents) - len({*documents["key"]}):
        lines.append(f"exact copies: {copies / len(documents):.1%} of the documents")
    for text, share in frequent_lines(documents).items():
        if share > 0.5:
            lines.append(f"a line stands in {share:.0%} of the documents: {line(text, 80)}")
    return lines


def page(title: str, lines: list[str], documents: pd.DataFrame) -> str:
    """Return the page about a sample as one HTML file. `lines` says what stands out."""
    lengths = documents[["characters", "words"]].describe(percentiles=[0.05, 0.25, 0.5, 0.75, 0.95]).T
    frequent = {text: f"{share:.1%}" for text, share in frequent_lines(documents).items()}
    tables = {
        "Files": table(documents, "file"),
        "Categories": table(documents, "category"),
        "Lengths": lengths.drop(columns=["count", "std"]).rename_axis("unit"),
        "Lines that stand in many documents": pd.DataFrame({"documents": frequent}).rename_axis("line"),
    }
    different = documents.drop_duplicates("key")
    shown = {"Drawn at random": different[:SHOWN], "The oddest": oddest(documents)}
    template = environment().from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        name=title,
        version=__version__,
        summary=lines,
        tables={title: _html(each) for title, each in tables.items() if len(each)},
        lists={title: map(_shown, each.to_dict("records")) for title, each in shown.items()},
    )


def _html(found: pd.DataFrame) -> Markup:
    """Return a table as HTML, each cell on one line."""
    plain = found[:MOST_LINES].rename(index=lambda name: line(str(name), 200))
    plain = plain.map(lambda cell: line(cell) if isinstance(cell, str) else f"{cell:,.0f}")
    plain.index.name, plain.columns.name = None, found.index.name
    rest = f"<p class=note>and {len(found) - MOST_LINES:,} more</p>" if len(found) > MOST_LINES else ""
    return Markup(plain.to_html(border=0) + rest)


def _shown(document: dict[str, Any]) -> dict[str, Any]:
    """Return what is shown of a document. Line ends stay; what a browser obeys or hides is spelled out."""
    parts = document["text"][:EXCERPT].replace("\t", "    ").split("\n")
    about = [document["file"], f"{document['characters']:,} characters", document.get("why")]
    return {"about": ", ".join(filter(None, about)), "text": Markup("\n").join(escape(line(each)) for each in parts)}
