"""Clean and filter documents, in whole record batches.

These functions change a text only if the configuration asks for it. The order is: category, repair (which needs the
control characters that broken text has), control characters, normalisation (it comes after the removal of characters,
since their neighbours may then combine), cleaners, language, length, test sentences.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelmill.config import schema
from babelmill.corpus.budget import Budget
from babelmill.corpus.cleaners import STEPS, steps_of
from babelmill.corpus.decontamination import Decontamination
from babelmill.corpus.identification import Identification, other_languages
from babelmill.corpus.near_copies import BANDS, bands_of, compared
from babelmill.corpus.record_batches import LABELS, PROMPT, keys_of, sides_of, sizes_of, texts_of
from babelmill.corpus.tally import Reason, Tally
from babelmill.suites.sought import whole_texts
from babelmill.tokens.clean_text import CONTROL

NOT_ASCII_CONTROL = bytes(byte for byte in range(256) if not re.match(CONTROL, chr(byte)) or byte > 127)
SUSPICIOUS = {"nul_characters": "\0", "byte_order_marks": "\ufeff"}
# What ftfy would also change, although nothing is broken there. (Normalisation and control characters have own keys.)
REPAIR: dict[str, Any] = {
    "fix_latin_ligatures": False,
    "fix_character_width": False,
    "uncurl_quotes": False,
    "fix_line_breaks": False,
    "remove_control_chars": False,
    "normalization": None,
}
LATIN_1_CONTROL = re.compile(rb"\xc2[\x80-\x84\x86-\x9f]")  # in UTF-8


@dataclasses.dataclass(frozen=True)
class Steps:
    """Says what is done with each document."""

    corpus: schema.Corpus  # the section `corpus` of the configuration
    identification: Identification | None = None  # the language to keep
    decontamination: Decontamination | None = None  # the test sentences that no document may hold
    budget: Budget | None = None


def prepared(batch: pa.RecordBatch, steps: Steps) -> tuple[pa.RecordBatch, Tally]:
    """Return the clean documents of a batch with the numbers that decide on them (`spool.py`), and their counts."""
    corpus, tally = steps.corpus, Tally()
    batch = clean(batch, corpus, tally, steps.identification, steps.decontamination)
    words = [[len(text.split()) for text in column.to_pylist()] for column in texts_of(batch).values()]
    numbers = {"bytes": sizes_of(batch), "words": np.sum(np.array(words, np.int64), 0)}
    numbers |= zip(("key0", "key1"), keys_of(batch).T, strict=True)
    if {PROMPT, LABELS} & {*batch.schema.names}:
        numbers |= zip(("side0", "side1"), sides_of(batch).T, strict=True)
    if steps.budget:
        numbers["weight"] = steps.budget.sizes(batch)
    if corpus.near_duplicates is not None:
        numbers |= zip(BANDS, bands_of(compared(batch), corpus.near_duplicates).T, strict=True)
    arrays = [pa.array(np.ascontiguousarray(column)) for column in numbers.values()]
    return pa.RecordBatch.from_arrays([*batch.columns, *arrays], names=[*batch.schema.names, *numbers]), tally


def clean(
    batch: pa.RecordBatch,
    corpus: schema.Corpus,
    tally: Tally,
    identification: Identification | None = None,
    decontamination: Decontamination | None = None,
) -> pa.RecordBatch:
    """Clean and filter a batch as the section `corpus` of the configuration says. A missing prompt becomes "".

    Documents that are not in the language of `identification` are dropped, and those that hold a test sentence of
    `decontamination`.
    """
    if corpus.categories:
        found = batch["category"].to_pylist()
        tally.categories.update(set(found) - {None})
        batch = keep(
            batch, np.array([is_used(each, corpus.categories) for each in found], bool), "other_category", tally
        )
    batch = keep(batch, pc.is_valid(batch["text"]), "empty", tally)
    for name, found in texts_of(batch).items():
        text = _cleaned(found if name == "text" else pc.fill_null(found, ""), corpus, tally)
        if text is not found:
            batch = with_text(batch, text, name)
    if corpus.cleaners != "none":
        batch = with_text(batch, _clean_by_category(batch, corpus.cleaners, tally))
    if identification is not None:
        notes = other_languages(batch["text"], identification, tally)
        batch = keep(batch, np.array([not note for note in notes], bool), "other_language", tally, notes)
    batch = long_enough(batch, corpus, tally)
    if decontamination is not None:
        notes = _held_items(batch, decontamination, tally)
        batch = keep(batch, np.array([not note for note in notes], bool), "test_text", tally, notes)
    count_suspicious(batch, tally)
    return batch


def long_enough(batch: pa.RecordBatch, corpus: schema.Corpus, tally: Tally) -> pa.RecordBatch:
    """Return the documents that are not empty and not shorter than the section `corpus` asks."""
    length = pc.utf8_length(pc.utf8_trim_whitespace(batch["text"]))
    not_empty = pc.greater(length, 0)
    batch = keep(batch, not_empty, "empty", tally)
    batch = keep(batch, pc.greater_equal(length.filter(not_empty), corpus.min_characters), "short", tally)
    if corpus.min_words:
        words = pc.list_value_length(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(batch["text"])))
        batch = keep(batch, pc.greater_equal(words, corpus.min_words), "short", tally)
    return batch


def is_of(category: str | None, name: str) -> bool:
    """Return whether a category is the one that an entry of `corpus.categories` names; `-name` is a pattern."""
    return fnmatchcase(category or "", name[1:]) if name.startswith("-") else category == name


def is_used(category: str | None, names: list[str]) -> bool:
    """Return whether `corpus.categories` selects the documents of a category. Names with `-` leave categories out."""
    left_out = [name for name in names if name.startswith("-")]
    selected = [name for name in names if name not in left_out]
    return not any(is_of(category, name) for name in left_out) and (not selected or category in selected)


def with_text(batch: pa.RecordBatch, text: pa.StringArray, name: str = "text") -> pa.RecordBatch:
    """Return a batch with another column of text."""
    return batch.set_column(batch.schema.get_field_index(name), name, text)


def count_suspicious(batch: pa.RecordBatch, tally: Tally) -> None:
    """Count the documents of a batch that contain characters which nobody sees, and which stay."""
    for kind, character in SUSPICIOUS.items():
        found = [pc.match_substring(text, character) for text in texts_of(batch).values()]
        if count := functools.reduce(pc.or_, found).true_count:
            tally.contains[kind] += count


def _cleaned(text: pa.StringArray, corpus: schema.Corpus, tally: Tally) -> pa.StringArray:
    """Return the texts cleaned as the section `corpus` says, or `text` itself if nothing changes."""
    if corpus.repair == "ftfy":
        text = _changed(text, pa.array(map(repaired, text.to_pylist()), pa.string()), "repair", tally, examples=True)
    if corpus.control_characters == "remove" and may_have_control_characters(text):
        text = _changed(text, pc.replace_substring_regex(text, CONTROL, ""), "control_characters", tally)
    if corpus.normalization != "none" and not pc.all(pc.string_is_ascii(text)).as_py():
        # Python's function returns normal text at once: three times faster than pc.utf8_normalize.
        texts = text.to_pylist()
        normal = [unicodedata.normalize(corpus.normalization, document) for document in texts]
        if normal != texts:
            text = _changed(text, pa.array(normal, pa.string()), "normalized", tally)
    return text


def repaired(text: str) -> str:
    """Return a text whose characters are as they were before a program read it in a wrong encoding.

    The library ftfy finds such places by sequences of characters that no language has. What is only unusual stays:
    curly quotes, wide signs of Chinese and Japanese, ligatures, line ends.
    """
    if text.isascii() and "&" not in text and "\x1b" not in text:
        return text
    # Line by line, since ftfy leaves the entities of all lines after the first `<` alone.
    fix = _repair()
    return "\n".join([fix(line) for line in text.split("\n")])


@functools.cache
def _repair() -> Callable[[str], str]:
    """Return what repairs a line."""
    import ftfy  # only here, since few corpora need it

    return functools.partial(ftfy.fix_text, config=ftfy.TextFixerConfig(**REPAIR, explain=False))


def _clean_by_category(batch: pa.RecordBatch, cleaners: str, tally: Tally) -> pa.StringArray:
    """Return the texts after the cleaners of their categories."""
    cleaned = []
    for text, steps in zip(batch["text"].to_pylist(), steps_of(cleaners, batch["category"].to_pylist()), strict=True):
        for step in steps:
            after = STEPS[step](text)
            if after != text:
                tally.changed[step] += 1
                tally.examples.change(step, text, after)
            text = after
        cleaned.append(text)
    return pa.array(cleaned, pa.string())


def _held_items(batch: pa.RecordBatch, asked: Decontamination, tally: Tally) -> list[str]:
    """Return what each document holds of test items: the suites and the words; "" if nothing."""
    notes: list[str] = []
    for text, size in zip(whole_texts(batch).to_pylist(), sizes_of(batch).tolist(), strict=True):
        suites, words = asked.found_in(text)
        notes.append(f"{', '.join(suites)}: {words}" if suites else "")
        tally.suites.update(suites)
        tally.with_items += size if suites else 0
    return notes


def raw_of(text: pa.StringArray) -> bytes:
    """Return the bytes of texts one after another. For a slice they are also those of its neighbours."""
    _, _, data = text.buffers()
    return bytes(data) if data is not None else b""


def may_have_control_characters(text: pa.StringArray) -> bool:
    """Return False if no text has a control character. (This is four times as fast as a regular expression.)"""
    raw = raw_of(text)
    return bool(raw.translate(None, NOT_ASCII_CONTROL)) or LATIN_1_CONTROL.search(raw) is not None


def keep(
    batch: pa.RecordBatch,
    mask: pa.BooleanArray | np.ndarray,
    reason: Reason,
    tally: Tally,
    notes: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Return the rows where `mask` (bool [rows]) is true, and count the others under `reason`.

    With `notes`, one per row, the texts that are dropped become examples, each with its note.
    """
    mask = pa.array(mask) if isinstance(mask, np.ndarray) else mask
    kept = mask.true_count
    if kept == batch.num_rows:
        return batch
    tally.dropped[reason] += batch.num_rows - kept
    if notes is not None:
        for row in np.flatnonzero(~pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).tolist():
            tally.examples.add(reason, batch["text"][row].as_py() or "", note=notes[row])
    return batch.filter(mask)


def _changed(
    before: pa.StringArray, after: pa.StringArray, kind: str, tally: Tally, examples: bool = False
) -> pa.StringArray:
    """Count the documents that changed. Return `after`, or `before` itself if none changed."""
    differs = pc.not_equal(before, after)
    changed = pc.sum(differs).as_py() or 0
    if not changed:
        return before
    tally.changed[kind] += changed
    if examples:
        for old, new in zip(before.filter(differs).to_pylist(), after.filter(differs).to_pylist(), strict=True):
            tally.examples.change(kind, old, new)
    return after
