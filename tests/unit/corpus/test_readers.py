"""The documents of files as batches: what columns become, what is counted, and how large batches are."""

from pathlib import Path

import pyarrow as pa
import pytest

from babelmill.core.files import UserError
from babelmill.corpus.reading import Reading, read
from babelmill.corpus.tally import Tally
from babelmill.tables.rows import BATCH
from helpers.tables import table_bytes
from helpers.training.training_data import section


def batches_of(*paths: Path, on_error="stop", **corpus) -> tuple[list[pa.RecordBatch], Tally]:
    """All documents of files, and the tally."""
    tally = Tally(on_error)
    batches = list(read(paths, Reading(section("corpus", **corpus)), tally))
    assert tally.read == sum(map(len, batches)) + tally.dropped.total()
    return batches, tally


def test_metadata_that_is_no_text_becomes_json(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "category": {"b": [1, "é"]}, "doc-id": 7}\n{"text": null, "license": "\\ud800"}\n')
    (batch,), tally = batches_of(path)
    assert batch["category"].to_pylist() == ['{"b": [1, "é"]}', None] and batch["doc-id"].to_pylist() == ["7", None]
    assert batch["license"].to_pylist() == [None, "\ufffd"] and batch["text"].to_pylist() == ["a", None]
    assert tally.changed == {"lone_surrogates": 1}


def test_small_files_share_batches_and_large_files_have_many(tmp_path):
    """Memory is bounded by the batch, not by the file or its row groups."""
    paths = [tmp_path / f"{i:03}.txt" for i in range(300)]
    for path in paths:
        path.write_text(f"{path.name}\r\nend")
    (batch,), _ = batches_of(*paths, document="file")
    assert batch["text"].to_pylist() == [f"{path.name}\nend" for path in paths]
    documents = [f"{i} " + "z" * 1000 for i in range(20_000)]
    for kind in (".jsonl", ".csv", ".parquet"):
        path = tmp_path / f"corpus{kind}"
        path.write_bytes(table_bytes([{"text": text} for text in documents], kind))
        batches, _ = batches_of(path)
        assert [text for batch in batches for text in batch["text"].to_pylist()] == documents
        assert max(batch.nbytes for batch in batches) < 2 * BATCH


def test_a_document_that_no_batch_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("babelmill.tables.text.LONGEST", 2 * BATCH)
    path = tmp_path / "a.txt"
    path.write_text("word\n" * BATCH)
    with pytest.raises(UserError, match=r"a\.txt: a line or document of more than 2 MiB; is this text"):
        batches_of(path, document="file")
    assert batches_of(path, document="line")[1].read == BATCH
