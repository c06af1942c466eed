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


def test_a_terminal_has_whole_lines_whoever_writes_them(tmp_path):
    """At the end, nothing is left of the bar."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 150))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": theirs, "cwd": tmp_path}
    codes = (WITH_BAR, WITH_WARNINGS, SNAKEMAKE)
    programs = [subprocess.Popen([sys.executable, "-c", code], **pipes) for code in codes]
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
    assert max(map(len, re.split(rb"\r\n|\r\033\[K", output))) < 150, "nothing goes on in the next line"
    *lines, last = (line.rpartition("\033[K")[2] for line in output.decode().split("\r\n"))
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
        (4, 1_010_000, "0:00:00"),
    ):
        bar._done = done
        assert bar._left(bar._began + seconds).startswith(output)
