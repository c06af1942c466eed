"""Bars of several jobs: on a terminal one draws, elsewhere there are plain lines."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import termios

from babelmill.core.bars import Bar

READY = "import sys; print(flush=True); sys.stdin.read()"  # waits until all programs are ready
# Programs that share a terminal: a stage with a bar that is wider than the terminal, a stage that warns, and Snakemake.
STAGE = """
import logging, os; from pathlib import Path; from babelmill.core import stage_entry
status = os.fstat(2); os.environ["BABELMILL_TERMINAL"] = f"{status.st_dev}:{status.st_ino}"
stage_entry.configure_logging(Path(os.devnull), "train eng")
"""
WITH_BAR = f"""{STAGE}
from babelmill.core.bars import Bar
Bar.DRAWN_EVERY = Bar.EVERY = 0.0
{READY}
bar = Bar(10_000)
for done in range(2000):
    bar.show(done, f"step {{done}} " + "of 10,000 " * 30)
    logging.info("step %d", done)
bar.close()
"""
WITH_WARNINGS = f"""{STAGE}
{READY}
for number in range(2000): logging.warning("warning %d ends", number)
"""
SNAKEMAKE = f"""
import logging; from babelmill.commands.run_view import RunView
from types import SimpleNamespace
view = RunView(SimpleNamespace(dryrun=False, quiet=set(), printshellcmds=False, verbose=False))
{READY}
for number in range(2000):
    view.show(logging.LogRecord("snakemake", logging.INFO, "", 0, "message %d ends", (number,), None))
"""


def screen(output: str, columns: int) -> list[str]:
    """Return the lines that a terminal shows after so much output."""
    lines, place = [""], 0
    for part in re.findall(r"\r|\n|\033\[K|[^\r\n\033]+", output):
        if part == "\n":
            lines.append("")
        elif part == "\033[K":
            lines[-1] = lines[-1][:place]
        elif part != "\r":
            whole = lines.pop()[:place] + part
            lines += [whole[begin : begin + columns] for begin in range(0, len(whole), columns)]
        place = 0 if part in "\r\n" else len(lines[-1])
    return lines


def test_a_terminal_has_whole_lines_whoever_writes_them(tmp_path):
    """At the end, nothing is left of the bar."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 150))
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path
        )
        for code in (WITH_BAR, WITH_WARNINGS, SNAKEMAKE)
    ]
    os.close(theirs)
    for program in programs:
        program.stdout.read(1)
    for program in programs:
        program.stdin.close()
    output = b""
    with contextlib.suppress(OSError):  # the last program has closed the terminal
        while data := os.read(ours, 65536):
            output += data
    os.close(ours)
    for program in programs:
        program.stdout.close()
        assert program.wait() == 0
    assert b"] step 1999 of 10,000" in output
    *lines, last = screen(output.decode(), 150)
    shown = [re.sub("^[0-9: ]+train eng  ", "", line) for line in lines]
    assert sorted(shown) == sorted(f"{what} {i} ends" for what in ("warning", "message") for i in range(2000))
    assert not last


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
