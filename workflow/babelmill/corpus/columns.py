"""Describe which columns of a table (or keys of JSON objects) a corpus reads, and how a file is written."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.config import schema
from babelmill.core.files import UserError
from babelmill.corpus.record_batches import (
    CONTEXT,
    LABELS,
    METADATA,
    ORIGIN,
    PROMPT,
    SCHEMA,
    WITH_LABELS,
    WITH_PROMPTS,
)
from babelmill.tables.columns import Asked
from babelmill.tokens.label_text import context_text, label_text, label_text_as_it_stands


@dataclasses.dataclass(frozen=True)
class Columns:
    """Holds the names of the columns that are read from a file, and how the file is written.

    Attributes:
        text: the column of the text.
        prompt: the column of the text's prompt, or None if there are no prompts.
        labels: the columns of the text's labels; empty if the text is not labelled.
        context: the column of the context of labelled text, or None if all rows have `one_context`.
        delimiter: the character between the fields of a .csv.
        encoding: the encoding of all files but Parquet.
        format: the format of the files, if their names do not say it.
        quoting: whether quotation marks enclose fields of .csv and .tsv.
        raw_labels: whether labels stay as they stand (`250.0`, `NA`), and are no codes of digits.
    """

    text: str = "text"
    prompt: str | None = None
    labels: tuple[str, ...] = ()
    context: str | None = None
    one_context: str = ""
    delimiter: str = ","
    encoding: str = "utf-8"
    format: str | None = None
    quoting: str = "format"
    raw_labels: bool = False

    @classmethod
    def of(cls, corpus: schema.Corpus, text: str | None = None, raw_labels: bool = False) -> "Columns":
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
            corpus.quoting,
            raw_labels,
        )

    @property
    def texts(self) -> dict[str, str]:
        """Return the columns that must hold text, by their role: `text`, and `prompt` if there is one."""
        return {"text": self.text} | ({PROMPT: self.prompt} if self.prompt is not None else {})

    @property
    def values(self) -> tuple[str, ...]:
        """Return the columns that may also hold numbers: those of labels and context."""
        return self.labels if self.context is None else (*self.labels, self.context)

    @functools.cached_property
    def asked(self) -> tuple[Asked, ...]:
        """Return each column with the key of the configuration that names it."""
        texts = [Asked(column, f"corpus.{name}_column") for name, column in self.texts.items()]
        labels = [Asked(column, "corpus.label_columns", text=False) for column in self.labels]
        context = [] if self.context is None else [Asked(self.context, "corpus.context_column", text=False)]
        return (*texts, *labels, *context)

    def read_from(self, there: Sequence[str]) -> list[Asked]:
        """Return the columns that are read from a file with these columns: those asked for, and metadata."""
        known = {asked.column for asked in self.asked}
        return [*self.asked, *(Asked(n, "metadata", text=False) for n in METADATA if n in there and n not in known)]

    def refuse_plain_text(self, path: Path) -> None:
        """Raise a UserError if the user asks for prompts or labels, since plain text has no columns for them."""
        for key, wanted in (("prompt_column", self.prompt is not None), ("label_columns", bool(self.labels))):
            if wanted:
                raise UserError(
                    f"{path}: plain text has no columns, so it cannot have corpus.{key}; {schema.TABLES[key]}"
                )

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
        text_of = label_text_as_it_stands if self.raw_labels else label_text
        labels = zip(*(map(text_of, cells[name]) for name in self.labels), strict=True)
        context = [self.one_context] * len(numbers)
        if self.context is not None:
            context = list(map(context_text, cells[self.context]))
        origin = [f"{path}: {unit} {number}" for number in numbers]
        return {CONTEXT: context, LABELS: list(labels), ORIGIN: origin}
