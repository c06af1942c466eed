"""Run stages that fetch files from the test Hub (the fixture `hub`), and make files of datasets for it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.core import manifest
from helpers.programs.prepared import run_python
from helpers.stages import show_as, write_job

# Waiting before another attempt is not what is tested.
PROGRAM = "import runpy, time; time.sleep = lambda seconds: None; runpy.run_module({module!r}, run_name='__main__')"


def asked_for(stage: str, asked: dict[str, Any], out: str = "out", **made_from: list[str]) -> str:
    """Write the settings file of a job whose result is shown as `out`. Return its path."""
    about = {key: value for key, value in asked.items() if key not in ("stage", "version", "made_from")}
    show_as(Path(out), Path(f"results/{stage}/{out}"))
    return write_job(Path(), stage, out, made_from, **about)


def run_stage(stage: str, *arguments, **environment) -> subprocess.CompletedProcess:
    """Run a stage without waiting between attempts, with more variables of the environment."""
    program = PROGRAM.format(module=f"babelmill.{stage}")
    return run_python("-c", program, *arguments, environment={**os.environ, **environment})


def figures_of(done: subprocess.CompletedProcess, out: str = "out") -> dict[str, Any]:
    """Return the figures of the result of a stage that succeeded; its files are verified."""
    assert done.returncode == 0, done.stderr
    return manifest.verify(out)["figures"]


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
