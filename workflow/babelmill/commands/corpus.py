"""Look at the text of a language before a model is trained on it: what stands out, and a page.

    babelmill corpus eng

All files are read as they are, before anything is cleaned or dropped, and a sample of at most 100,000 documents is
measured. `reports/corpora/eng.html` is one page without scripts that needs no network: documents, words, lengths,
scripts and languages of each file and category, lines that stand in many documents, 20 documents drawn at random and
the oddest ones. Nothing is changed, and nothing runs again. If the text comes from the Hub, it must be there already
(`snakemake converted/eng --until download`).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from babelmill.config import loading
from babelmill.config.inputs import too_few
from babelmill.config.schema import Corpus
from babelmill.core import manifest
from babelmill.core.files import UserError, write_text
from babelmill.corpus.__main__ import Inputs, inputs
from babelmill.corpus.builtin import python_docs
from babelmill.corpus.reading import Reading, read
from babelmill.corpus.tally import Tally
from babelmill.graph import Graph
from babelmill.survey.page import page, summary
from babelmill.survey.sample import measure, sample

FOLDER = Path("reports/corpora")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("language", help="a language, or a text with a name of its own")
    loading.add_arguments(parser)


def documents(files: Inputs, corpus: Corpus, tally: Tally) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the documents as they are, in batches, each with the name of its file."""
    for batch in python_docs() if corpus.builtin else ():
        yield "corpus.builtin", batch
    for path in [*files.train, *files.validation]:
        for batch in read([path], Reading(corpus, files.text_columns), tally):
            yield str(path), batch


def run(args: argparse.Namespace) -> None:
    """Write the page, and print what stands out."""
    graph = Graph(configuration := loading.from_arguments(args))
    asked, code = configuration.language(args.language), args.language
    corpus, tally = configuration.corpus(code).corpus, Tally("skip")
    download = None if corpus.files or corpus.builtin else graph.result("download", code).path
    if download and not (download / manifest.NAME).is_file():
        raise UserError(
            f"the text of {code} is on the Hub ({corpus.hub}): `snakemake converted/{code} --until download` gets it,"
            " or set corpus.files"
        )
    files = inputs(corpus, download)
    found, counts = sample(documents(files, corpus, tally))
    if found.empty:
        raise UserError(f"the text of {code} has no document that can be read")
    measured = measure(found)
    lines = summary(measured, counts, asked.name, asked.tag)
    if dropped := {why: number for why, number in tally.dropped.items() if number}:
        reasons = ", ".join(f"{number:,} {why}" for why, number in dropped.items())
        lines.append(f"{sum(dropped.values()):,} documents without readable text: {reasons}")
    if not files.validation and (note := too_few(corpus, counts.total())):
        lines.append(note)
    html = FOLDER / f"{code}.html"
    title = asked.name if asked.name == code else f"{asked.name} ({code})"
    html.parent.mkdir(parents=True, exist_ok=True)
    write_text(html, page(title, lines, measured))
    print("\n".join([*lines, str(html)]))
