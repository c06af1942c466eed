"""Atomic files and manifests: nothing half-written, and nothing damaged read."""

import argparse
import errno
import fcntl
import logging
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from babelmill import cli
from babelmill.core import bars, local_sources, manifest, stage_entry
from babelmill.core.files import UserError, atomic_folder, atomic_write, lock, remove_leftovers, write_json
from babelmill.runtime.run_lock import locked
from helpers.damage import without_rights
from helpers.programs.prepared import run_python

# A stage whose result is converted/eng, and its settings.
STAGE = SimpleNamespace(stage="corpus", raw={"stage": "corpus"}, path_of=lambda name: Path("converted", name))
LOG = Path("logs/corpus/eng.log")
pytestmark = pytest.mark.usefixtures("folder")


def run(function, writes_log: bool = True) -> int:
    """Run a function as a job of the stage."""
    path = Path("results/settings/corpus/eng.json")
    return stage_entry.run(function, stage_entry.Job(STAGE, path, 1, 0, argparse.Namespace()), writes_log)


def test_a_file_or_folder_is_replaced_whole_or_not_at_all_with_the_permissions_of_the_umask(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": 2})
    with pytest.raises(RuntimeError), atomic_write(tmp_path / "a.json") as file:
        file.write(b"half")
        raise RuntimeError
    assert (tmp_path / "a.json").read_text() == '{\n "a": 2,\n "b": 1\n}\n'
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "old").touch()
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "folder") as folder:
        raise RuntimeError
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["a.json", "folder", "old"]
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "new").touch()
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["a.json", "folder", "new"]
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o666 & ~mask
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~mask


def test_no_name_of_a_file_speaks_to_a_terminal_or_forges_a_message(tmp_path, capsys):
    """In messages, in errors of stages and of commands, on the terminal and in the log."""
    name = tmp_path / "a\x1b[2J\n12:00:00 error: forged\u202e"

    def stage(_):
        logging.getLogger("babelmill").info("reading %s", name)
        raise UserError(f"{name}: no such file")

    assert run(stage) == 1
    shown, log = capsys.readouterr().err, LOG.read_text()
    cli.main(["show", str(name)])
    for text in (shown, log, "12:00:00 " + capsys.readouterr().err):
        assert "\x1b" not in text and "\u202e" not in text and "a\\x1b[2J" in text
        assert all(re.match(r"\d\d:\d\d:\d\d |  ", line) for line in text.splitlines())
        assert "\n12:00:00" not in text


@pytest.mark.parametrize(("name", "reason"), [("x" * 300, "File name too long"), ("", "Permission denied")])
def test_what_the_file_system_refuses_is_one_line_of_a_stage(tmp_path, capsys, name, reason):
    """Each function writes where a stage may write: a file, a folder, and by another library."""
    place = (folder := tmp_path / "refusing") / name
    folder.mkdir(mode=0o777 if name else 0o555)
    with without_rights(tmp_path):
        for write in (
            lambda _: write_json(place / "a.json", {}),
            lambda _: atomic_folder(place / "a").__enter__(),
            lambda _: (place / "b").mkdir(parents=True),
            lambda _: place.with_suffix(".txt").touch(),
        ):
            assert run(write, writes_log=False) == 1
            (line,) = capsys.readouterr().err.splitlines()
            assert f" error: {folder}" in line and line.endswith(f": {reason}") and ".tmp" not in line


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EROFS, "Read-only file system", "a"), "a: Read-only file system"),
        (OSError(errno.EFBIG, "File too large", "source", None, "copy"), "copy: File too large"),
        (Exception("No space left on device (os error 28)"), "No space left on device"),
        (MemoryError(), "not enough memory; free some"),
        (KeyError("x"), "unexpected; this is a bug in Babelmill"),
    ],
)
def test_what_the_machine_refuses_is_one_line_and_a_bug_has_its_traceback(tmp_path, capsys, error, message):
    def stage(_):
        raise error

    assert run(stage) == 1
    line, *more = capsys.readouterr().err.splitlines()
    assert f"error: {message}" in line and f"error: {message}" in LOG.read_text()
    assert bool(more) == ("bug" in message)


def test_a_log_on_a_full_disk_ends_nothing(tmp_path, monkeypatch, capsys):
    """The error is then on the terminal, even beside the plugin, which quotes errors from logs."""
    monkeypatch.setenv(bars.TERMINAL, bars.terminal_id())

    def stage(_):
        logging.getLogger("babelmill").info("a message")
        raise UserError("the stage's error")

    LOG.parent.mkdir(parents=True)
    LOG.symlink_to("/dev/full")
    assert run(stage) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("error: the stage's error")


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    """Lustre and FUSE, as they are mounted in places."""

    def refuse(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with open(tmp_path / "lock", "w") as file, locked(tmp_path / "run"):
        assert lock(file) and lock(file, wait=False)
    with atomic_write(tmp_path / "a") as file:
        remove_leftovers([tmp_path], deep=True)
        file.write(b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"


KILLED = """
import os, signal, sys
from babelmill.core.files import atomic_folder, atomic_write
with atomic_folder(sys.argv[1]) as folder, atomic_write(sys.argv[2]) as file, atomic_write(folder / "inside"):
    file.write(bytes(1000))
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_deleted_and_what_a_live_one_writes_is_not(tmp_path):
    out = tmp_path / "converted/eng"
    out.mkdir(parents=True)
    run_python("-c", KILLED, out, out / "model.safetensors")
    left = {path for folder in (out, out.parent) for path in folder.glob(".*")}
    assert sorted(path.is_dir() for path in left) == [False, True]
    own = [out / ".hidden", out / ".a.json.abcdefgh", out / "a.json.abcdefgh.tmp", out / ".notes.v2.tmp"]
    for path in own:
        path.touch()
    with atomic_write(out / "model.safetensors") as file, atomic_folder(out.parent / "deu") as folder:
        run(lambda _: None)
        assert not any(path.exists() for path in left)
        assert folder.is_dir() and all(path.exists() for path in own)
        file.write(b"x")
    assert (out / "model.safetensors").read_bytes() == b"x"


@pytest.mark.parametrize("remember", [False, True])
def test_damage_is_named_also_where_the_hash_is_remembered(tmp_path, monkeypatch, remember):
    monkeypatch.setattr(local_sources, "LARGE", size := 1 << 20)
    path = tmp_path / "train.parquet"
    path.write_bytes(bytes(size))
    (tmp_path / "validation.parquet").write_bytes(bytes(10))
    manifest.write(tmp_path, STAGE, ["train.parquet", "validation.parquet"], figures={"documents": 3})
    for _ in range(2):
        assert manifest.verify(tmp_path, remember=remember)["figures"] == {"documents": 3}
    for content, said in ((b"x" + bytes(size - 1), "damaged, its sha256 is not"), (b"", ""), (None, "")):
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(UserError, match=rf"train\.parquet.*{said}"):
            manifest.verify(tmp_path, "train.parquet", remember=remember)
        manifest.verify(tmp_path, "validation.parquet", remember=remember)
