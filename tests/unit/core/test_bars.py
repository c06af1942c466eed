"""Bars of several jobs: on a terminal one draws, elsewhere there are plain lines."""

import contextlib
import logging
import os
import pty
import select
import sys
import tempfile
import termios
from types import SimpleNamespace

from babelmill.core import bars, stage_entry
from babelmill.core.bars import Bar


@contextlib.contextmanager
def terminal(monkeypatch):
    """Standard error is a terminal; gives a function that reads what is written there."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    with open(theirs, "w", closefd=False) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(stage_entry, "terminal_id", lambda: os.ttyname(theirs).replace("/", "-"))
        monkeypatch.setattr(stage_entry, "shown_name", "")  # an earlier test may have run a stage in this process

        def wait_for(text: str) -> str:
            """Read until a text is there; return all that was read."""
            output = ""
            while text not in output:
                stream.flush()
                assert select.select([ours], [], [], 60)[0], f"no {text!r} in {output!r}"
                output += os.read(ours, 10_000).decode()
            return output

        yield wait_for
    os.close(ours)
    os.close(theirs)


def test_of_several_jobs_one_draws(monkeypatch):
    """The other begins when it is done, also when it is left before its end."""
    with terminal(monkeypatch) as wait_for:
        monkeypatch.setattr(Bar, "DRAWN_EVERY", 0.0)
        first, second = Bar(4), Bar(4)
        first.show(1, "first 1/4")
        wait_for(" 25% [######..................] first 1/4  unknown time left")
        second.show(1, "second 1/4")
        first.show(2, "first 2/4")
        assert "second" not in wait_for("first 2/4")
        first.close()
        second.show(2, "second 2/4")
        wait_for(" 50% [############............] second 2/4")
        second.close()


def test_without_a_place_for_the_lock_a_job_goes_on(monkeypatch, tmp_path):
    with terminal(monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        Bar(4).show(1, "1/4")


def test_the_time_left_is_not_foretold_at_the_beginning():
    """Five seconds say nothing, nor does a minute of which less than one percent came out."""
    bar = Bar(1_010_000, 10_000)
    for seconds, done, output in (
        (4, 410_000, "unknown time"),
        (6, 410_000, "0:00:09"),
        (50, 19_000, "unknown time"),
        (70, 19_000, "2:08:2"),
        (70, 10_000, "unknown time"),
        (4, 1_010_000, "0:00:00"),
    ):
        bar._done = done
        assert bar._left(bar._began + seconds).startswith(output)


def test_a_short_job_has_no_plain_line(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    now = 1000.0
    monkeypatch.setattr(bars, "time", SimpleNamespace(monotonic=lambda: now))
    Bar(2).show(2, "2/2 documents")
    assert not caplog.records
    bar = Bar(10)
    now += 40.0
    for done in (4, 5, 10):
        bar.show(done, f"{done}/10 documents")
    assert [record.message for record in caplog.records] == [
        "4/10 documents  0:01:00 left",
        "10/10 documents  0:00:00 left",
    ]
