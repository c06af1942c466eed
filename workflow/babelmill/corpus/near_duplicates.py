"""Drop documents and paragraphs that are nearly the same as an earlier one (`near_copies.py`).

This comes after exact duplicates are dropped, and before a sample is drawn. The documents wait in a temporary file
until all are known. The user's own validation documents come first and stay as they are. So a training document that is
a near copy of one of them is dropped, as an exact copy is. Of all other documents the first one stays, whichever split
it belongs to, so no near copy of a validation document is left in the training text. Documents that lost paragraphs
are other documents then: the stage gives them new digests and looks for exact copies again.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelmill.config import schema
from babelmill.core.bars import Bar
from babelmill.core.words import plural
from babelmill.corpus.cleaning import is_blank, keep, long_enough, with_text
from babelmill.corpus.digests import DIGEST, digests_of, with_digests
from babelmill.corpus.near_copies import Copy, NearCopies, bands_of
from babelmill.corpus.record_batches import PROMPT, Spool, joined
from babelmill.corpus.tally import Tally

log = logging.getLogger("babelmill.corpus")

BANDS, PARAGRAPH_BANDS = "bands", "paragraph bands"  # columns of the batches, for `NearCopies`
BETWEEN = "\n\n"  # what separates paragraphs
LEAST = 16  # shingles, so 20 words; a shorter paragraph may well be said twice
TRAINING, ASIDE, HELD_OUT = range(3)  # for training; for validation; the user's own validation text

Documents = Iterator[tuple[bool, pa.RecordBatch]]  # each batch with whether it is of the user's own validation text
IsAside = Callable[[pa.RecordBatch], np.ndarray]  # returns which documents are for validation, bool [documents]


def compared(batch: pa.RecordBatch) -> pa.StringArray:
    """Return the texts of documents that are compared: with their prompts, if they have some."""
    if PROMPT not in batch.schema.names:
        return batch["text"]
    return pc.binary_join_element_wise(batch[PROMPT], batch["text"], BETWEEN)


def with_bands(batch: pa.RecordBatch, corpus: schema.Corpus) -> pa.RecordBatch:
    """Return a batch with the bands of its documents and paragraphs, as far as the configuration asks for them."""
    if corpus.near_duplicates is not None:
        batch = batch.append_column(BANDS, bands_of(compared(batch), corpus.near_duplicates))
    if corpus.near_duplicate_paragraphs is not None:
        paragraphs = pc.split_pattern(batch["text"], BETWEEN)
        bands = bands_of(paragraphs.flatten(), corpus.near_duplicate_paragraphs, LEAST)
        batch = batch.append_column(PARAGRAPH_BANDS, pa.ListArray.from_arrays(paragraphs.offsets, bands))
    return batch


def without_near_duplicates(
    documents: Documents, corpus: schema.Corpus, is_aside: IsAside, tally: Tally, scratch: Path | None
) -> Documents:
    """Yield the documents, which `with_bands` has returned, without near copies. `scratch` is for temporary files.

    If paragraphs were taken out, the digests are not true any more: `with_new_digests` must come next.
    """
    if corpus.near_duplicates is not None:
        documents = _in_two_passes(documents, corpus.near_duplicates, BANDS, is_aside, tally, scratch)
    if corpus.near_duplicate_paragraphs is not None:
        threshold = corpus.near_duplicate_paragraphs
        documents = _in_two_passes(documents, threshold, PARAGRAPH_BANDS, is_aside, tally, scratch)
    return documents


def _in_two_passes(
    documents: Documents, threshold: float, column: str, is_aside: IsAside, tally: Tally, scratch: Path | None
) -> Documents:
    """Drop near copies of what the bands in `column` belong to."""
    drop = _without_copies if column == BANDS else _without_copied_paragraphs
    with contextlib.ExitStack() as files:
        near = NearCopies(threshold, scratch, files)
        spool = Spool(files.enter_context(tempfile.TemporaryFile(dir=scratch)))
        held_out = count = 0
        for held, batch in documents:
            near.add(batch[column] if column == BANDS else batch[column].flatten())
            spool.write(batch.drop_columns([column]))
            held_out += held
            count += batch.num_rows
        log.info("looking for near copies among %s", plural(count, "document"))
        near.group()
        bar, done = files.enter_context(contextlib.closing(Bar(count))), 0
        for i, batch in enumerate(spool.read()):
            done += batch.num_rows
            bar.show(done, f"near copies: {done:,}/{count:,} documents")
            if i < held_out:
                text = compared(batch) if column == BANDS else pc.split_pattern(batch["text"], BETWEEN).flatten()
                near.judge(text, np.full(len(text), HELD_OUT), all_stay=True)
                yield True, batch
            else:
                yield False, drop(batch, near, np.where(is_aside(batch), ASIDE, TRAINING), tally)


def _without_copies(batch: pa.RecordBatch, near: NearCopies, marks: np.ndarray, tally: Tally) -> pa.RecordBatch:
    """Drop documents that are near copies."""
    copies = near.judge(compared(batch), marks)
    if not copies:
        return batch
    of_validation = {i for i, copy in copies.items() if copy.mark == HELD_OUT}
    tally.across_splits += sum(bool(copy.mark != marks[i]) for i, copy in copies.items() if i not in of_validation)
    notes = [_note(copies[i]) if i in copies else "" for i in range(batch.num_rows)]
    rows = np.arange(batch.num_rows)
    stays = ~np.isin(rows, list(of_validation))
    batch = keep(batch, stays, "near_validation", tally, notes)
    is_copy = np.isin(rows, list(copies))[stays]
    return keep(batch, ~is_copy, "near_duplicate", tally, [notes[i] for i in np.flatnonzero(stays)])


def _note(copy: Copy) -> str:
    """Return what the manifest says of a near copy."""
    return f"{copy.similarity:.2f} of: {copy.beginning}"


def _without_copied_paragraphs(
    batch: pa.RecordBatch, near: NearCopies, marks: np.ndarray, tally: Tally
) -> pa.RecordBatch:
    """Take paragraphs that are near copies out of their documents; drop a document if nothing is left."""
    paragraphs = pc.split_pattern(batch["text"], BETWEEN)
    text, offsets = paragraphs.flatten(), paragraphs.offsets.to_numpy()
    copies = near.judge(text, np.repeat(marks, np.diff(offsets)))
    if not copies:
        return batch
    stays = np.ones(len(text), bool)
    stays[list(copies)] = False
    for i, copy in copies.items():
        tally.examples.add("near_paragraph", text[i].as_py(), note=_note(copy))
    tally.lines["near_paragraph"] += len(copies)
    batch = with_text(batch, joined(paragraphs, stays, BETWEEN))
    is_empty = is_blank(batch["text"]).to_numpy(zero_copy_only=False)
    changed = np.isin(np.arange(batch.num_rows), pc.list_parent_indices(paragraphs).to_numpy()[~stays])
    tally.changed["near_paragraph"] += int((changed & ~is_empty).sum())
    return keep(batch, ~is_empty, "near_paragraph", tally)


def with_new_digests(
    documents: Iterable[pa.RecordBatch], corpus: schema.Corpus, tally: Tally
) -> Iterator[pa.RecordBatch]:
    """Yield documents that may have lost paragraphs with the digests of what is left, unless that is too short."""
    for batch in documents:
        batch = long_enough(batch.drop_columns([DIGEST.name]), corpus, tally)
        yield with_digests(batch, digests_of(batch))
