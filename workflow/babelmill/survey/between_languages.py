"""Find lines that stand in the corpora of several languages of a mixture, such as French sentences in a Dutch corpus.

They teach the model the wrong language, and a line that one language sets aside for validation may be training text of
another. Lines are compared by digests of 64 bits. Those of each language are sorted in a file, and one part of all
possible digests is in memory at a time. So memory does not grow with the text.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.sparse import csr_array

from babelmill.core.words import plural
from babelmill.corpus.boilerplate import lines_of
from babelmill.corpus.counts import Counts

SHORTEST = 20  # characters; shorter lines, such as names, may well be the same in several languages
SHOWN = 50  # lines that are shown
PARTS = 64


def shared_lines(corpora: dict[str, Path], scratch: Path | None = None) -> dict[str, Any]:
    """Return how many different lines each two languages share, and some of these lines, as JSON holds it."""
    codes = list(corpora)
    pairs = np.zeros((len(codes), len(codes)), np.int64)
    shown: list[int] = []
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(tempfile.TemporaryFile(dir=scratch)) for _ in codes]
        lines = [_sorted_lines(folder, file, scratch) for folder, file in zip(corpora.values(), files, strict=True)]
        for part in range(PARTS):
            found = [_of_part(digests, part) for digests in lines]
            keys = np.concatenate(found)
            different, rows = np.unique(keys, return_inverse=True)
            of_language = np.repeat(np.arange(len(codes)), [len(each) for each in found])
            stands = csr_array((np.ones(len(keys), np.int64), (rows, of_language)), (len(different), len(codes)))
            pairs += (stands.T @ stands).toarray()
            shared = different[np.bincount(rows, minlength=len(different)) > 1]
            shown += shared[: SHOWN - len(shown)].tolist()
    return {
        "lines": {code: int(pairs[i, i]) for i, code in enumerate(codes)},
        "shared": {
            f"{codes[i]} {codes[k]}": int(pairs[i, k]) for i, k in zip(*np.nonzero(np.triu(pairs, 1)), strict=True)
        },
        "examples": _texts(corpora, shown),
    }


def summary(name: str, figures: dict[str, Any]) -> list[str]:
    """Return what is found in words, a line for each two languages, those that share most first."""
    lines = figures["lines"]
    if not figures["shared"]:
        return [f"{name}: no line of {SHORTEST} characters or more stands in the corpora of two languages"]
    found = [f"{name}: lines of {SHORTEST} characters or more that stand in the corpora of two languages"]
    for pair, count in sorted(figures["shared"].items(), key=lambda item: -item[1]):
        one, other = pair.split(" ")
        shares = f"{count / lines[one]:.2%} of {one}, {count / lines[other]:.2%} of {other}"
        found.append(f"  {one} and {other}: {plural(count, 'line')} ({shares})")
    found += [f"  in {', '.join(each['languages'])}: {each['text'][:100]}" for each in figures["examples"][:5]]
    return found


def _batches(folder: Path) -> Iterator[pa.StringArray]:
    """Yield the texts of a corpus, of both splits."""
    for split in ("train", "validation"):
        with pq.ParquetFile(folder / f"{split}.parquet") as parquet:
            for batch in parquet.iter_batches(1000, columns=["text"]):
                yield batch["text"]


def _long_lines(text: pa.StringArray) -> tuple[pa.StringArray, np.ndarray]:
    """Return the lines of texts that are compared, and their digests."""
    lines, digests, _ = lines_of(text)
    is_long = pc.greater_equal(pc.utf8_length(lines), SHORTEST)
    return lines.filter(is_long), digests[is_long.to_numpy(zero_copy_only=False)]


def _sorted_lines(folder: Path, file: IO[bytes], scratch: Path | None) -> np.ndarray:
    """Write the digests of the different lines of a corpus to a file, sorted, and return them."""
    size = 0
    with Counts(scratch) as counts:
        for text in _batches(folder):
            counts.add(_long_lines(text)[1])
        for digests, _ in counts.parts():
            size += file.write(digests.data)
    file.flush()
    return np.memmap(file, np.uint64, "r", shape=(size // 8,)) if size else np.empty(0, np.uint64)


def _of_part(digests: np.ndarray, part: int) -> np.ndarray:
    """Return the digests of a part of all possible ones."""
    bounds = [np.uint64(2**64 // PARTS * part), np.uint64(2**64 // PARTS * (part + 1) - 1)]
    return np.array(digests[np.searchsorted(digests, bounds[0]) : np.searchsorted(digests, bounds[1], "right")])


def _texts(corpora: dict[str, Path], shown: list[int]) -> list[dict[str, Any]]:
    """Return the lines with these digests, and the languages that each stands in."""
    found: dict[int, dict[str, Any]] = {}
    wanted = np.array(sorted(shown), np.uint64)
    for code, folder in corpora.items() if shown else ():
        for text in _batches(folder):
            lines, digests = _long_lines(text)
            for row in np.flatnonzero(np.isin(digests, wanted)).tolist():
                entry = found.setdefault(int(digests[row]), {"text": lines[row].as_py()[:200], "languages": []})
                if code not in entry["languages"]:
                    entry["languages"].append(code)
    return [found[key] for key in sorted(found)]
