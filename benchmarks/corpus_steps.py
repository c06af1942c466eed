"""Measure each step of the stage `corpus` beside the bare library that does its work.

    python benchmarks/corpus_steps.py [--texts FOLDER] [--megabytes 8] [--only "read .jsonl"]

This prints MB/s of one core (CPU time) on real text in five scripts (`real_text.py`), one document in ten twice. The
bare program takes Python's strings, and does the same by the plainest loop over its library, without counts and
examples. Where a step has no library, this is the standard library. The goal: each step takes at most 1.2 times as
long as the bare program.
"""

import argparse
import functools
import json
import random
import re
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import ftfy
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from real_text import documents, enlarge
from rensa import RMinHash

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))
from babelmill.config import schema
from babelmill.config.resolve import Configuration
from babelmill.corpus.choosing import first_of_equal
from babelmill.corpus.cleaners import KINDS, STEPS
from babelmill.corpus.cleaning import REPAIR, Steps, clean, prepared
from babelmill.corpus.identification import BEST, Identification, load, other_languages
from babelmill.corpus.near_copies import BANDS, SEED, bands_of, rows_of
from babelmill.corpus.reading import Reading, read
from babelmill.corpus.record_batches import SCHEMA, RowGroups, Split, Spool, batch_of, keys_of
from babelmill.corpus.tally import Tally
from babelmill.suites.sought import sought
from babelmill.tables.rows import rows
from babelmill.tokens.label_text import CONTROL

TOGETHER = 200  # documents in a batch, about 1 MB
ITEMS = 67_000  # test sentences, as many as BLiMP has
TINY = str(Path(__file__).resolve().parents[1] / "tests/data/languages.bin")

Texts = list[list[str]]
Work = Callable[[], object]


def section(**values: Any) -> schema.Corpus:
    """Return the section `corpus` of the configuration with these values."""
    return Configuration([("benchmark", {"languages": {"eng": {"corpus": values}}})]).corpus("eng").corpus


def reading(folder: Path, texts: Texts, batches: list[pa.RecordBatch], rows_alone: bool = False) -> tuple[Work, Work]:
    """Read a .jsonl file: as batches of Arrow, which hold UTF-8, or rows alone, which hold Python's strings."""
    path = folder / "corpus.jsonl"
    lines = [json.dumps({"text": text}, ensure_ascii=False) for part in texts for text in part]
    path.write_text("\n".join(lines), encoding="utf-8")

    def bare() -> None:
        with open(path, encoding="utf-8") as file:
            for line in file:
                json.loads(line)["text"]

    def ours() -> None:
        asked = Reading(section())
        for _ in rows(path, [*asked.asked(path).values()]) if rows_alone else read([path], asked, Tally()):
            pass

    return ours, bare


def writing(folder: Path, texts: Texts, batches: list[pa.RecordBatch]) -> tuple[Work, Work]:
    """Spool, and write Parquet, with documents, bytes and words counted."""

    def bare() -> None:
        with pq.ParquetWriter(folder / "bare.parquet", SCHEMA, compression="zstd", write_statistics=False) as file:
            for part in texts:
                sum(len(text.split()) for text in part)
                file.write_table(pa.Table.from_pylist([{"text": text} for text in part], SCHEMA))

    def ours() -> None:
        spool, steps = str(folder / "spool.parquet"), Steps(section())
        with RowGroups(spool, prepared(batches[0], steps)[0].schema, "lz4") as rows:
            for batch in batches:
                rows.write(prepared(batch, steps)[0], batch.nbytes)
        with open(folder / "ours.parquet", "wb") as file, Split(file, SCHEMA) as split:
            for _, batch in Spool(spool).batches([*SCHEMA.names, "bytes", "words"]):
                split.add(batch)

    return ours, bare


def cleaning(**values: Any) -> Callable[[Path, Texts, list[pa.RecordBatch]], tuple[Work, Work]]:
    """Return a step of `cleaning.py`, given the keys that ask for it."""
    corpus = section(**values)

    def bare_of(text: str) -> str:
        if corpus.repair == "ftfy":
            text = ftfy.fix_text(text, ftfy.TextFixerConfig(**REPAIR, explain=False))
        if corpus.control_characters == "remove":
            text = re.sub(CONTROL, "", text)
        if corpus.normalization != "none":
            text = unicodedata.normalize("NFC", text)
        for step in KINDS.get(corpus.cleaners, ()):
            text = STEPS[step](text)
        return text

    def step(folder: Path, texts: Texts, batches: list[pa.RecordBatch]) -> tuple[Work, Work]:
        return (
            lambda: [clean(batch, Steps(corpus), Tally()) for batch in batches],
            lambda: [[text for each in part if (text := bare_of(each)).strip()] for part in texts],
        )

    return step


def exact_copies(folder: Path, texts: Texts, batches: list[pa.RecordBatch]) -> tuple[Work, Work]:
    """Drop exact copies."""

    def bare() -> None:
        seen: set[bytes] = set()
        for part in texts:
            for text in part:
                digest = blake2b(text.encode(), digest_size=16).digest()
                if digest not in seen:
                    seen.add(digest)

    def ours() -> None:
        first_of_equal(*np.concatenate([keys_of(batch) for batch in batches]).T)

    return ours, bare


