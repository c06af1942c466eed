"""Look at the text of a language before a model is trained on it: a page with pictures, and its numbers.

    babelmill corpus eng           # the files as they are, before anything is cleaned or dropped
    babelmill corpus eng --made    # the corpus that the workflow made of them

`reports/corpora/eng.html` is one page without scripts that needs no network: documents, words and lengths, scripts and
languages, copies and repeated lines, odd characters, categories and sources, 20 documents drawn at random and the
oddest ones. `reports/corpora/eng.json` has the numbers, and a report of the model (`babelmill report eng`) shows the
main ones. Nothing is changed, and nothing runs again. If the text comes from the Hub, it must be there already
(`snakemake converted/eng --until download`).
"""

import argparse
import os
from pathlib import Path
from typing import Any

from babelmill.config import loading
from babelmill.config.canonical import at_neutral
from babelmill.config.schema import Corpus
from babelmill.core import manifest
from babelmill.core.files import UserError, sha256, write_json, write_text
from babelmill.graph import Graph

FOLDER = Path("reports/corpora")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("language", help="a language, or a text with a name of its own")
    parser.add_argument("--made", action="store_true", help="look at the corpus that was made, not at its sources")
    parser.add_argument("--threads", type=int, metavar="N", help="number of processes (default: one per core)")
    loading.add_arguments(parser)


def as_it_is(corpus: Corpus) -> Corpus:
    """Return a section `corpus` that reads the same documents, and neither cleans nor drops any."""
    keys = [name for name, field in Corpus.model_fields.items() if not field.is_required()]
    read_by = {"prompt_column", "label_columns", "context_column", "context"}
    read_by |= {"delimiter", "encoding", "format", "quoting"}
    every = {"categories": [], "budget": None, "deduplicate": False, "min_characters": 0, "on_error": "skip"}
    every |= {"normalization": "none", "control_characters": "keep"}
    return at_neutral(corpus, *(set(keys) - read_by)).model_copy(update=every)


def look(graph: Graph, code: str, made: bool, threads: int) -> dict[str, Any]:
    """Return what is found in a language's sources, or in its corpus; raise a UserError if there is no text."""
    from babelmill.corpus.__main__ import Inputs, inputs
    from babelmill.corpus.reading import Reading
    from babelmill.survey.page import MADE, SOURCE
    from babelmill.survey.walk import survey

    corpus, folder = graph.configuration.corpus(code).corpus, graph.result("corpus", code).path
    about: dict[str, Any] = {"language": code, "of": MADE if made else SOURCE, "builtin": corpus.builtin}
    if made:
        manifest.verify(folder)
        about["manifest"] = sha256(folder / manifest.NAME)
        files = [folder / f"{split}.parquet" for split in ("train", "validation")]
        corpus = corpus.model_copy(update={"format": "parquet", "text_column": "text", "builtin": None})
        corpus = at_neutral(corpus, "prompt_column", "label_columns", "context_column", "context")
        FOLDER.mkdir(parents=True, exist_ok=True)
        return about | survey(Inputs(files[:1], files[1:], [], None, {}), Reading(as_it_is(corpus)), threads, FOLDER)
    download = None if corpus.files or corpus.builtin else graph.result("download", code).path
    if download and not (download / manifest.NAME).is_file():
        raise UserError(
            f"the text of {code} is on the Hub ({corpus.hub}): `snakemake converted/{code} --until download` gets it,"
            " or set corpus.files"
        )
    sources = inputs(corpus, download)
    FOLDER.mkdir(parents=True, exist_ok=True)
    return about | survey(sources, Reading(as_it_is(corpus), sources.text_columns), threads, FOLDER)


def run(args: argparse.Namespace) -> None:
    """Write the page and the numbers, and print a summary."""
    from babelmill.survey.measures import knows
    from babelmill.survey.page import page, summary

    graph = Graph(configuration := loading.from_arguments(args))
    asked = configuration.language(args.language)
    figures = look(graph, args.language, args.made, args.threads or len(os.sched_getaffinity(0)))
    if not figures["documents"]:
        raise UserError(f"the text of {args.language} has no document that can be read")
    figures["asked"] = {"name": asked.name, "tag": asked.tag, "is_known": knows(asked.tag)}
    # Of several texts in a language, the first has its name: that of config/languages.tsv.
    names = {each.tag: each.name for each in reversed(configuration.table.values())} | {"zxx": "no language"}
    html = FOLDER / f"{args.language}.html"
    write_json(html.with_suffix(".json"), figures)
    write_text(html, page(args.language, figures, names))
    print("\n".join([*summary(figures), f"{html}, {html.with_suffix('.json')}"]))
