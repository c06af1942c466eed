"""Measure a batch of documents: what to add up, and which documents to show, in a worker process.

Languages are those of py3langid, whose model is inside its package (139 languages, ISO 639-1 codes where there are
any). It is for a first look: it takes languages that it does not know for others. Places that look like text read in a
wrong encoding (`cafÃ©`) are those that ftfy finds.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import functools
import pickle
import re
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelmill.corpus.boilerplate import different_lines, lines_of
from babelmill.corpus.digests import keys_of
from babelmill.corpus.near_copies import bands_of
from babelmill.survey.characters import ODD, SCRIPTS, Counted, count
from babelmill.survey.findings import SHOWN, Findings

EXCERPT = 400  # characters of a document that is shown
BEFORE = 100  # of these, characters before the place that is odd
READ = 2000  # characters of a document from which its language is judged
ENCODED = 1 << 20  # characters of a document in which places of a wrong encoding are looked for
FEWEST = 20  # letters; in shorter texts, a language cannot be told
NEAR = 0.8  # the least similarity of near copies (`corpus/near_copies.py`)
COMPARED = 1 << 20  # characters of a document that are compared: the memory that this takes is ten times the text
UNKNOWN = "too short"
NONE = "(none)"  # what a document has that has no category, source or licence
GROUPS = ("category", "data-source", "license")
LANGUAGE = "language "  # before the code, the kind of the documents to show of a language


def view(batch: pa.RecordBatch, share: float) -> pa.RecordBatch:
    """Return the findings of a batch of documents with digests, pickled, as the only cell of a batch.

    `share`: of how many documents the language and encoding are judged, which takes most of the time.
    """
    found = pickle.dumps(findings_of(batch, share))
    return pa.RecordBatch.from_arrays([pa.array([found], pa.large_binary())], names=["findings"])


def findings_of(batch: pa.RecordBatch, share: float = 1.0) -> Findings:
    """Return what is found in documents."""
    texts: list[str] = batch["text"].to_pylist()
    counted, digests = count(texts), keys_of(batch)
    sizes = pc.binary_length(batch["text"]).to_numpy(zero_copy_only=False).astype(np.int64)
    keys = digests[:, 0] ^ digests[:, 1]  # either half alone decides on splits or samples
    found = Findings(
        documents=len(texts),
        bytes=int(sizes.sum()),
        characters=int(counted.characters.sum()),
        words=int(counted.words.sum()),
        lengths=Counter(counted.characters.tolist()),
        lengths_in_words=Counter(counted.words.tolist()),
        keys=digests[:, 0].copy(),
        bands=bands_of(beginnings(batch["text"]), NEAR),
    )
    scores = _scripts(counted, found) | _odd(counted, found) | _repeated(batch["text"], found)
    in_sample = keys <= np.uint64(min(share * 2**64, 2**64 - 1))
    judged = np.flatnonzero(in_sample | (counted.characters > ENCODED)).tolist()  # long ones are few, and judged fast
    languages, broken = _judged(texts, judged, counted, sizes, found)
    scores |= {
        "longest": counted.characters,
        "shortest": -counted.characters,
        "longest_word": counted.longest,
        "mojibake": broken * 1000 / np.maximum(counted.characters, 1),
    }
    for name in GROUPS:
        values = batch[name].to_pylist()
        if batch[name].null_count < len(values):
            documents, of_size = Counter(values), Counter()
            for value, size in zip(values, sizes.tolist(), strict=True):
                of_size[value] += size
            for value, number in documents.items():
                found.add_to_group(name, value or NONE, number, of_size[value])
    entry = functools.partial(_entry, texts, counted, languages)
    for kind, values in scores.items():
        first = np.lexsort((keys, -values))[: 2 * SHOWN].tolist()  # copies are shown once
        shown = [row for row in first if values[row] > 0 or kind == "shortest"]
        found.show(kind, [(-float(values[row]), int(keys[row]), entry(row, kind, float(values[row]))) for row in shown])
    found.show("random", [(0.0, int(keys[row]), entry(row)) for row in np.argsort(keys, kind="stable")[: 2 * SHOWN]])
    for code, rows in _by_language(languages, keys).items():
        found.show(LANGUAGE + code, [(0.0, int(keys[row]), entry(row)) for row in rows])
    return found


def beginnings(text: pa.StringArray) -> pa.StringArray:
    """Return the parts of texts that are compared to find near copies."""
    is_long = (pc.max(pc.binary_length(text)).as_py() or 0) > COMPARED
    return pc.utf8_slice_codeunits(text, 0, COMPARED) if is_long else text


def _scripts(counted: Counted, found: Findings) -> dict[str, np.ndarray]:
    """Count scripts. Return, for each document, the share of letters outside its main script, and of other signs."""
    for script in np.flatnonzero(counted.letters.sum(0)):
        found.letters[SCRIPTS[script]] = int(counted.letters[:, script].sum())
    letters = _with_japanese(counted.letters)
    total, main = letters.sum(1), letters.argmax(1)
    for script, documents in Counter(main[total > 0].tolist()).items():
        found.scripts[(*SCRIPTS, "Jpan")[script]] = documents
    if without := int((total == 0).sum()):
        found.scripts[""] = without
    return {
        "mixed_scripts": 1 - letters.max(1) / np.maximum(total, 1) * (total > 0) - (total == 0),
        "few_letters": 1 - total / np.maximum(counted.characters, 1),
    }


def _with_japanese(letters: np.ndarray) -> np.ndarray:
    """Return letters by script [documents, scripts + 1], with Japanese as one script, the last, not as three.

    A text is Japanese if it has a kana for ten Chinese characters.
    """
    parts = [SCRIPTS.index(name) for name in ("Hira", "Kana", "Hani")]
    has_kana = 10 * letters[:, parts[:2]].sum(1) > letters[:, parts[2]]
    japanese = np.where(has_kana, letters[:, parts].sum(1), 0)
    others = letters.copy()
    others[np.ix_(has_kana, parts)] = 0
    return np.column_stack((others, japanese))


def _odd(counted: Counted, found: Findings) -> dict[str, np.ndarray]:
    """Count odd characters. Return their share in each document."""
    for i, kind in enumerate(ODD):
        if characters := int(counted.odd[:, i].sum()):
            found.odd[kind] = characters
            found.odd_documents[kind] = int((counted.odd[:, i] > 0).sum())
    of_document = counted.odd.sum(1)
    if documents := int((of_document > 0).sum()):
        found.odd_documents["any"] = documents
    return {"odd_characters": of_document / np.maximum(counted.characters, 1)}


def _repeated(text: pa.StringArray, found: Findings) -> dict[str, np.ndarray]:
    """Count lines. Return, for each document, the share of its lines that stand in it before, in characters."""
    lines, keys, documents = lines_of(text)
    sizes = pc.utf8_length(lines).to_numpy(zero_copy_only=False)
    filled = sizes > 0
    keys, documents, sizes = keys[filled], documents[filled], sizes[filled]
    pairs = np.lexsort((keys, documents))
    again = np.zeros(len(keys), bool)
    again[1:] = (keys[pairs][1:] == keys[pairs][:-1]) & (documents[pairs][1:] == documents[pairs][:-1])
    found.lines, found.repeated_lines = len(keys), int(again.sum())
    found.line_keys = different_lines(keys, documents)[0]
    count = len(text)
    repeated = np.bincount(documents[pairs][again], sizes[pairs][again], count)
    return {"repeated_lines": repeated / np.maximum(np.bincount(documents, sizes, count), 1)}


def _judged(
    texts: list[str], rows: list[int], counted: Counted, sizes: np.ndarray, found: Findings
) -> tuple[list[str], np.ndarray]:
    """Judge the documents at `rows`. Return the language of each document ("" where it is not judged).

    The second result is the number of places in each document that look like text read in a wrong encoding.
    """
    from ftfy.badness import badness

    languages, broken = [""] * len(texts), np.zeros(len(texts), np.int64)
    letters = counted.letters.sum(1)
    for row in rows:
        text = texts[row]
        languages[row] = language_of(text) if letters[row] >= FEWEST else UNKNOWN
        found.languages[languages[row]] += 1
        found.language_bytes[languages[row]] += int(sizes[row])
        if not text.isascii():
            broken[row] = badness(text[:ENCODED])
    found.judged, found.mojibake, found.mojibake_documents = len(rows), int(broken.sum()), int((broken > 0).sum())
    return languages, broken


@functools.cache
def _model() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)


def knows(language: str) -> bool:
    """Return whether the model knows a language."""
    return language in _model().labels


def language_of(text: str) -> str:
    """Return the language of a text by py3langid. Of a long text, four parts are read."""
    if len(text) > READ:
        part, step = READ // 4, (len(text) - READ // 4) // 3
        text = "\n".join(text[start : start + part] for start in range(0, 3 * step + 1, step))
    return _model().classify(text)[0]


def _by_language(languages: list[str], keys: np.ndarray) -> dict[str, list[int]]:
    """Return, for each language, the documents with the smallest keys."""
    found: dict[str, list[int]] = {}
    for row in np.argsort(keys, kind="stable").tolist():
        if languages[row] and len(of_language := found.setdefault(languages[row], [])) < 2 * SHOWN:
            of_language.append(row)
    return found


def _entry(
    texts: list[str], counted: Counted, languages: list[str], row: int, kind: str = "", value: float = 0.0
) -> dict[str, Any]:
    """Return what is shown of a document: an excerpt around the place that is odd, its length and its language."""
    text, start = texts[row], 0
    if kind == "longest_word":
        start = int(counted.longest_at[row])
    elif kind == "odd_characters":
        start = _first_odd(text) - BEFORE
    elif kind == "mojibake":
        start = _first_broken(text) - BEFORE
    start = max(0, min(start, len(text) - EXCERPT))
    about = {"text": text[start : start + EXCERPT], "start": start, "characters": len(text), "language": languages[row]}
    return about | ({"value": round(value, 6)} if kind else {})


def _first_odd(text: str) -> int:
    """Return the place of the first odd character."""
    found = re.search("[\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]", text)
    return found.start() if found else 0


def _first_broken(text: str) -> int:
    """Return the first place that looks like text read in a wrong encoding."""
    from ftfy.badness import BADNESS_RE

    found = BADNESS_RE.search(text[:ENCODED])
    return found.start() if found else 0
