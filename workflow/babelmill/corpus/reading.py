"""Say how the files of a corpus are read: which columns of a table (or keys of JSON objects), and as what."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.config import schema
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.corpus.record_batches import (
    CONTEXT,
    LABELS,
    METADATA,
    ORIGIN,
    PROMPT,
    SCHEMA,
    WITH_LABELS,
    WITH_PROMPTS,
    batch_of,
)
from babelmill.corpus.tally import Reason, Tally
from babelmill.tables.columns import Asked
from babelmill.tokens.label_text import context_text, label_text


@dataclasses.dataclass(frozen=True)
class Reading:
    """Says how to read files."""

    corpus: schema.Corpus  # the section `corpus` of the configuration
    # {file: column} of the files that have their own column of text
    text_columns: Mapping[Path, str] = dataclasses.field(default_factory=dict)

    @property
    def of_documents(self) -> pa.Schema:
        """Return the schema of the documents."""
        if self.corpus.label_columns:
            return WITH_LABELS
        return SCHEMA if self.corpus.prompt_column is None else WITH_PROMPTS


class SourceFile:
    """A file that is read; its tally says whether bad input is an error or a drop.

    Its name tells format and compression, unless `corpus.format` says the format.
    """

    def __init__(self, path: Path, reading: Reading, tally: Tally):
        self.path, self.reading, self.tally, self.corpus = path, reading, tally, reading.corpus
        # suffix, compression: see `formats.split_name`
        self.suffix, self.compression = split_name(path, self.corpus.format)
        prompt, labels, context = self.corpus.prompt_column, self.corpus.label_columns, self.corpus.context_column
        # {role: column} of the columns that must hold text. The roles are `text` and, for prompts, `prompt`.
        self.texts = {"text": reading.text_columns.get(path, self.corpus.text_column)}
        # each of all these columns, with the key of the configuration that names it
        self.asked = [Asked(self.texts["text"], "corpus.text_column")]
        if prompt is not None:
            self.texts[PROMPT] = prompt
            self.asked.append(Asked(prompt, "corpus.prompt_column"))
        self.asked += [Asked(column, "corpus.label_columns", text=False) for column in labels]
        if context is not None:
            self.asked.append(Asked(context, "corpus.context_column", text=False))
        # the columns that may also hold numbers: those of labels and context
        self.values = [asked.column for asked in self.asked if not asked.text]

    def read_from(self, there: Sequence[str]) -> list[Asked]:
        """Return the columns that are read from a file with these columns: those asked for, and metadata."""
        known = {asked.column for asked in self.asked}
        return [*self.asked, *(Asked(n, "metadata", text=False) for n in METADATA if n in there and n not in known)]

    def refuse_plain_text(self) -> None:
        """Raise a UserError if the user asks for prompts or labels, since plain text has no columns for them."""
        for key in ("prompt_column", "label_columns"):
            if getattr(self.corpus, key):
                raise UserError(f"{self.path}: plain text has no columns, so it cannot have corpus.{key}")

    def bad_document(self, reason: Reason, where: str, problem: str) -> None:
        """Report a document that cannot be read; see `Tally.bad_document`."""
        self.tally.bad_document(reason, self.path, where, problem)

    def documents(
        self, cells: Mapping[str, list[Any]], numbers: Sequence[int], tally: Tally | None = None
    ) -> pa.RecordBatch:
        """Return lines of a table as documents; columns of metadata may be missing."""
        found = {name: cells[name] for name in METADATA if name in cells}
        found |= {role: cells[column] for role, column in self.texts.items()}
        return batch_of(found | self.labelled(cells, "line", numbers), tally)

    def labelled(self, cells: Mapping[str, list[Any]], unit: str, numbers: Sequence[int]) -> dict[str, list[Any]]:
        """Return the additional columns of labelled text, {} if it is not labelled. `unit` is `line` or `row`."""
        if not self.corpus.label_columns:
            return {}
        labels = zip(*(map(label_text, cells[name]) for name in self.corpus.label_columns), strict=True)
        context = [context_text(self.corpus.context)] * len(numbers)
        if self.corpus.context_column is not None:
            context = list(map(context_text, cells[self.corpus.context_column]))
        origin = [f"{self.path}: {unit} {number}" for number in numbers]
        return {CONTEXT: context, LABELS: list(labels), ORIGIN: origin}
