"""A text of too few documents is named before anything runs."""

from pathlib import Path

import pytest

from babelmill.config.inputs import few_documents
from babelmill.config.resolve import Configuration

pytestmark = pytest.mark.usefixtures("folder")


def note(**corpus: object) -> str | None:
    """What is said of a corpus of two files of 60 kB each."""
    for name in ("a.txt", "b.txt"):
        Path(name).write_text("word " * 12_000)
    corpus = {"files": ["*.txt"], "validation_share": 0.02, **corpus}
    return few_documents(Configuration([("test", {"languages": {"eng": {"corpus": corpus}}})]).corpus("eng"))


def test_files_and_many_words_are_few_documents():
    for document, count in (("file", "2"), ("2000 words", "10")):
        said = note(document=document)
        assert said and f"validation_share = 0.02 of {count} documents; set corpus.document: 300 words" in said


@pytest.mark.parametrize(
    "corpus",
    [
        {"document": "100 words"},
        {"document": "line"},
        {"document": "paragraph"},
        {"document": "2000 words", "validation_share": 0.4},
        {"document": "file", "validation_files": ["a.txt"]},
        {"document": "file", "builtin": "python-docs"},
        {"document": "file", "files": ["*"], "format": "jsonl"},
    ],
)
def test_nothing_is_said_where_there_are_enough_or_nobody_can_know(corpus: dict[str, object]):
    assert note(**corpus) is None
