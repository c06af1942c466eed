"""Digests of documents; deduplication on disk keeps what it keeps in memory, wherever the duplicates are."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from test_corpus import build, write_jsonl

from babelmill.corpus import duplicates
from babelmill.corpus.digests import digests, with_digests
from babelmill.corpus.tally import Tally


def test_digests_depend_on_the_text_alone():
    whole = pa.array(["a", "", "b", "längerer Text", "a"])
    assert (digests(whole)[2:4] == digests(whole.slice(2, 2))).all()
    assert (digests(whole)[0] == digests(whole)[4]).all()
    assert len({tuple(key) for key in digests(whole).tolist()}) == 4
    expected = hashlib.blake2b("längerer Text".encode(), digest_size=16).digest()
    assert digests(whole)[3].astype("<u8").tobytes() == expected


def batches():
    """4,000 documents of 2,500 different ones: copies far apart, beside each other, and at the end of others' batches."""
    numbers = np.random.default_rng(1).permutation(
        np.concatenate([np.arange(2500), np.arange(1000), np.repeat(3, 500)])
    )
    for part in np.array_split(numbers, 37):
        text = pa.array([f"text number {number}" for number in part])
        yield with_digests(pa.record_batch({"text": text}), digests(text))


@pytest.mark.parametrize(("in_memory", "parts"), [(0, 1), (100, 1), (100, 64), (2499, 64), (2500, 64)])
def test_what_is_kept_is_the_same(tmp_path, monkeypatch, in_memory, parts):
    tally = Tally()
    expected = list(duplicates.without_duplicates(batches(), tally, tmp_path))
    monkeypatch.setattr(duplicates, "IN_MEMORY", in_memory)
    monkeypatch.setattr(duplicates, "PARTS", parts)
    again = Tally()
    found = list(duplicates.without_duplicates(batches(), again, tmp_path))
    assert found == expected
    assert again == tally
    assert tally.dropped == {"duplicate": 1500}


def test_the_files_are_the_same(folder, monkeypatch):
    write_jsonl("a.jsonl", [f"document {i % 3000} of many" for i in range(9000)])
    write_jsonl("b.jsonl", [f"document {i} of many" for i in range(5000)])
    values = {"files": ["*.jsonl"], "validation_share": 0.1}
    figures = [build("memory", **values), build("memory_budget", budget="700 documents", **values)]
    monkeypatch.setattr(duplicates, "IN_MEMORY", 500)
    assert build("disk", **values) == figures[0]
    assert build("disk_budget", budget="700 documents", **values)["documents"] == figures[1]["documents"]
    for name in ("train.parquet", "validation.parquet"):
        for out in ("", "_budget"):
            assert (folder / f"disk{out}" / name).read_bytes() == (folder / f"memory{out}" / name).read_bytes()
    assert {path.name for path in (folder / "disk").iterdir()} == {path.name for path in (folder / "memory").iterdir()}
