"""Run stages that fetch files from the test Hub (the fixture `hub`), and make files of datasets for it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from helpers.programs.prepared import run_python
from helpers.stages import show_as, write_job

PROGRAM = (
    "import runpy; from babelmill.core.bars import Bar; from babelmill.hub import client; client.WAITS = {waits};"
    " Bar.EVERY = {every}; runpy.run_module({module!r}, run_name='__main__')"
)


def asked_for(stage: str, asked: dict[str, Any], out: str = "out", **made_from: list[str]) -> str:
    """Write the settings file of a job whose result is shown as `out`. Return its path."""
    about = {key: value for key, value in asked.items() if key not in ("stage", "version", "made_from")}
    show_as(Path(out), Path(f"results/{stage}/{out}"))
    return write_job(Path(), stage, out, made_from, **about)


def run_stage(
    stage: str, *arguments, waits: tuple = (0, 0, 0, 0), every: float = 30.0, **environment
) -> subprocess.CompletedProcess:
    """Run a stage, with more variables of the environment.

    Args:
        stage: its name.
        arguments: arguments of the command line.
        waits: seconds before each new attempt.
        every: seconds between two lines of a progress bar.
        environment: variables of the environment that differ from the present ones.
    """
    program = PROGRAM.format(module=f"babelmill.{stage}", waits=waits, every=every)
    return run_python("-c", program, *arguments, environment={**os.environ, **environment})


def refusal(done: subprocess.CompletedProcess) -> str:
    """Return the line with which a program ends that refuses what it was asked."""
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    return done.stderr.strip().splitlines()[-1]


def jsonl(texts: list[str], key: str = "text") -> bytes:
    """Return lines of JSON, one text each."""
    return "".join(json.dumps({key: text}) + "\n" for text in texts).encode()


def parquet(**columns: list[str]) -> bytes:
    """Return a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()
