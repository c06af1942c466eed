"""Read `python-docs`: English prose that every Python installation contains, so that a first run needs no download.

It is the language reference (`pydoc_data.topics`, the text of `help("for")`) and the docstrings of the standard
library, about 2 MB in total. Sources are parsed, never imported or run. The text comes from the running interpreter's
installation.
"""

import ast
import os
import platform
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from babelmill.corpus.record_batches import batch_of

LICENSE = "PSF-2.0"
DOCUMENT = 2000  # characters; longer texts are cut between paragraphs, so that validation gets enough documents
# Tests are not prose, and packages in site-packages do not belong to Python.
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "pydoc_data"}


def python_docs() -> Iterator[pa.RecordBatch]:
    """Yield the documents of `python-docs` as batches of `record_batches.SCHEMA`, one per module, in sorted order."""
    library = Path(sysconfig.get_paths()["stdlib"])
    yield _batch("pydoc_data/topics", _topics(library / "pydoc_data" / "topics.py"))
    for folder, folders, names in os.walk(library):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        for path in (Path(folder, name) for name in sorted(names) if name.endswith(".py")):
            source = path.relative_to(library).with_suffix("").as_posix()
            yield _batch(source, _documents(_docstrings(_parse(path))))


def _batch(source: str, texts: list[str]) -> pa.RecordBatch:
    origin = f"python-{platform.python_version()}/{source}"
    facts = {"license": LICENSE, "script": "Latn", "data-source": origin}
    return batch_of({"text": texts} | {name: [value] * len(texts) for name, value in facts.items()})


def _parse(path: Path) -> ast.Module:
    """Return the syntax tree of a source file, or an empty tree if it has a syntax error (some have one on purpose)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in old modules
        try:
            return ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return ast.Module(body=[], type_ignores=[])


def _topics(path: Path) -> list[str]:
    """Return the texts of the topics table, sorted by topic."""
    for node in _parse(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            table = ast.literal_eval(node.value)
            return [document for name in sorted(table) for document in _documents([table[name]])]
    return []


def _docstrings(node: ast.AST) -> list[str]:
    """Return the docstrings of a module, its classes and functions, in source order."""
    has_one = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) or ""] if has_one else []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler):
            texts += _docstrings(child)
    return texts


def _documents(texts: list[str]) -> list[str]:
    """Return the paragraphs of all texts, joined into documents of about `DOCUMENT` characters."""
    documents, current, size = [], [], 0
    for paragraph in "\n\n".join(texts).split("\n\n"):
        paragraph = paragraph.strip("\n")
        if not paragraph.strip():
            continue
        if current and size + len(paragraph) > DOCUMENT:
            documents.append("\n\n".join(current))
            current, size = [], 0
        current.append(paragraph)
        size += len(paragraph) + 2
    if current:
        documents.append("\n\n".join(current))
    return documents
