"""Copies of a run's checkpoints: what happens when a place reads badly, is silent, or lacks a file."""

import os
import time
from pathlib import Path

import pytest
import torch

from babelmill.core.files import UserError
from babelmill.runtime import copies
from babelmill.runtime.checkpoint import Checkpoints, Snapshots
from babelmill.runtime.copies import Copies
from helpers.damage import flip_a_bit
from helpers.object_store import object_store  # noqa: F401  a fixture

pytestmark = pytest.mark.slow

FIRST, SECOND = "step-00000010", "step-00000020"


def machine(place: Path, *steps: int, keep: int = 2) -> Checkpoints:
    """The checkpoints of a run on a new machine, after these steps."""
    checkpoints = Checkpoints(place / "eng-0123", keep)
    for step in steps:
        save(checkpoints, step)
    return checkpoints


@pytest.fixture
def there(tmp_path):
    """The folder where copies of the run are."""
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept/eng-0123"


def save(checkpoints: Checkpoints, step: int, size: int = 9) -> None:
    checkpoints.save(step, {"w": torch.full((size,), float(step))}, {})


def copied(there, checkpoints: Checkpoints) -> int:
    """The step from which a training on this machine would continue; then its files are copied."""
    mine = Copies(f"file://{there.parent}", checkpoints)
    done = mine.fetch(checkpoints.newest())
    mine.close()
    return done


def test_what_a_killed_copy_left_is_removed_and_a_file_written_again_at_once_is_copied(tmp_path, there):
    first = machine(tmp_path / "a", 10)
    record = first.folder / "metrics.jsonl"
    record.write_text("{}\n")
    mine = Copies(f"file://{there.parent}", first)
    mine.fetch(10)
    mine._copy()
    left, when = there / f".{SECOND}.safetensors.z2hd0cp6.tmp", record.stat().st_mtime_ns
    left.write_bytes(b"half")
    record.write_text("{}\n{}\n")
    os.utime(record, ns=(when, when))  # as where a file system knows whole seconds alone
    mine.close()
    assert (there / record.name).read_text() == record.read_text()
    assert copied(there, machine(tmp_path / "b")) == 10 and not left.exists()


def test_a_fetch_that_was_killed_is_made_again(tmp_path, there, monkeypatch):
    """What belongs to the checkpoints is whole once attempt.json is there; without identity.json a run is refused.

    The files of a run that goes on stay.
    """
    first = machine(tmp_path / "a", 10)
    for name in ("attempt.json", "identity.json", "metrics.jsonl"):
        (first.folder / name).write_text("{}")
    copied(there, first)
    second, fetch = machine(tmp_path / "b"), Copies._fetch

    def die(self, name: str) -> None:
        if name == "identity.json":
            raise ConnectionError("killed")
        fetch(self, name)

    monkeypatch.setattr(Copies, "_fetch", die)
    with pytest.raises(UserError, match="killed"):
        copied(there, second)
    monkeypatch.undo()
    assert copied(there, second) == 10
    assert {path.name for path in second.folder.glob("*.json*")} >= {"attempt.json", "identity.json", "metrics.jsonl"}
    (first.folder / "attempt.json").write_text('{"mine": true}')
    copied(there, first)
    assert (first.folder / "attempt.json").read_text() == '{"mine": true}'


@pytest.mark.parametrize("damage", ["a bit", "gone", "interrupted"])
def test_weights_that_are_damaged_or_missing_there_are_not_used(tmp_path, there, damage, caplog):
    """And they destroy nothing: a machine that reads badly would see intact ones so."""
    first = machine(tmp_path / "a", 10)
    copied(there, first)
    save(first, 20)
    copied(there, first)
    weights = there / f"{SECOND}.safetensors"
    if damage == "a bit":
        flip_a_bit(weights)
    elif damage == "gone":
        weights.unlink()
    else:  # while it was sent
        os.truncate(weights, weights.stat().st_size // 2)
        weights.with_suffix(".json").unlink()
    second = machine(tmp_path / "b", keep=1)
    assert copied(there, second) == 10
    assert (f"{SECOND}.safetensors is damaged" in caplog.text) == (damage != "interrupted")
    save(second, 15)
    copied(there, second)
    assert weights.with_suffix(".json").exists() == (damage != "interrupted")
    assert not (there / f"{FIRST}.json").exists() and second.steps() == [15], "it goes on from its own"
    save(second, 20)
    copied(there, second)
    assert copied(there, machine(tmp_path / "c")) == 20


def test_the_end_waits_for_a_store_as_long_as_it_takes_something(tmp_path, object_store, monkeypatch, caplog):  # noqa: F811
    monkeypatch.setattr(copies, "PATIENCE", 9.0)
    monkeypatch.setattr(object_store, "seconds", 2.0)
    checkpoints, began = machine(tmp_path / "a"), time.monotonic()
    save(checkpoints, 20, 6_000_000)  # five parts, of which four are sent at once
    mine = Copies("s3://bucket/slow", checkpoints)
    mine.fetch(20)
    mine.close()
    assert time.monotonic() - began > copies.PATIENCE and not caplog.text
    monkeypatch.setattr(object_store, "seconds", 0.0)
    assert object_store.files.exists(f"bucket/slow/eng-0123/{SECOND}.json")

    monkeypatch.setattr(copies, "PATIENCE", 3.0)
    mine = Copies("s3://bucket/silent", checkpoints)
    mine.fetch(20)
    monkeypatch.setattr(object_store, "seconds", 20.0)
    mine.close()
    only_here = f"s3://bucket/silent/eng-0123 lacks the newest checkpoint, which is only in {checkpoints.folder}"
    assert only_here in caplog.text


def test_a_half_replaced_snapshot_is_left_out(tmp_path, there, caplog):
    first = machine(tmp_path / "a", 10)
    for point in (1, 2):
        tensors = {"w": torch.full((9,), float(point))}
        Snapshots(first.folder).save(point, {}, tensors, tensors.__getitem__)
    copied(there, first)
    flip_a_bit(there / "snapshots/chck_1M.safetensors")
    second = machine(tmp_path / "b")
    copied(there, second)
    assert [*Snapshots(second.folder).kept()] == ["chck_2M"]
    assert "snapshots/chck_1M.json is damaged" in caplog.text
    save(first, 20)
    copied(there, first)
    flip_a_bit(there / "snapshots/chck_2M.safetensors")
    copied(there, second)
    assert second.newest() == 20 and [*Snapshots(second.folder).kept()] == ["chck_1M", "chck_2M"], "one is healed"
    Snapshots(second.folder).weights("chck_2M")  # what is here stays
