"""How much text files hold, as the corpus will count it: with a budget, the download ends where there is enough.

A budget is a sample by digest (`corpus/sampling.py`), drawn from what is downloaded. A quarter more than the budget is
fetched, since documents that are there twice are dropped, and the sample should leave something out of each file.
"""

from pathlib import Path
from typing import Any

from babelmill.config import canonical, schema
from babelmill.config.inputs import UNCOUNTED
from babelmill.corpus import readers
from babelmill.corpus.cleaning import clean
from babelmill.corpus.record_batches import sizes_of
from babelmill.corpus.sampling import Budget
from babelmill.corpus.tally import Tally

MARGIN = 1.25  # times the budget is fetched
HELD_OUT = 0.02  # of the budget is fetched of validation text, at least a file
AT_ONCE = 8  # files that are fetched together at most


class Counter:
    """Counts documents or bytes of the text of files, as the section `corpus` would keep it."""

    def __init__(self, asked: dict[str, Any], byte_premium: float, scratch: Path):
        """`asked`: what `inputs.counted` returned; `scratch`: the folder for temporary copies."""
        values = canonical.from_file({"corpus": asked | UNCOUNTED}, {"corpus": schema.Corpus})["corpus"]
        self.corpus = schema.Corpus.model_validate(values)
        assert self.corpus.budget is not None, "only downloads with a budget count"
        self.budget = Budget.parse(self.corpus.budget, byte_premium)
        self._scratch = scratch

    def of(self, path: Path, text_column: str | None) -> int:
        """Return how much of the budget's unit a file holds. UserError: it cannot be read, see `readers.read`."""
        tally, corpus, total = Tally(self.corpus.on_error), self.corpus, 0
        names = {"text_column": text_column or corpus.text_column, "prompt_column": corpus.prompt_column}
        for batch in readers.read(path, tally, **names, document=corpus.document, scratch=self._scratch):
            kept = clean(batch, corpus, tally)
            total += kept.num_rows if self.budget.unit == "documents" else int(sizes_of(kept).sum())
        return total


def how_many(counts: list[int], wanted: float) -> int:
    """Return how many files to fetch next: as many as are surely needed, judged by those that were read."""
    lacking = wanted - sum(counts)
    largest = max(counts, default=0)
    return max(1, min(AT_ONCE, int(lacking / largest))) if largest else 1


def check_columns(path: Path, columns: dict[str, str]) -> None:
    """Read the beginning of a file. UserError: a column is not there; it says which are."""
    batches = readers.read(
        path,
        Tally("skip"),
        text_column=columns.get("text_column", "text"),
        prompt_column=columns.get("prompt_column"),
        document="line",
    )
    next(batches, None)
