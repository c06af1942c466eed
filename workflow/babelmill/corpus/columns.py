"""Describe which columns of a table (or keys of JSON objects) are read, and a file's delimiter and encoding."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.config import schema
from babelmill.config.corpus_section import TABLES
from babelmill.core.files import UserError
from babelmill.corpus.record_batches import CONTEXT, LABELS, ORIGIN, PROMPT, SCHEMA, WITH_LABELS, WITH_PROMPTS
from babelmill.tokens.label_text import context_text, label_text


@dataclasses.dataclass(frozen=True)
class Columns:
    """Holds the names of the columns that are read from a file, and its delimiter and encoding.

    Attributes:
        text: the column of the text.
        prompt: the column of the text's prompt, or None if there are no prompts.
        labels: the columns of the text's labels; empty if the text is not labelled.
        context: the column of the context of labelled text, or None if all rows have `one_context`.
        delimiter: the character between the fields of a .csv.
        encoding: the encoding of all files but Parquet.
        format: the format of the files, if their names do not say it.
    """

    text: str = "text"
    prompt: str | None = None
    labels: tuple[str, ...] = ()
    context: str | None = None
    one_context: str = ""
    delimiter: str = ","
    encoding: str = "utf-8"
    format: str | None = None

    @classmethod
    def of(cls, corpus: schema.Corpus, text: str | None = None) -> "Columns":
        """Return the columns that the section `corpus` names. If given, `text` replaces its column of text."""
        return cls(
            text or corpus.text_column,
            corpus.prompt_column,
            tuple(corpus.label_columns),
            corpus.context_column,
            context_text(corpus.context),
            corpus.delimiter,
            corpus.encoding,
            corpus.format,
        )

    @property
    def texts(self) -> dict[str, str]:
        """Return the columns that must hold text, by their role: `text`, and `prompt` if there is one."""
        return {"text": self.text} | ({PROMPT: self.prompt} if self.prompt is not None else {})

    @property
    def values(self) -> tuple[str, ...]:
        """Return the columns that may also hold numbers: those of labels and context."""
        return self.labels if self.context is None else (*self.labels, self.context)

    def named(self) -> Iterator[tuple[str, str]]:
        """Yield each column with the key of the configuration that names it."""
        yield from ((f"corpus.{name}_column", column) for name, column in self.texts.items())
        yield from (("corpus.label_columns", column) for column in self.labels)
        if self.context is not None:
            yield "corpus.context_column", self.context

    def missing(self, there: Sequence[str]) -> tuple[str, str] | None:
        """Return the first column that is not in `there`, and the key that names it, or None if none is missing."""
        return next(((column, key) for key, column in self.named() if column not in there), None)

    def refuse_plain_text(self, path: Path) -> None:
        """Raise a UserError if the user asks for prompts or labels, since plain text has no columns for them."""
        for key, wanted in (("prompt_column", self.prompt is not None), ("label_columns", bool(self.labels))):
            if wanted:
                raise UserError(f"{path}: plain text has no columns, so it cannot have corpus.{key}; {TABLES[key]}")

    @property
    def of_documents(self) -> pa.Schema:
        """Return the schema of the documents that are read with these columns."""
        return WITH_LABELS if self.labels else SCHEMA if self.prompt is None else WITH_PROMPTS

    def labelled(
        self, path: Path, cells: Mapping[str, Sequence[Any]], unit: str, numbers: Sequence[int]
    ) -> dict[str, list[Any]]:
        """Return the additional columns of labelled text, or {} if the text is not labelled.

        Args:
            path: the file.
            cells: the content of each column in `values`.
            unit: `line` or `row`.
            numbers: the numbers of the rows.
        """
        if not self.labels:
            return {}
        labels = zip(*(map(label_text, cells[name]) for name in self.labels), strict=True)
        context = [self.one_context] * len(numbers)
        if self.context is not None:
            context = list(map(context_text, cells[self.context]))
        origin = [f"{path}: {unit} {number}" for number in numbers]
        return {CONTEXT: context, LABELS: list(labels), ORIGIN: origin}
