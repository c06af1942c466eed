"""The documents of files as batches: what columns become, what is counted, and how large batches are."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.core.files import UserError
from babelmill.corpus.reading import Reading, read
from babelmill.corpus.record_batches import BLOCK
from babelmill.corpus.tally import Tally
from helpers.tables import compress, table_bytes
from helpers.training.training_data import section

TEXTS = ["one\u2028still one\x85and\x0chere", "NA", "007", "null", 'x<s>y "quoted", or not', "zwei\nZeilen", "ひとつ🎈"]


def encode(texts: list[str], suffix: str) -> bytes:
    """Documents as the bytes of a file with a column `category`."""
    return table_bytes([{"category": f"c{i}", "text": text} for i, text in enumerate(texts)], suffix)


def batches_of(*paths: Path, on_error="stop", **corpus) -> tuple[list[pa.RecordBatch], Tally]:
    """All documents of files, and the tally."""
    tally = Tally(on_error)
    batches = list(read(paths, Reading(section("corpus", **corpus)), tally))
    assert tally.read == sum(map(len, batches)) + tally.dropped.total()
    return batches, tally


def texts_of(*paths: Path, **corpus) -> list[str]:
    return [text for batch in batches_of(*paths, **corpus)[0] for text in batch["text"].to_pylist()]


def test_metadata_that_is_no_text_becomes_json(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "category": {"b": [1, "é"]}, "doc-id": 7}\n{"text": null, "license": "\\ud800"}\n')
    (batch,), tally = batches_of(path)
    assert batch["category"].to_pylist() == ['{"b": [1, "é"]}', None] and batch["doc-id"].to_pylist() == ["7", None]
    assert batch["license"].to_pylist() == [None, "\ufffd"] and batch["text"].to_pylist() == ["a", None]
    assert tally.changed == {"lone_surrogates": 1}


def test_small_files_share_batches_and_large_files_have_many(tmp_path):
    paths = [tmp_path / f"{i:03}.txt" for i in range(300)]
    for path in paths:
        path.write_text(f"{path.name}\r\nend")
    (batch,), _ = batches_of(*paths, document="file")
    assert batch["text"].to_pylist() == [f"{path.name}\nend" for path in paths]
    documents = ["x" * 3_000_000, *(f"document {i}" for i in range(30_000)), "y" * 1_500_000]
    for kind in (".jsonl", ".csv", ".parquet"):
        path = tmp_path / f"corpus{kind}"
        path.write_bytes(encode(documents, kind))
        batches, _ = batches_of(path)
        assert [text for batch in batches for text in batch["text"].to_pylist()] == documents and len(batches) > 3


def test_batches_stay_small(tmp_path):
    """Memory is bounded by the batch, not by the file or its row groups."""
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.table({"text": ["z" * 100_000] * 200}), path, use_dictionary=False)
    assert max(batch.nbytes for batch in batches_of(path)[0]) < 2 * BLOCK
    path = tmp_path / "corpus.csv"
    path.write_bytes(encode(["z" * 1000] * 20_000, ".csv"))
    assert max(batch.nbytes for batch in batches_of(path)[0]) < 2 * BLOCK


def test_bad_rows_and_files_are_counted_or_refused(tmp_path):
    good, bad, none = (tmp_path / name for name in ("a.jsonl", "b.jsonl.gz", "c.txt"))
    good.write_bytes(encode(TEXTS, ".jsonl") + b'{"text": "\xff"}\nno JSON\n')
    bad.write_bytes(
        compress(encode([f"document number {i} of {i * i}" for i in range(200_000)], ".jsonl"), ".gz")[:-99]
    )
    none.write_bytes(b"%PDF-1.7")
    batches, tally = batches_of(good, bad, none, on_error="skip", document="line")
    assert tally.dropped == {"undecodable": 1, "malformed": 1} and sum(map(len, batches)) > 100_000
    assert [*tally.damaged_files] == [str(bad), str(none)]
    for path, problem in (
        (good, r"a\.jsonl: line 8: not UTF-8"),
        (bad, "gz: damaged"),
        (none, "a PDF document: extract its text, for instance with pdftotext$"),
        (tmp_path / "d.jsonl", r"d\.jsonl: .*no such file"),
    ):
        with pytest.raises(UserError, match=problem):
            batches_of(path, document="line")


def test_a_document_that_no_batch_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("babelmill.tables.text.LONGEST", 2 * BLOCK)
    path = tmp_path / "a.txt"
    path.write_text("word\n" * BLOCK)
    with pytest.raises(
        UserError, match=r"a\.txt: a line or document of more than 2 MiB; is this text, and its `document` right"
    ):
        batches_of(path, document="file")
    assert len(texts_of(path, document="line")) == BLOCK
