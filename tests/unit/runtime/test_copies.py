"""Copies of a run's checkpoints: what happens when a place reads badly, is silent, or has two writers."""

import json
import logging

import pytest
import torch

from babelmill.runtime.checkpoint import Checkpoints
from babelmill.runtime.remote import copies
from babelmill.runtime.remote.copies import Copies
from helpers.damage import flip_a_bit
from helpers.object_store import object_store  # noqa: F401  a fixture

pytestmark = pytest.mark.slow

FIRST, SECOND = "step-00000010", "step-00000020"


@pytest.fixture
def machine(tmp_path):
    """A function that makes the folder of a run on a new machine, with checkpoints after some steps."""

    def folder_of(name: str, *steps: int, seed: float = 0.0):
        folder = tmp_path / name / "eng-0123"
        folder.mkdir(parents=True)
        for step in steps:
            Checkpoints(folder, 2).save(step, {"w": torch.full((9,), step + seed)}, {})
        return folder

    (tmp_path / "kept").mkdir()
    return folder_of


@pytest.fixture
def url(tmp_path) -> str:
    return f"file://{tmp_path}/kept"


def copied(url: str, folder) -> Copies:
    with Copies(url, folder, keep=2) as mine:
        mine.fetch(max(Checkpoints(folder, 2).steps(), default=0))
        mine.start()
    return mine


def weights(tmp_path, stem: str) -> list:
    return sorted((tmp_path / "kept/eng-0123").glob(f"{stem}.*.safetensors"))


def test_a_machine_that_reads_badly_destroys_nothing(machine, url, tmp_path, monkeypatch, caplog):
    copied(url, machine("a", 10, 20))
    before = {path.name for path in (tmp_path / "kept/eng-0123").iterdir()}
    bad = Copies(url, machine("b"), keep=2)
    with bad:
        download = bad._place.download

        def badly(name, path):
            download(name, path)
            flip_a_bit(path)

        monkeypatch.setattr(bad._place, "download", badly)
        assert bad.fetch(0) == 0
        bad.start()
    assert {path.name for path in (tmp_path / "kept/eng-0123").iterdir()} >= before
    assert f"eng-0123/{SECOND} cannot be used, also when read again (its sha256 differs" in caplog.text
    with Copies(url, machine("c"), keep=2) as good:
        assert good.fetch(0) == 20


def test_one_bad_read_is_repeated(machine, url, monkeypatch):
    copied(url, machine("a", 20))
    with Copies(url, machine("b"), keep=2) as mine:
        download, reads = mine._place.download, []

        def badly_once(name, path):
            download(name, path)
            reads.append(name)
            if len(reads) == 1:
                flip_a_bit(path)

        monkeypatch.setattr(mine._place, "download", badly_once)
        assert mine.fetch(0) == 20


def test_weights_that_are_missing_or_damaged_there_are_copied_again(machine, url, tmp_path, caplog):
    folder = machine("a", 10)
    copied(url, folder)
    Checkpoints(folder, 2).save(20, {"w": torch.full((9,), 20.0)}, {})
    copied(url, folder)
    weights(tmp_path, SECOND)[0].unlink()
    folder = machine("b")
    with Copies(url, folder, keep=1) as mine:
        assert mine.fetch(0) == 10
        mine.start()
    assert f"{SECOND} cannot be used, also when read again ([Errno 2]" in caplog.text
    assert weights(tmp_path, FIRST), "the damaged one is not among those to keep"
    Checkpoints(folder, 2).save(20, {"w": torch.full((9,), 20.0)}, {})  # the same bytes: training is repeatable
    with Copies(url, folder, keep=1) as mine:
        mine._damaged.add(SECOND)
        mine.start()
    assert weights(tmp_path, SECOND)


def test_a_stale_writer_does_not_overwrite_the_weights_of_its_successor(machine, url, tmp_path):
    stale, successor = machine("a", 20), machine("b", 20, seed=0.5)
    copied(url, successor)
    (kept,) = weights(tmp_path, SECOND)
    content = kept.read_bytes()
    with Copies(url, stale, keep=2) as mine:  # its upload ends after it has lost the place
        mine._copy_weights(SECOND)
    assert kept.read_bytes() == content and len(weights(tmp_path, SECOND)) == 2


def test_the_files_of_a_run_that_goes_on_are_not_replaced_by_earlier_ones(machine, url):
    first = machine("a", 20)
    (first / "attempt.json").write_text("{}")
    copied(url, first)
    second = machine("b", 20)
    (second / "attempt.json").write_text(json.dumps({"mine": True}))
    copied(url, second)
    assert json.loads((second / "attempt.json").read_text()) == {"mine": True}


def test_the_time_of_a_copy_is_that_of_a_real_one(machine, url, monkeypatch):
    folder = machine("a", 20)
    assert copied(url, folder).seconds > 0
    with Copies(url, folder, keep=2) as mine:
        mine.seconds = 7.0
        mine.start()
    assert mine.seconds == 7.0, "nothing was copied"


def test_the_end_does_not_wait_for_a_silent_store(machine, object_store, monkeypatch, caplog):  # noqa: F811
    monkeypatch.setattr(copies, "PATIENCE", 0.5)
    caplog.set_level(logging.INFO)
    folder = machine("a")
    with Copies("s3://bucket/silent", folder, keep=2) as mine:
        mine.start()
        object_store.answers.clear()
        Checkpoints(folder, 2).save(20, {"w": torch.ones(9)}, {})
    object_store.answers.set()
    assert (
        f"s3://bucket/silent lacks the newest checkpoint, which is only in {folder} (it does not answer)" in caplog.text
    )


def test_the_end_of_a_training_is_shorter_than_what_slurm_leaves_for_it():
    from babelmill.runtime import slurm
    from babelmill.runtime.remote import claim

    assert copies.PATIENCE + claim.TO_GIVE_BACK < slurm.RESERVE


def test_parts_of_uploads_that_were_killed_are_removed_and_those_of_other_runs_stay(machine, object_store):  # noqa: F811
    def begin(key: str) -> None:
        made = object_store.files.call_s3("create_multipart_upload", Bucket="bucket", Key=key)
        part = {"PartNumber": 1, "UploadId": made["UploadId"], "Body": b"x" * (5 << 20)}
        object_store.files.call_s3("upload_part", Bucket="bucket", Key=key, **part)

    def begun() -> list[str]:
        found = object_store.files.call_s3("list_multipart_uploads", Bucket="bucket")
        return sorted(upload["Key"] for upload in found.get("Uploads", []))

    others = ["parts/deu-0123/step-00000010.f00.safetensors", "parts/eng-01234/step-00000010.f00.safetensors"]
    for key in (f"parts/eng-0123/{FIRST}.f00.safetensors", *others):
        begin(key)
    copied("s3://bucket/parts", machine("a", 10))
    assert begun() == others


def test_half_a_file_of_a_killed_process_is_removed_from_a_folder(machine, url, tmp_path):
    kept = tmp_path / "kept/eng-0123"
    (kept / "snapshots").mkdir(parents=True)
    half = kept / "snapshots" / f".{FIRST}.a_0b1c2d.tmp"
    half.touch()
    copied(url, machine("a", 10))
    assert not half.exists() and len(weights(tmp_path, FIRST)) == 1
