"""Read the files of a corpus as record batches: which columns of a table (or keys of JSON objects), and as what."""

import dataclasses
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.config import schema
from babelmill.core.escape import line
from babelmill.core.formats import format_of
from babelmill.corpus.record_batches import CONTEXT, LABELS, METADATA, ORIGIN, PROMPT, batch_of, schema_of
from babelmill.corpus.tally import Tally
from babelmill.tables.rows import BATCH, ROWS, Asked, Column, columns_of_rows, listed
from babelmill.tables.text import Form
from babelmill.tokens.label_text import context_text, label_text

log = logging.getLogger("babelmill.corpus")
QUIET = 10  # seconds between messages of progress


@dataclasses.dataclass(frozen=True)
class Reading:
    """Says how to read files."""

    corpus: schema.Corpus  # the section `corpus` of the configuration
    # {file: column} of the files that have their own column of text
    text_columns: Mapping[Path, str] = dataclasses.field(default_factory=dict)

    @property
    def of_documents(self) -> pa.Schema:
        """Return the schema of the documents."""
        labelled, prompts = self.corpus.label_columns, self.corpus.prompt_column is not None
        return schema_of([LABELS] if labelled else [PROMPT] if prompts else [])

    @property
    def form(self) -> Form:
        """Return how the files are written."""
        corpus = self.corpus
        return Form("corpus", corpus.format, corpus.document, corpus.encoding, corpus.delimiter, corpus.quoting)

    def asked(self, path: Path) -> dict[str, Asked]:
        """Return what is read of each row of a file, by the column of documents that it becomes, labels by number."""
        corpus = self.corpus
        found = {"text": Asked(self.text_columns.get(path, corpus.text_column), "corpus.text_column")}
        if corpus.prompt_column is not None:
            found[PROMPT] = Asked(corpus.prompt_column, "corpus.prompt_column")
        for i, column in enumerate(corpus.label_columns):
            found[f"{LABELS} {i}"] = Asked(column, "corpus.label_columns", "value")
        if corpus.context_column is not None:
            found[CONTEXT] = Asked(corpus.context_column, "corpus.context_column", "value")
        return found | {name: Asked(name, "metadata", "anything", optional=True) for name in METADATA}

    def documents(self, path: Path, numbers: Sequence[int], columns: dict[str, Column]) -> dict[str, Column]:
        """Return the columns that were `asked` of rows of a file, which have these numbers, as those of documents."""
        if self.corpus.label_columns:
            cells = [columns.pop(f"{LABELS} {i}") for i in range(len(self.corpus.label_columns))]
            columns[LABELS] = [*zip(*(map(label_text, listed(column)) for column in cells), strict=True)]
            context = listed(columns.get(CONTEXT, [self.corpus.context] * len(numbers)))
            columns[CONTEXT] = [*map(context_text, context)]
            unit = "row" if format_of(path, file_format=self.corpus.format)[0] == ".parquet" else "line"
            columns[ORIGIN] = [f"{path}: {unit} {number}" for number in numbers]
        return columns


def read(paths: Sequence[Path], reading: Reading, tally: Tally) -> Iterator[pa.RecordBatch]:
    """Yield the documents of files, in order, in batches of about 1 MB.

    A UserError says that there is no such file or column, or, unless it is skipped, that input is bad or ends early.
    """
    waiting: dict[str, list[Any]] = {name: [] for name in reading.of_documents.names}
    size, said = 0, 0.0
    for place, path in enumerate(paths, 1):
        if time.monotonic() - said > QUIET:
            log.info("reading %s (%d of %d)", line(path), place, len(paths))
            said = time.monotonic()
        asked = reading.asked(path)
        for numbers, found in columns_of_rows(path, [*asked.values()], reading.form, tally.bad):
            documents = reading.documents(path, numbers, dict(zip(asked, found, strict=True)))
            tally.read += len(numbers)
            of_arrow = isinstance(documents["text"], pa.Array)  # about 1 MB, which has its batch
            if not of_arrow:
                size += sum(map(len, filter(None, documents["text"])))
                for name, values in documents.items():
                    waiting[name] += listed(values)
            if waiting["text"] and (of_arrow or size > BATCH or len(waiting["text"]) >= ROWS):
                yield batch_of(waiting, tally)
                waiting, size = {name: [] for name in waiting}, 0
            if of_arrow:
                yield batch_of(documents, tally)
    if waiting["text"]:
        yield batch_of(waiting, tally)
