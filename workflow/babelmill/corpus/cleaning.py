"""Clean and filter documents, in whole record batches.

These functions change a text only if the configuration asks for it. The order is: category, repair (which needs the
control characters that broken text has), control characters, normalisation (it comes after the removal of characters,
since their neighbours may then combine), cleaners, language, length, test sentences.

A suite that stands in the training text makes its scores too good (`corpus.decontaminate`): `suites/sought.py` says
what counts as standing there. The whole document goes, since what is around a test sentence often belongs to it.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import bisect
import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from babelmill.config import schema
from babelmill.core import manifest
from babelmill.core.words import words_in
from babelmill.corpus.choosing import Budget
from babelmill.corpus.cleaners import STEPS, steps_of
from babelmill.corpus.identification import Identification, other_languages
from babelmill.corpus.near_copies import BANDS, bands_of, compared
from babelmill.corpus.record_batches import LABELS, PROMPT, keys_of, sides_of, sizes_of, strings, texts_of
from babelmill.corpus.tally import Tally
from babelmill.suites.items import ITEMS
from babelmill.suites.items import texts_of as texts_of_items
from babelmill.suites.sought import Sought, sought, whole_texts
from babelmill.tables.rows import listed
from babelmill.tokens.label_text import CONTROL

NO_CONTROL = bytes(byte for byte in range(256) if byte > 127 or not re.match(CONTROL, chr(byte)))
LATIN_1_CONTROL = re.compile(rb"\xc2[\x80-\x84\x86-\x9f]")
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


@dataclasses.dataclass(frozen=True, eq=False)
class Decontamination:
    """Holds what no document may hold."""

    asked: Sought  # the texts of all items
    suites: list[str]  # the names of the suites
    ends: list[int]  # how many items there are up to the end of each suite

    def suites_of(self, sequences: list[int]) -> tuple[list[str], str]:
        """Return the suites of the items that have one of these sequences, sorted, and the words of the first one."""
        items = self.asked.items_of(sequences)
        places = {bisect.bisect(self.ends, item) for item in items}
        return sorted(self.suites[i] for i in places), next(iter(items.values()), "")


def decontamination(folders: list[Path]) -> Decontamination:
    """Return what no document may hold; `folders`: results of the stage `suite`."""
    texts, ends, suites = [], [], []
    for folder in folders:
        suites.append(manifest.verify(folder, ITEMS)["settings"]["suite"])
        texts += texts_of_items(pq.ParquetFile(folder / ITEMS).read(["prompts", "options"]))
        ends.append(len(texts))
    return Decontamination(sought(texts), suites, ends)


@dataclasses.dataclass(frozen=True)
class Steps:
    """Says what is done with each document."""

    corpus: schema.Corpus  # the section `corpus` of the configuration
    identification: Identification | None = None  # the language to keep
    decontamination: Decontamination | None = None  # the test sentences that no document may hold
    budget: Budget | None = None


def prepared(batch: pa.RecordBatch, steps: Steps) -> tuple[pa.RecordBatch, Tally]:
    """Return the clean documents of a batch with the numbers that decide on them (see `Spool`), and their counts."""
    corpus, tally = steps.corpus, Tally()
    batch = clean(batch, steps, tally)
    words = [[*map(words_in, listed(column))] for column in texts_of(batch).values()]
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


def clean(batch: pa.RecordBatch, steps: Steps, tally: Tally) -> pa.RecordBatch:
    """Clean and filter a batch. A missing prompt becomes ""."""
    corpus = steps.corpus
    if corpus.categories:
        found = batch["category"].to_pylist()
        tally.categories.update(set(found) - {None})
        batch = keep(batch, [is_used(each, corpus.categories) for each in found], "other_category", tally)
    batch = keep(batch, pc.is_valid(batch["text"]), "empty", tally)
    for name, found in texts_of(batch).items():
        of_all = [*steps_of_all(corpus, found)]
        if not of_all and corpus.cleaners == "none" and not found.null_count:
            continue
        texts = before = listed(pc.fill_null(found, ""))
        for kind, step in of_all:
            texts = _changed(kind, texts, [*map(step, texts)], tally)
        if name == "text" and corpus.cleaners != "none":
            its_steps = [steps_of(corpus.cleaners, category) for category in batch["category"].to_pylist()]
            for kind, step in STEPS.items():
                after = [step(text) if kind in its else text for text, its in zip(texts, its_steps, strict=True)]
                texts = _changed(kind, texts, after, tally)
        if found.null_count or texts != before:  # equal texts are the same objects, so this takes no time
            batch = batch.set_column(batch.schema.get_field_index(name), name, strings(texts))
    if steps.identification is not None:
        notes = other_languages(batch["text"], steps.identification, tally)
        batch = keep(batch, [not note for note in notes], "other_language", tally, notes)
    batch = long_enough(batch, corpus, tally)
    if steps.decontamination is not None:
        notes = _held_items(batch, steps.decontamination, tally)
        batch = keep(batch, [not note for note in notes], "test_text", tally, notes)
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


def count_suspicious(batch: pa.RecordBatch, tally: Tally) -> None:
    """Count the documents of a batch that contain characters which nobody sees, and which stay."""
    texts = texts_of(batch).values()
    for kind, character in SUSPICIOUS.items():
        if any(character.encode() in raw_of(text) for text in texts):  # seldom
            found = [pc.match_substring(text, character) for text in texts]
            tally.contains[kind] += functools.reduce(pc.or_, found).true_count


def steps_of_all(corpus: schema.Corpus, text: pa.StringArray) -> Iterator[tuple[str, Callable[[str], str]]]:
    """Yield what is done with these texts, whatever their categories: its kind (`tally.CHANGED`), and a function."""
    if corpus.repair == "ftfy":
        yield "repair", repaired
    if corpus.control_characters == "remove" and (corpus.repair == "ftfy" or has_control_characters(text)):
        yield "control_characters", functools.partial(re.compile(CONTROL).sub, "")
    if corpus.normalization != "none":
        yield "normalized", functools.partial(unicodedata.normalize, corpus.normalization)


def raw_of(text: pa.StringArray) -> bytes:
    """Return the bytes of texts one after another. For a slice they are also those of its neighbours."""
    return bytes(text.buffers()[2] or b"")


def has_control_characters(text: pa.StringArray) -> bool:
    """Return whether texts have control characters. This takes a tenth of the time of a regular expression."""
    raw = raw_of(text)
    return bool(raw.translate(None, NO_CONTROL) or LATIN_1_CONTROL.search(raw))


def _changed(kind: str, before: list[str], after: list[str], tally: Tally) -> list[str]:
    """Count the texts that a step of this kind changed, and return all."""
    for old, new in zip(before, after, strict=True):
        if new is not old and new != old:
            tally.changed[kind] += 1
            if kind not in ("control_characters", "normalized"):
                tally.example_of_change(kind, old, new)
    return after


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


def _held_items(batch: pa.RecordBatch, asked: Decontamination, tally: Tally) -> list[str]:
    """Return what each document holds of test items: the suites and the words; "" if nothing."""
    notes: list[str] = []
    found = asked.asked.found_in(whole_texts(batch).to_pylist())
    for sequences, size in zip(found, sizes_of(batch).tolist(), strict=True):
        suites, words = asked.suites_of(sequences)
        notes.append(f"{', '.join(suites)}: {words}" if suites else "")
        tally.suites.update(suites)
        tally.with_items += size if suites else 0
    return notes


def keep(
    batch: pa.RecordBatch, mask: pa.BooleanArray | list[bool], reason: str, tally: Tally, notes: Sequence[str] = ()
) -> pa.RecordBatch:
    """Return the rows where `mask` is true, and count the others under `reason`.

    With `notes`, one per row, the texts that are dropped become examples, each with its note.
    """
    mask = pa.array(mask, pa.bool_()) if isinstance(mask, list) else mask
    if dropped := batch.num_rows - mask.true_count:
        tally.dropped[reason] += dropped
        for note, stays, text in zip(notes, mask, batch["text"], strict=False):
            if not stays.as_py():
                tally.example(reason, text.as_py() or "", note=note)
    return batch.filter(mask) if dropped else batch
