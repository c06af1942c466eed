"""Take a sample of the documents of a text, and measure it in a DataFrame.

The sample is the documents with the smallest digests: the same ones on every run, in whatever order the files are
read, and exact copies are all in it or none. Languages are those of py3langid, whose model is inside its package. It is
for a first look: it takes languages that it does not know for others.
"""

import functools
import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable

import pandas as pd
import pyarrow as pa

from babelmill.config.identifiers import PY3LANGID
from babelmill.corpus.identification import load

DOCUMENTS, CHARACTERS = 100_000, 500_000_000  # of a sample, at most
JUDGED = 2_000  # documents whose language is judged, and whose lines are compared
BEGINNING = 2_000  # characters of a document from which its script, language and oddness are measured
FEWEST = 20  # letters; in shorter texts, a language cannot be told
SHOWN = 20  # documents that are drawn at random
OF_EACH = 5  # documents that are shown of each kind of oddness
UNKNOWN = "too short"
ODD = {
    "broken": "most places that look like a wrong encoding",
    "others": "most characters that are no letters",
    "again": "most lines that stand in it before",
    "characters": "the longest",
}


def sample(batches: Iterable[tuple[str, pa.RecordBatch]]) -> tuple[pd.DataFrame, Counter[str]]:
    """Return a sample of the documents of {file: batch} pairs in the order of their digests, and {file: documents}.

    A document without text is none.
    """
    kept: list[tuple[int, str, str, str]] = []
    read, limit, characters = Counter[str](), 1 << 64, 0
    for file, batch in batches:
        for text, category in zip(batch["text"].to_pylist(), batch["category"].to_pylist(), strict=True):
            if not text or text.isspace():
                continue
            read[file] += 1
            key = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
            if key < limit:
                kept.append((key, file, category or "(none)", text))
                characters += len(text)
        while len(kept) > 1 and (len(kept) > DOCUMENTS or characters > CHARACTERS):
            limit //= 2
            kept = [document for document in kept if document[0] < limit]
            characters = sum(len(document[3]) for document in kept)
    return pd.DataFrame(sorted(kept), columns=["key", "file", "category", "text"]), read


def measure(documents: pd.DataFrame) -> pd.DataFrame:
    """Add columns to a sample: the size of each document, its script and language, and how odd it is."""
    from ftfy.badness import badness

    begun = documents["text"].str[:BEGINNING]
    letters = begun.map(lambda text: sum(map(str.isalpha, text)))
    labels = load(PY3LANGID).find(begun[:JUDGED])
    judged = [found[0][0] if n >= FEWEST else UNKNOWN for found, n in zip(labels, letters, strict=False)]
    return documents.assign(
        characters=documents["text"].str.len(),
        words=documents["text"].map(lambda text: len(text.split())),
        script=begun.str[:500].map(script_of),
        language=judged + [""] * (len(begun) - len(judged)),
        broken=begun.map(lambda text: 0 if text.isascii() else badness(text)) / begun.str.len(),
        others=1 - (letters + begun.str.count(r"\s")) / begun.str.len(),
        again=begun.map(repeated),
    )


@functools.cache
def script_of_letter(letter: str) -> str:
    """Return the script of a letter: the first word of its name in Unicode, such as Latin, Cyrillic or CJK."""
    word = unicodedata.name(letter, "").partition(" ")[0].partition("-")[0]
    return word if word == "CJK" else word.capitalize()


def script_of(text: str) -> str:
    """Return the script of most letters of a text."""
    found = Counter(map(script_of_letter, filter(str.isalpha, text)))
    return found.most_common(1)[0][0] if found else "(no letters)"


def lines_of(text: str) -> list[str]:
    """Return the lines of a text that are not empty."""
    return [line for each in text.split("\n") if (line := each.strip())]


def repeated(text: str) -> float:
    """Return the share of lines that stand in a text before; 0 for a text of a few lines."""
    lines = lines_of(text)
    return 1 - len(set(lines)) / len(lines) if len(lines) > 3 else 0.0


def shares_of(values: Iterable[str]) -> dict[str, float]:
    """Return the share of each value, the most frequent first."""
    found = Counter(values)
    return {value: number / found.total() for value, number in found.most_common()}


def most(values: Iterable[str]) -> str:
    """Return the most frequent value with its share; "" if there is none."""
    return next((f"{value} {share:.0%}" for value, share in shares_of(filter(None, values)).items()), "")


def table(documents: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return a line for each value of a column, the largest first: documents, words, lengths, script and language."""
    columns = {"words": ["size", "sum"], "characters": ["min", "median", "max"], "script": [most], "language": [most]}
    found = documents.groupby(by).agg(columns)
    found.columns = ["documents", "words", "shortest", "median", "longest", "script", "language"]
    return found.sort_values("words", ascending=False)


def frequent_lines(documents: pd.DataFrame) -> dict[str, float]:
    """Return the lines that stand in most of the different documents, and in which share of them; at least in 1 %."""
    texts = documents["text"].drop_duplicates()[:JUDGED]
    found = Counter(line for text in texts for line in {*lines_of(text)}).most_common(10)
    return {line: number / len(texts) for line, number in found if number > max(1, len(texts) / 100)}


def oddest(documents: pd.DataFrame) -> pd.DataFrame:
    """Return the oddest documents, each once, with the column `why`."""
    different = documents.drop_duplicates("key")
    found = [different.sort_values(by=[kind], ascending=False).head(OF_EACH).assign(why=ODD[kind]) for kind in ODD]
    return pd.concat(found).drop_duplicates("key")
