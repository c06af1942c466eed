"""Clean and filter documents, in whole record batches.

These functions change a text only if the configuration asks for it. The order is: category, control characters,
normalisation (it comes after the removal of characters, since their neighbours may then combine), length.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import re
import unicodedata

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelmill.config import schema
from babelmill.corpus.record_batches import texts_of
from babelmill.corpus.tally import Reason, Tally
from babelmill.tokens.clean_text import CONTROL

NOT_ASCII_CONTROL = bytes(byte for byte in range(256) if not re.match(CONTROL, chr(byte)) or byte > 127)
SUSPICIOUS = {"nul_characters": "\0", "byte_order_marks": "\ufeff"}
LATIN_1_CONTROL = re.compile(rb"\xc2[\x80-\x84\x86-\x9f]")  # in UTF-8


def clean(batch: pa.RecordBatch, corpus: schema.Corpus, tally: Tally) -> pa.RecordBatch:
    """Clean and filter a batch as the section `corpus` of the configuration says. A missing prompt becomes ""."""
    if corpus.categories:
        found = batch["category"]
        tally.categories.update(found.unique().drop_null().to_pylist())
        batch = keep(batch, pc.is_in(found, pa.array(corpus.categories)), "other_category", tally)
    batch = keep(batch, pc.is_valid(batch["text"]), "empty", tally)
    for name, found in texts_of(batch).items():
        text = _cleaned(found if name == "text" else pc.fill_null(found, ""), corpus, tally)
        if text is not found:
            batch = batch.set_column(batch.schema.get_field_index(name), name, text)
    length = pc.utf8_length(pc.utf8_trim_whitespace(batch["text"]))
    not_empty = pc.greater(length, 0)
    batch = keep(batch, not_empty, "empty", tally)
    long_enough = pc.greater_equal(length.filter(not_empty), corpus.min_characters)
    batch = keep(batch, long_enough, "short", tally)
    if corpus.min_words:
        words = pc.list_value_length(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(batch["text"])))
        batch = keep(batch, pc.greater_equal(words, corpus.min_words), "short", tally)
    count_suspicious(batch, tally)
    return batch


def count_suspicious(batch: pa.RecordBatch, tally: Tally) -> None:
    """Count the documents of a batch that contain characters which nobody sees, and which stay."""
    raw = [raw_of(text) for text in texts_of(batch).values()]
    for kind, character in SUSPICIOUS.items():
        if not any(character.encode() in each for each in raw):
            continue
        found = [
            pc.match_substring(text, character).to_numpy(zero_copy_only=False) for text in texts_of(batch).values()
        ]
        if count := int(np.any(found, axis=0).sum()):
            tally.contains[kind] += count


def _cleaned(text: pa.StringArray, corpus: schema.Corpus, tally: Tally) -> pa.StringArray:
    """Return the texts cleaned as the section `corpus` says, or `text` itself if nothing changes."""
    if corpus.control_characters == "remove" and may_have_control_characters(text):
        text = _changed(text, pc.replace_substring_regex(text, CONTROL, ""), "control_characters", tally)
    if corpus.normalization != "none" and not pc.all(pc.string_is_ascii(text)).as_py():
        # Python's function returns normal text at once: three times faster than pc.utf8_normalize.
        texts = text.to_pylist()
        normal = [unicodedata.normalize(corpus.normalization, document) for document in texts]
        if normal != texts:
            text = _changed(text, pa.array(normal, pa.string()), "normalized", tally)
    return text


def raw_of(text: pa.StringArray) -> bytes:
    """Return the bytes of texts one after another. For a slice they are also those of its neighbours."""
    _, _, data = text.buffers()
    return bytes(data) if data is not None else b""


def may_have_control_characters(text: pa.StringArray) -> bool:
    """Return False if no text has a control character. (This is four times as fast as a regular expression.)"""
    raw = raw_of(text)
    return bool(raw.translate(None, NOT_ASCII_CONTROL)) or LATIN_1_CONTROL.search(raw) is not None


def keep(batch: pa.RecordBatch, mask: pa.BooleanArray | np.ndarray, reason: Reason, tally: Tally) -> pa.RecordBatch:
    """Return the rows where `mask` (bool [rows]) is true, and count the others under `reason`."""
    mask = pa.array(mask) if isinstance(mask, np.ndarray) else mask
    kept = mask.true_count
    if kept == batch.num_rows:
        return batch
    tally.dropped[reason] += batch.num_rows - kept
    return batch.filter(mask)


def _changed(before: pa.StringArray, after: pa.StringArray, kind: str, tally: Tally) -> pa.StringArray:
    """Count the documents that changed. Return `after`, or `before` itself if none changed."""
    changed = pc.sum(pc.not_equal(before, after)).as_py() or 0
    if not changed:
        return before
    tally.changed[kind] += changed
    return after
