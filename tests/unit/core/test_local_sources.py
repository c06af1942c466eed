"""Local text: what counts is its content, and finding out that nothing changed reads nothing."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from babelmill.core import known_hashes, local_sources, manifest
from babelmill.core.files import UserError, read_json

CORPUS = Path("corpus")
PATTERN = "texts/*.txt"


@pytest.fixture(autouse=True)
def texts(folder):
    """A folder with two texts."""
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("one")
    Path("texts/b.txt").write_text("four")


@pytest.fixture
def hashed(monkeypatch) -> list[str]:
    """The files that were read, in order."""
    read = []

    def sha256(path):
        read.append(path)
        return whole(path)

    whole = known_hashes.sha256
    monkeypatch.setattr(known_hashes, "sha256", sha256)
    return read


def again(path: str, change: Callable[[], object]) -> None:
    """Change a file, as often as its time of change needs to be another: file systems count in steps of some ms."""
    before = os.stat(path).st_ctime_ns
    while os.stat(path).st_ctime_ns == before:
        change()


def touch(path: str) -> None:
    again(path, lambda: os.utime(path))


def write(path: str, text: str) -> None:
    again(path, lambda: Path(path).write_text(text))


def snapshot(pattern: str = PATTERN) -> dict:
    """The entry of a pattern."""
    return local_sources.snapshot({pattern: "config.yaml"}, CORPUS)[pattern]


def make_corpus() -> dict:
    """Leave what the stage does, as far as it matters here; the entry that its settings had."""
    entry = snapshot()
    content = local_sources.hashes(local_sources.expand_glob(PATTERN), CORPUS)
    figures = {"sources": [{"path": path, "sha256": digest} for path, digest in content.items()]}
    manifest.write(CORPUS, manifest.StageRequest("corpus", "eng", {"sources": {PATTERN: entry}}), [], figures=figures)
    return entry


def test_without_a_corpus_nothing_is_read(hashed):
    assert snapshot() == {"files": 2, "bytes": 7, "sha256": None}
    assert not hashed and not CORPUS.exists()


def test_the_settings_stay_while_the_content_does(hashed):
    entry = make_corpus()
    hashed.clear()
    assert snapshot() == entry and not hashed
    touch("texts/a.txt")
    assert snapshot() == entry and hashed == ["texts/a.txt"]
    assert snapshot() == entry and hashed == ["texts/a.txt"], "it is known now"
    shutil.copytree("texts", "copies")  # a fresh clone: new inodes, new times
    shutil.rmtree("texts")
    Path("copies").rename("texts")
    assert snapshot() == entry
    shutil.rmtree(CORPUS)
    assert snapshot() == entry, "and so it is where the results are gone"


def test_every_change_is_seen():
    entry = make_corpus()
    before = os.stat("texts/a.txt")
    write("texts/a.txt", "two")  # of the same size
    os.utime("texts/a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))  # and time
    changed = snapshot()
    assert changed["sha256"] and changed | {"sha256": None} == entry
    write("texts/a.txt", "one")
    assert snapshot() == entry, "changed back"
    shutil.copy("texts/a.txt", "texts/c.txt")
    added = snapshot()
    assert (added["files"], added["bytes"]) == (3, 10) and added["sha256"] not in (None, changed["sha256"])
    Path("texts/c.txt").rename("texts/d.txt")
    assert snapshot()["sha256"] != added["sha256"], "names matter, they are the order of the text"
    Path("texts/d.txt").unlink()
    assert snapshot() == entry


def test_a_corpus_of_a_changed_text_is_up_to_date_when_it_is_made(hashed):
    """And what was made of the first text is another corpus."""
    first = make_corpus()
    write("texts/a.txt", "two")
    second = make_corpus()
    assert first["sha256"] is None and second["sha256"] is not None
    hashed.clear()
    assert snapshot() == second and not hashed
    write("texts/a.txt", "one")
    assert snapshot()["sha256"] not in (None, second["sha256"])


def test_another_glob_over_the_same_files_is_another_setting():
    make_corpus()
    entries = local_sources.snapshot({PATTERN: "config.yaml", "texts/a.*": "config.yaml"}, CORPUS)
    assert entries["texts/a.*"]["files"] == 1 and entries["texts/a.*"]["sha256"]


@pytest.mark.parametrize("note", ["", "[]", '{"texts/a.txt": 3}', '{"texts/a.txt": {"identity": []}}'])
def test_a_damaged_note_is_written_again(hashed, note):
    entry = make_corpus()
    hashed.clear()
    (CORPUS / local_sources.HASHES).write_text(note)
    assert snapshot() == entry and hashed == ["texts/a.txt", "texts/b.txt"]
    assert set(read_json(CORPUS / local_sources.HASHES)) == set(hashed)


def test_a_note_that_cannot_be_written_costs_time_alone(hashed, monkeypatch):
    def read_only(*_):
        raise PermissionError(13, "Permission denied")

    entry = make_corpus()
    touch("texts/a.txt")
    monkeypatch.setattr(known_hashes, "write_json", read_only)
    hashed.clear()
    assert snapshot() == entry == snapshot() and hashed == ["texts/a.txt", "texts/a.txt"]


def test_a_glob_without_files_is_an_error():
    with pytest.raises(
        UserError, match=r"config\.yaml: corpus file nothing/\*\.txt: no such file \(relative to /.*\)$"
    ):
        local_sources.snapshot({"nothing/*.txt": "config.yaml"}, CORPUS)
    with pytest.raises(UserError, match=r"texts: no such file; this is a folder: write texts/\*\.txt"):
        local_sources.snapshot({"texts": "config.yaml"}, CORPUS)


def test_two_stars_cross_folders():
    Path("texts/more/deep").mkdir(parents=True)
    Path("texts/more/deep/c.txt").write_text("c")
    assert local_sources.expand_glob("texts/**/*.txt") == ["texts/a.txt", "texts/b.txt", "texts/more/deep/c.txt"]