def near_copies(folder: Path, texts: Texts, batches: list[pa.RecordBatch]) -> tuple[Work, Work]:
    """Give each document its signature."""

    def bare() -> None:
        for part in texts:
            words = [text.split() for text in part]
            strings = [[" ".join(each[i : i + 5]) for i in range(len(each) - 4)] for each in words]
            RMinHash.digest_matrix_from_token_sets(strings, len(BANDS) * rows_of(0.8), SEED)

    return lambda: [bands_of(batch["text"], 0.8) for batch in batches], bare


def language(name: str) -> Callable[[Path, Texts, list[pa.RecordBatch]], tuple[Work, Work]]:
    """Return the step that drops text in other languages, by a model."""

    def step(folder: Path, texts: Texts, batches: list[pa.RecordBatch]) -> tuple[Work, Work]:
        model: Any = load(name)
        asked = Identification(name, frozenset(["en", "eng_Latn"]), 0.8)
        find = model._identifier.rank if name == "py3langid" else lambda text: model._model.predict(text, k=BEST)
        return (
            lambda: [other_languages(batch["text"], asked, Tally()) for batch in batches],
            lambda: [[find(text[:5000].replace("\n", " ")) for text in part] for part in texts],
        )

    return step


def test_sentences(folder: Path, texts: Texts, batches: list[pa.RecordBatch]) -> tuple[Work, Work]:
    """Look for test sentences: the bare program looks for 13 words in a row alone."""
    draw = random.Random(0)
    vocabulary = sorted({word for part in texts[:20] for text in part for word in text.split()})
    items = [" ".join(draw.choices(vocabulary, k=draw.choice((8, 13, 16)))) for _ in range(ITEMS)]
    asked = sought([[item] for item in items])

    def grams(text: str) -> Iterable[str]:
        words = re.findall(r"\w+", text.lower())
        return (" ".join(words[i : i + 13]) for i in range(max(1, len(words) - 12)))

    def bare() -> None:
        known = {gram for item in items for gram in grams(item)}
        for part in texts:
            for text in part:
                known.isdisjoint(grams(text))

    return lambda: [asked.found_in(part) for part in texts], bare


def seconds(work: Work) -> float:
    """Return the CPU time of some work: the least of three runs."""
    found = []
    for _ in range(3):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


CASES = {
    "read .jsonl": (reading, "`json`"),
    "read .jsonl: rows alone": (functools.partial(reading, rows_alone=True), "`json`"),
    "clean, spool, write Parquet": (writing, "`pyarrow`, from lists"),
    "`repair`": (cleaning(repair="ftfy"), "`ftfy`"),
    "`control_characters`, `normalization`": (
        cleaning(control_characters="remove", normalization="NFC"),
        "`re`, `unicodedata`",
    ),
    **{f"`cleaners: {kind}`": (cleaning(cleaners=kind), "the same patterns, by `re`") for kind in KINDS},
    "`language_filter`: py3langid": (language("py3langid"), "`py3langid`"),
    "`language_filter`: a tiny model": (language(TINY), "`fasttext`"),
    "`decontaminate`, 67,000 sentences": (test_sentences, "a set of 13 words in a row"),
    "`deduplicate`": (exact_copies, "`blake2b` and a set"),
    "`near_duplicates`: signatures": (near_copies, "`rensa`, on strings"),
}


def main() -> None:
    """Print a line for each step, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, default=Path.home() / ".cache/babelmill/texts", help="see real_text.py")
    parser.add_argument("--megabytes", type=int, default=8)
    parser.add_argument("--only", default="", help="how the names of the steps begin")
    args = parser.parse_args()
    texts, size = [], 0
    for text in enlarge(documents(args.texts), args.megabytes * 10**6):
        if size < args.megabytes * 10**6:
            texts.append(text)
            size += len(text.encode())
    texts = [text for i, text in enumerate(texts) for _ in range(2 if i % 9 == 0 else 1)]
    size = sum(len(text.encode()) for text in texts) / 1e6
    parts = [texts[i : i + TOGETHER] for i in range(0, len(texts), TOGETHER)]
    batches = [batch_of({"text": part}) for part in parts]
    print("| step | ours, MB/s | bare, MB/s | the bare program | time, ours / bare |\n|---|---|---|---|---|")
    total = np.zeros(2)
    with tempfile.TemporaryDirectory() as folder:
        for name, (step, library) in ((name, case) for name, case in CASES.items() if name.startswith(args.only)):
            both = np.array([seconds(work) for work in step(Path(folder), parts, batches)])
            total += both * (name != "read .jsonl: rows alone")  # the reading of batches has them, too
            ours, bare = size / both
            print(f"| {name} | {ours:.1f} | {bare:.1f} | {library} | {both[0] / both[1]:.2f} |", flush=True)
    ours, bare = size / total
    print(f"| all of them, one after another | {ours:.2f} | {bare:.2f} | | {total[0] / total[1]:.2f} |")


if __name__ == "__main__":
    main()
