"""Find out which language a text is in, and take out what is in another one (`corpus.language_filter`).

A document stays if the model finds the corpus' language in it with at least the asked probability, and if more than
half of its letters are of the language's script. A short text tells no language, and stays. With `level: line`, the
lines of a document are looked at one by one. A line is often too short to be sure of. So a line goes only if the model
finds another language in it with that probability, or if its letters are of another script.

The models are fastText's (GlotLID, OpenLID, or a file of the user's own) and that of py3langid, which comes with the
package. Which labels of a model are the corpus' language says `config/identifiers.py`.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelmill.core.files import UserError
from babelmill.corpus.record_batches import joined
from babelmill.corpus.tally import Tally

LONGEST = 5000  # characters of a document that the model looks at
ENOUGH = 1000  # characters whose script is looked at
CHARACTERS = 0x40000  # of Unicode, with all letters; the others count as the last of these, which is none
LEAST = 20  # letters; a shorter text tells no language, and stays
DIGITS = 4  # of probabilities; the last ones differ between processors
MAGIC = (793712314).to_bytes(4, "little")  # a model of fastText begins with it
BEST = 3  # labels that are added up: one language may have several, such as the two kinds of Norwegian
UNKNOWN = "no letters"
# What RE2 calls the scripts that a language of this code is written in.
SCRIPTS = {
    "Latn": "Latin",
    "Cyrl": "Cyrillic",
    "Arab": "Arabic",
    "Grek": "Greek",
    "Hebr": "Hebrew",
    "Hani": "Han",
    "Hans": "Han",
    "Hant": "Han",
    "Jpan": "Han Hiragana Katakana",
    "Hang": "Hangul",
    "Kore": "Hangul Han",
    "Deva": "Devanagari",
    "Beng": "Bengali",
    "Guru": "Gurmukhi",
    "Gujr": "Gujarati",
    "Orya": "Oriya",
    "Taml": "Tamil",
    "Telu": "Telugu",
    "Knda": "Kannada",
    "Mlym": "Malayalam",
    "Sinh": "Sinhala",
    "Thai": "Thai",
    "Laoo": "Lao",
    "Tibt": "Tibetan",
    "Mymr": "Myanmar",
    "Khmr": "Khmer",
    "Geor": "Georgian",
    "Armn": "Armenian",
    "Ethi": "Ethiopic",
    "Mong": "Mongolian",
    "Java": "Javanese",
    "Bali": "Balinese",
    "Sund": "Sundanese",
    "Bugi": "Buginese",
    "Tfng": "Tifinagh",
    "Cher": "Cherokee",
    "Cans": "Canadian_Aboriginal",
    "Thaa": "Thaana",
    "Nkoo": "Nko",
}


class FastText:
    """A model of fastText. `cleans`: whether texts are put in the form that OpenLID was trained on."""

    def __init__(self, path: str, cleans: bool) -> None:
        import fasttext  # only here, since few corpora need it

        try:
            with open(path, "rb") as file:
                if file.read(4) != MAGIC:
                    raise ValueError("it begins otherwise")
            self._model: Any = fasttext.load_model(path)
            every, shares = self._model.predict("x", k=-1)
            if not 0.5 < sum(shares) < 1.5:  # not true of NaN either
                raise ValueError(f"the probabilities of a text add up to {sum(shares):.3g}, not to 1")
        except (OSError, ValueError, RuntimeError, MemoryError) as error:
            problem = str(error) or "it ends early"
            raise UserError(f"{path}: no model of fastText that finds labels ({problem}); use another file") from None
        self._cleans = cleans
        self._names = {label: label.removeprefix("__label__") for label in every}
        self.labels = list(self._names.values())

    def find(self, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """Return the most probable labels of each text, with their probabilities. A text is one line."""
        if self._cleans:
            cleaned = pc.replace_substring_regex(pc.utf8_lower(pa.array(texts, pa.string())), r"\s\s+", " ")
            texts = pc.replace_substring_regex(cleaned, r"[^\pL\pM\p{Nl}\p{Pc}\p{Zs}]", "").to_pylist()
        return [self._labels(text) for text in texts]

    def _labels(self, text: str) -> list[tuple[str, float]]:
        labels, shares = self._model.predict(text, k=BEST)
        return [(self._names[label], round(share, DIGITS)) for label, share in zip(labels, shares, strict=True)]


class Py3Langid:
    """The model of py3langid. Its labels are codes of ISO 639-1, or of 639-3 where there is none."""

    def __init__(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self.labels = self._identifier.labels

    def find(self, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """Return the most probable labels of each text, with their probabilities. A text is one line."""
        return [
            [(label, round(float(share), DIGITS)) for label, share in self._identifier.rank(text)[:BEST]]
            if text.strip()
            else []
            for text in texts
        ]


@dataclasses.dataclass(frozen=True)
class Identification:
    """Says which language the documents of a corpus must be in."""

    model: str  # `py3langid`, or the path of a model of fastText
    cleans: bool  # see `FastText`
    labels: frozenset[str]  # the labels that stand for the language
    script: str  # the language's script, as a code of ISO 15924
    at_least: float  # see the top of this file
    level: Literal["document", "line"]  # what is looked at

    @property
    def knows(self) -> bool:
        """Return whether the model knows the language. If not, the script alone decides."""
        return not self.labels.isdisjoint(load(self.model, self.cleans).labels)


@functools.cache
def load(model: str, cleans: bool) -> FastText | Py3Langid:
    """Return a model. Each process reads it once."""
    return Py3Langid() if model == "py3langid" else FastText(model, cleans)


def in_the_language(text: pa.StringArray, asked: Identification, tally: Tally) -> tuple[np.ndarray, list[str]]:
    """Return which documents are in the language, bool [documents], and what was found in each other one.

    `tally` counts the languages of the others.
    """
    looked_at = has_enough_letters(text)
    stays, notes = np.ones(len(text), bool), [""] * len(text)
    found = _found(pc.utf8_slice_codeunits(text.filter(pa.array(looked_at)), 0, LONGEST), asked)
    for row, (label, share, own, fits) in zip(np.flatnonzero(looked_at).tolist(), found, strict=True):
        if not fits or (own is not None and own < asked.at_least):
            stays[row] = False
            notes[row] = f"{label} {share:.2f}"
            tally.languages[label] += 1
    return stays, notes


def has_enough_letters(text: pa.StringArray) -> np.ndarray:
    """Return whether each text has enough letters to tell its language, bool [texts]."""
    (letters,) = _count(pc.utf8_slice_codeunits(text, 0, ENOUGH), _table(r"\pL"))
    enough = letters >= LEAST
    unsure = ~enough & (pc.utf8_length(text).to_numpy(zero_copy_only=False) > ENOUGH)
    if unsure.any():
        letters = pc.replace_substring_regex(text.filter(pa.array(unsure)), r"\PL+", "")
        enough[unsure] = pc.utf8_length(letters).to_numpy(zero_copy_only=False) >= LEAST
    return enough


def without_other_lines(text: pa.StringArray, asked: Identification, tally: Tally) -> pa.StringArray:
    """Return documents without lines in another language, or `text` itself if all stay.

    A document of which nothing is left becomes empty.
    """
    by_document = pc.split_pattern(text, "\n")
    lines = by_document.flatten()
    looked_at = has_enough_letters(lines)
    at = np.flatnonzero(looked_at)
    stays = np.ones(len(lines), bool)
    found = _found(pc.utf8_slice_codeunits(lines.filter(pa.array(looked_at)), 0, LONGEST), asked)
    for row, (label, share, own, fits) in zip(at.tolist(), found, strict=True):
        is_other = own is not None and label not in asked.labels and share >= asked.at_least
        if is_other or not fits:
            stays[row] = False
            tally.languages[label] += 1
            tally.lines["other_language"] += 1
            tally.examples.add("other_language", lines[row].as_py(), note=f"{label} {share:.2f}")
    if stays.all():
        return text
    return joined(by_document, stays, "\n")


def _found(text: pa.StringArray, asked: Identification) -> list[tuple[str, float, float | None, bool]]:
    """Return of each text: the language found, its probability, that of the asked language, whether the script fits.

    The asked language's probability is None if the model does not know the language.
    """
    fits = _of_script(pc.utf8_slice_codeunits(text, 0, ENOUGH), asked.script)
    lines = pc.replace_substring(text, "\n", " ").to_pylist()
    results = []
    knows = asked.knows
    for labels, fit in zip(load(asked.model, asked.cleans).find(lines), fits.tolist(), strict=True):
        own = round(sum(share for label, share in labels if label in asked.labels), DIGITS) if knows else None
        label, share = labels[0] if labels else (UNKNOWN, 0.0)
        if labels and not fit and (own or label.endswith(f"_{asked.script}")):
            label = f"not in {asked.script}"
        results.append((label, share, own, fit))
    return results


def _of_script(text: pa.StringArray, script: str) -> np.ndarray:
    """Return whether more than half of the letters of each text are of a script; bool [texts]."""
    if script not in SCRIPTS:
        return np.ones(len(text), bool)
    letters, of_script = _table(r"\pL"), _table("".join(rf"\p{{{name}}}" for name in SCRIPTS[script].split()))
    all_letters, own = _count(text, letters, letters & of_script)
    return own * 2 > all_letters


def _count(text: pa.StringArray, *tables: np.ndarray) -> list[np.ndarray]:
    """Return, for each table, how many characters of each text are in it, int64 [texts]."""
    characters = np.frombuffer("".join(text.to_pylist()).encode("utf-32-le"), "<u4")
    characters = np.minimum(characters, CHARACTERS - 1)
    ends = np.concatenate(([0], np.cumsum(pc.utf8_length(text).to_numpy(zero_copy_only=False))))
    return [np.diff(np.concatenate(([0], np.cumsum(table[characters])))[ends]) for table in tables]


@functools.cache
def _table(kinds: str) -> np.ndarray:
    """Return which characters are of these kinds (in the words of RE2), bool [`CHARACTERS`].

    To look characters up in a table is ten times as fast as to search each text.
    """
    every = "".join(chr(code) for code in range(CHARACTERS) if not 0xD800 <= code < 0xE000)
    found = pc.replace_substring_regex(pa.array([every], pa.string()), f"[^{kinds}]+", "")[0].as_py()
    table = np.zeros(CHARACTERS, bool)
    table[np.frombuffer(found.encode("utf-32-le"), "<u4")] = True
    return table
