"""Count the text in files as the stage `corpus` will count it. With a budget, the download ends when there is enough.

The corpus draws a sample of the budget's size from the downloaded files (`corpus/sampling.py`). The download fetches a
quarter more than the budget. So the sample is not simply all text of the first files, and the corpus can drop documents
that are also in the validation text.
"""

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.config import canonical, schema
from babelmill.config.inputs import UNCOUNTED
from babelmill.core.escape import line
from babelmill.core.files import UserError
from babelmill.corpus import readers
from babelmill.corpus.cleaning import clean
from babelmill.corpus.columns import Columns
from babelmill.corpus.digests import DigestSet, digests_of
from babelmill.corpus.record_batches import sizes_of
from babelmill.corpus.sampling import Budget
from babelmill.corpus.tally import Tally

log = logging.getLogger("babelmill.download")
MARGIN = 1.25  # how many times the budget to fetch
HELD_OUT = 0.02  # part of the budget to fetch as validation text, at least one file
AT_ONCE = 8  # the largest number of files to fetch together


class Counter:
    """Counts documents or bytes of the text of files, as the section `corpus` would keep it."""

    def __init__(self, asked: dict[str, Any], byte_premium: float, scratch: Path):
        """Set up a count. `asked` is the result of `inputs.counted`, `scratch` the folder for temporary copies."""
        values = canonical.from_file({"corpus": asked | UNCOUNTED}, {"corpus": schema.Corpus})["corpus"]
        self.corpus = schema.Corpus.model_validate(values)
        assert self.corpus.budget is not None, "only downloads with a budget count"
        self.budget = Budget.parse(self.corpus.budget, byte_premium)
        self._scratch = scratch
        self._seen = DigestSet()

    def of(self, path: Path, text_column: str | None) -> int:
        """Return how much text a file adds, in the budget's unit. Documents of earlier files do not count again.

        Raises:
            UserError: the file cannot be read (see `readers.read`), or `corpus.categories` is set and the file has no
                categories.
        """
        tally, corpus, total = Tally(self.corpus.on_error), self.corpus, 0
        columns = Columns.of(corpus, text_column)
        for batch in readers.read(path, tally, columns, document=corpus.document, scratch=self._scratch):
            kept = clean(batch, corpus, tally)
            if corpus.deduplicate:
                kept = kept.filter(pa.array(self._seen.add(digests_of(kept))))
            total += kept.num_rows if self.budget.unit == "documents" else int(sizes_of(kept).sum())
        if corpus.categories and tally.read and not tally.categories:
            raise UserError(f"{line(path.name)}: no document has a `category`, and corpus.categories asks for some")
        if not total:
            log.warning("%s adds no text: the filters drop all its %d documents", line(path.name), tally.read)
        return total


def how_many(counts: list[int], wanted: float) -> int:
    """Return how many files to fetch next: as many as the sizes of the files so far show to be needed."""
    lacking = wanted - sum(counts)
    largest = max(counts, default=0)
    return max(1, min(AT_ONCE, int(lacking / largest))) if largest else 1


def check_columns(path: Path, columns: Columns) -> None:
    """Read the beginning of a file. Raise a UserError if columns (it lists them) or documents are missing there."""
    tally = Tally("skip")
    first = next(readers.read(path, tally, columns, document="line"), None)
    if tally.dropped["malformed"] and not (first and first.num_rows):
        raise UserError(f"{line(path.name)}: its beginning contains no document of this format; see the lines above")
