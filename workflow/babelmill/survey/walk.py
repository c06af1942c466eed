"""Read the text of a language and add up what is found in it. Memory does not grow with the text."""

import contextlib
import dataclasses
import functools
import heapq
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from babelmill.corpus.__main__ import Inputs, all_documents
from babelmill.corpus.boilerplate import lines_of
from babelmill.corpus.counts import Counts
from babelmill.corpus.digests import keys_of
from babelmill.corpus.near_copies import NearCopies
from babelmill.corpus.pieces import text_size
from babelmill.corpus.reading import Reading
from babelmill.corpus.tally import Tally
from babelmill.corpus.workers import read_all
from babelmill.survey.findings import SHOWN, Findings, quantile
from babelmill.survey.measures import EXCERPT, LANGUAGE, NEAR, beginnings, view

JUDGED = 256 << 20  # bytes of text at most in which languages and encodings are judged: a minute on four cores
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
STEPS = 10 ** np.arange(0, 10.01, 0.1)  # borders of the lengths in a picture, characters
LONGEST_LINE = 400  # characters of a line that is shown


def survey(sources: Inputs, reading: Reading, threads: int, scratch: Path | None = None) -> dict[str, Any]:
    """Return what is found in a text, as JSON holds it; files for validation are read, too."""
    files = [*sources.train, *sources.validation]
    size = sum(map(text_size, files))
    looking = dataclasses.replace(reading, view=functools.partial(view, share=min(1.0, JUDGED / max(1, size))))
    found, tally = Findings(), Tally("skip")
    with Counts(scratch) as lines, Counts(scratch) as copies, contextlib.ExitStack() as opened:
        near = NearCopies(NEAR, scratch, opened)
        for _, batch in _of_both_splits(sources, looking, tally, threads):
            part: Findings = pickle.loads(batch["findings"][0].as_py())
            lines.add(part.line_keys)
            copies.add(part.keys)
            assert part.bands is not None, "the view finds them"
            near.add(part.bands)
            found.merge(part)
        different = sum(len(keys) for keys, _ in copies.parts())
        repeated, frequent = _repeated(lines)
        near_copies = _near_copies(near, sources, reading, threads)
    texts = _texts_of_lines(sources, reading, frequent, threads)
    return {
        "read": {"files": len(files), "documents": tally.read, "dropped": dict(tally.dropped)},
        "damaged_files": tally.damaged_files,
        "documents": found.documents,
        "bytes": found.bytes,
        "characters": found.characters,
        "words": found.words,
        "lengths": {"characters": _lengths(found.lengths), "words": _lengths(found.lengths_in_words)},
        "histogram": _histogram(found.lengths),
        "letters": dict(found.letters.most_common()),
        "scripts": dict(found.scripts.most_common()),
        "judged": found.judged,
        "languages": {
            code: {"documents": number, "bytes": found.language_bytes[code]}
            for code, number in found.languages.most_common()
        },
        "odd_characters": {
            kind: {"characters": found.odd[kind] if kind != "any" else found.odd.total(), "documents": number}
            for kind, number in found.odd_documents.most_common()
        },
        "mojibake": {"documents": found.mojibake_documents, "places": found.mojibake},
        "copies": found.documents - different,
        "near_copies": near_copies,
        "lines": {"lines": found.lines, "repeated_in_document": found.repeated_lines, **repeated},
        "frequent_lines": [
            {"text": texts.get(key, ""), "documents": number} for key, number in frequent.items() if key in texts
        ],
        "groups": {
            column: {
                value: {"documents": documents, "bytes": of_bytes}
                for value, (documents, of_bytes) in sorted(values.items(), key=lambda each: (-each[1][1], each[0]))
            }
            for column, values in found.groups.items()
        },
        "random": [entry for _, _, entry in found.shown.get("random", [])],
        "oddest": {
            kind: [entry for _, _, entry in entries]
            for kind, entries in sorted(found.shown.items())
            if kind != "random" and not kind.startswith(LANGUAGE)
        },
        "of_language": {
            kind.removeprefix(LANGUAGE): [entry for _, _, entry in entries]
            for kind, entries in sorted(found.shown.items())
            if kind.startswith(LANGUAGE)
        },
    }


def _of_both_splits(
    sources: Inputs, reading: Reading, tally: Tally, threads: int
) -> Iterator[tuple[bool, pa.RecordBatch]]:
    """Yield batches of the training text, then of the validation text, each with whether it is for validation."""
    for batch in all_documents(sources, reading, tally, threads):
        yield False, batch
    for batch in read_all(sources.validation, reading, tally, threads):
        yield True, batch


