"""Local text: what counts is its content, and finding out that nothing changed reads nothing."""

import os
import shutil
import time
from pathlib import Path

import pytest

from babelmill.core import local_sources
from babelmill.core.files import UserError, read_json
from babelmill.core.local_sources import expand_glob
from helpers.damage import without_rights

PATTERN = "texts/*.txt"


@pytest.fixture(autouse=True)
def texts(folder):
    """A folder with two texts."""
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("one")
    Path("texts/b.txt").write_text("four")


def write(path: str, text: str) -> None:
    time.sleep(0.05)  # file systems count the time of a change in steps of some ms
    Path(path).write_text(text)


def snapshot() -> dict:
    """The entry of the pattern."""
    return local_sources.of_files(expand_glob(PATTERN))


def test_what_stays_is_not_read_again(monkeypatch):
    hashed, whole = [], local_sources.sha256
    monkeypatch.setattr(local_sources, "sha256", lambda path: hashed.append(path) or whole(path))
    entry = snapshot()
    assert (entry["files"], entry["bytes"]) == (2, 7) and hashed == ["texts/a.txt", "texts/b.txt"]
    hashed.clear()
    assert snapshot() == entry and not hashed
    write("texts/a.txt", "one")
    assert snapshot() == entry and hashed == ["texts/a.txt"]
    assert snapshot() == entry and hashed == ["texts/a.txt"], "it is known now"
    local_sources.HASHES.write_text('{"texts/a.txt": {"identity": []}}')  # damaged: it is written again
    assert snapshot() == entry and len(read_json(local_sources.HASHES)) == 2
    shutil.copytree("texts", "copies")  # a fresh clone: new inodes, new times
    shutil.rmtree("texts")
    Path("copies").rename("texts")
    assert snapshot() == entry


def test_every_change_is_seen():
    entry = snapshot()
    before = os.stat("texts/a.txt")
    write("texts/a.txt", "two")  # of the same size
    os.utime("texts/a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))  # and time
    changed = snapshot()
    assert changed["sha256"] != entry["sha256"] and changed | {"sha256": entry["sha256"]} == entry
    write("texts/a.txt", "one")
    assert snapshot() == entry, "changed back"
    shutil.copy("texts/a.txt", "texts/c.txt")
    added = snapshot()
    assert (added["files"], added["bytes"]) == (3, 10) and added["sha256"] != entry["sha256"]
    Path("texts/c.txt").rename("texts/d.txt")
    assert snapshot()["sha256"] != added["sha256"], "names matter, they are the order of the text"
    Path("texts/d.txt").unlink()
    assert snapshot() == entry


def test_names_with_brackets_and_accents_are_found_as_they_are_written():
    for name in ("a[1].txt", "old [x]/café.txt", "old [x]/cafe\u0301s.txt"):
        Path("texts", name).parent.mkdir(exist_ok=True)
        Path("texts", name).write_text(name)
    assert expand_glob("texts/a[1].txt") == ["texts/a[1].txt"]
    assert expand_glob("texts/[ab].txt") == ["texts/a.txt", "texts/b.txt"]
    both = ["texts/old [x]/cafe\u0301s.txt", "texts/old [x]/café.txt"]
    assert expand_glob("texts/old [x]/café*") == expand_glob("texts/old [x]/cafe\u0301*") == both


def test_text_that_may_not_be_read_is_not_left_out(folder):
    for pattern, said in {
        "nothing/*.txt": r"config\.yaml: nothing/\*\.txt: no such file \(relative to /.*\)$",
        "texts": r"texts: no such file; this is a folder: write texts/\*$",
    }.items():
        with pytest.raises(UserError, match=said):
            local_sources.matched(pattern, "config.yaml:")
    Path("texts/locked").mkdir()
    Path("texts/one.txt").write_text("one")
    for path in ("texts/locked", "texts/one.txt"):
        Path(path).chmod(0)
    with without_rights(folder):
        for pattern, place in (("texts/**/*.txt", "texts/locked"), ("texts/one.txt", "texts/one.txt")):
            with pytest.raises(UserError, match=f"{place}: cannot be read: "):
                local_sources.files_of(pattern, "corpus file")


def test_links_that_lead_back_are_followed_once(folder):
    Path("texts/b.txt").unlink()
    Path("texts/deep/er").mkdir(parents=True)
    Path("texts/deep/er/b.txt").write_text("b")
    Path("texts/deep/up").symlink_to("..")
    Path("texts/self").symlink_to("self")
    Path("texts/c.txt").symlink_to("a.txt")
    Path("texts/.hidden.txt").touch()
    Path("elsewhere").mkdir()
    Path("elsewhere/d.txt").write_text("d")
    Path("texts/far").symlink_to(folder / "elsewhere")
    expected = ["texts/a.txt", "texts/deep/er/b.txt", "texts/far/d.txt"]
    assert expand_glob("texts/**/*.txt") == expected == expand_glob("./texts//**/*.txt")
    assert expand_glob(f"{folder}/texts/**") == [f"{folder}/{path}" for path in expected]
    assert expand_glob("**/b.txt") == ["texts/deep/er/b.txt"] == expand_glob("**/er/**/*.txt")
    assert expand_glob("texts/*/*.txt") == ["texts/far/d.txt"]
