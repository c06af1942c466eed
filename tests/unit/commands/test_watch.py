"""The live view: its pictures, beside finished models, and on a terminal until Ctrl-C."""

import argparse
import json
import os
import pty
import re
import select
import signal
import time

from babelmill.commands import watch
from babelmill.commands.terminal.curves import Point, curves
from conftest import SMALL
from helpers.programs.prepared import Program


def test_a_falling_loss_falls_in_the_picture():
    """The line goes from the upper left to the lower right, and validation has a mark."""
    trained = [Point(0, 4.0), Point(100, 1.0)]
    picture = curves(trained, [Point(50, 1.0)], last=100, width=15, height=5)
    assert picture == [
        "4.00 ⠑⠤⡀",
        "       ⠈⠢⢄",
        "          ⠑⠢⡀",
        "1.00      ◆ ⠈⠒⢄",
        "     0      100",
    ]
    assert curves(trained, [], last=200, width=15, height=5) == [
        "4.00 ⠱⡀",
        "      ⠘⢄",
        "       ⠈⢢",
        "1.00     ⠱⡀",
        "     0      200",
    ], "the run is only half done"


def test_what_cannot_be_drawn():
    assert curves([], [], last=10, width=40, height=10) == []
    assert curves([Point(1, float("nan"))], [], last=10, width=40, height=10) == []
    assert curves([Point(1, 2.0)], [], last=10, width=10, height=10) == [], "no room"
    assert curves([Point(5, 2.0)], [], last=10, width=20, height=4)[1].strip(), "one number is a dot"
    assert all(len(line) <= 14 for line in curves([Point(5, 2.0)], [], last=10**9, width=14, height=4))


def test_once_beside_finished_models(workspace):
    shown = workspace.babelmill("watch", "--once")
    assert re.search(r"^eng +convert +converted ", shown, re.MULTILINE)
    assert re.search(r"^(eng|deu): loss \d\.\d{3}, validation \d\.\d{3}", shown, re.MULTILINE)
    assert "◆" in shown


def test_a_loss_that_is_no_number(workspace):
    """It is null in the record; the other losses are drawn."""
    record = workspace.path / "results/models/eng/metrics.jsonl"
    lines = workspace.metrics("eng")
    for line in lines[-2:]:
        line["loss"] = None
    for path in (record, *(workspace.path / "results/checkpoints/eng").glob("*/metrics.jsonl")):
        path.unlink()
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = workspace.babelmill("watch", "--once", "eng")
    assert re.search(r"^eng: .*nan", shown, re.MULTILINE)
    assert re.search("[\u2801-\u28ff]", shown)


def test_a_small_window_keeps_what_matters(workspace, monkeypatch):
    monkeypatch.setenv("LINES", "2")
    monkeypatch.setenv("COLUMNS", "40")
    workspace.configure(SMALL | {"models": {"eng": {"tokenizer": {"vocab_size": 300}}}})
    lines = workspace.babelmill("watch", "--once").splitlines()
    assert lines[1].startswith("eng"), "the outdated model, not the converted one"
    assert all(len(line) <= 40 for line in lines)


def test_the_view_is_renewed_until_ctrl_c(workspace):
    """It sees an edit of the configuration, says what is wrong with it, and gives the terminal back."""
    control, terminal = pty.openpty()
    workspace.configure(SMALL | {"models": {"eng": {"tokenizer": {"vocab_size": 300}}}})
    words = ("-m", "babelmill", "watch", "--every", "1")
    process = Program(*words, cwd=workspace.path, outputs=[terminal, terminal], session=True)
    os.close(terminal)
    try:
        assert "outdated" in read_until(control, "outdated")
        workspace.configure(SMALL | {"tokeniser": {}})
        read_until(control, "unknown key tokeniser")
        workspace.configure(SMALL)
        read_until(control, "converted")
        os.killpg(process.pid, signal.SIGINT)
        assert "\x1b[?1049l" in read_until(control, "\x1b[?1049l"), "the terminal's first screen"
        assert process.wait() == 0
    finally:
        os.close(control)


def test_the_wait_between_two_views_does_not_grow_with_the_load(monkeypatch):
    """What counts is the processor time of a view, not how long it waited for the processor."""
    monkeypatch.setattr(watch, "view", lambda *_: time.sleep(0.5) or ["all is well"])
    before = watch.seconds_of_views()
    assert watch.view_now(argparse.Namespace(), 80, 24) == ["all is well"]
    assert 0 < watch.seconds_of_views() - before < 0.4


def read_until(control: int, words: str) -> str:
    """Return what a terminal shows, up to and with some words."""
    shown, end = "", time.monotonic() + 60
    while words not in shown:
        assert time.monotonic() < end, shown
        if select.select([control], [], [], 0.5)[0]:
            shown += os.read(control, 65536).decode()
    return shown