def _near_copies(near: NearCopies, sources: Inputs, reading: Reading, threads: int) -> dict[str, Any]:
    """Return how many documents are near copies of earlier ones, and some of them. This reads the text again.

    Exact copies are near copies, too.
    """
    near.group()
    copied = across = 0
    shown = Findings()
    for is_validation, batch in _of_both_splits(sources, reading, Tally("skip"), threads):
        copies = near.judge(beginnings(batch["text"]), np.full(batch.num_rows, int(is_validation)))
        copied += len(copies)
        across += sum(copy.mark != is_validation for copy in copies.values())
        keys = keys_of(batch)[:, 0]
        entries = [
            {"text": batch["text"][i].as_py()[:EXCERPT], "of": copy.beginning, "similarity": round(copy.similarity, 3)}
            for i, copy in copies.items()
            if copy.similarity < 1
        ]
        rows = [i for i, copy in copies.items() if copy.similarity < 1]
        shown.show("near", [(0.0, int(keys[i]), entry) for i, entry in zip(rows, entries, strict=True)])
    examples = [entry for _, _, entry in shown.shown.get("near", [])]
    return {"least": NEAR, "documents": copied, "validation_like_training": across, "examples": examples}


def _lengths(lengths: Counter[int]) -> dict[str, float]:
    """Return the smallest and largest length, the mean and quantiles."""
    mean = sum(length * number for length, number in lengths.items()) / max(1, lengths.total())
    found = {f"{share:.0%}": quantile(lengths, share) for share in QUANTILES}
    return {"least": min(lengths, default=0), **found, "most": max(lengths, default=0), "mean": round(mean, 1)}


def _histogram(lengths: Counter[int]) -> list[dict[str, int]]:
    """Return how many documents have a length from one border to below the next, without empty ends."""
    values, numbers = np.array([*lengths]), np.array([*lengths.values()])
    borders = np.unique(np.ceil(STEPS).astype(np.int64))
    counts, _ = np.histogram(values, borders, weights=numbers)
    filled = np.flatnonzero(counts)
    rows = range(filled[0], filled[-1] + 1) if len(filled) else range(0)
    return [{"from": int(borders[i]), "below": int(borders[i + 1]), "documents": int(counts[i])} for i in rows]


def _repeated(lines: Counts) -> tuple[dict[str, int], dict[int, int]]:
    """Return how many lines stand in several documents, and {digest: documents} of the most frequent ones.

    A line counts once for each document that holds it.
    """
    total = different = shared = 0
    frequent: list[tuple[int, int]] = []
    for keys, counts in lines.parts():
        several = counts > 1
        total, different = total + int(counts.sum()), different + len(keys)
        shared += int(counts[several].sum())
        first = np.lexsort((keys, -counts))[:SHOWN]
        frequent += [(int(-counts[i]), int(keys[i])) for i in first[several[first]]]
    top = {key: -number for number, key in heapq.nsmallest(SHOWN, frequent)}
    return {"in_documents": total, "different": different, "in_several_documents": shared}, top


def _texts_of_lines(sources: Inputs, reading: Reading, frequent: dict[int, int], threads: int) -> dict[int, str]:
    """Return {digest: text} of lines. This reads the text again until all of them are found."""
    found: dict[int, str] = {}
    if not frequent:
        return found
    wanted = np.sort(np.array([*frequent], np.uint64))
    looking = dataclasses.replace(reading, view=functools.partial(lines_with, keys=wanted))
    for _, batch in _of_both_splits(sources, looking, Tally("skip"), threads):
        for key, text in zip(batch["key"].to_pylist(), batch["text"].to_pylist(), strict=True):
            found.setdefault(key, text[:LONGEST_LINE])
        if len(found) == len(wanted):
            break
    return found


def lines_with(batch: pa.RecordBatch, keys: np.ndarray) -> pa.RecordBatch:
    """Return the lines of documents whose digests are `keys` (sorted), each once."""
    lines, found, _ = lines_of(batch["text"])
    rows = np.flatnonzero(np.isin(found, keys))
    _, first = np.unique(found[rows], return_index=True)
    rows = rows[first]
    return pa.RecordBatch.from_arrays([pa.array(found[rows]), lines.take(pa.array(rows))], names=["key", "text"])
