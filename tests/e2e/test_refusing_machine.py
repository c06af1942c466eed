"""Each stage on a full disk, killed at the worst moment, and without memory: one line, and the next run is whole."""

import copy
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from babelmill.core import manifest, writers
from babelmill.stages import STAGES
from conftest import ROOT, SMALL, Workspace, made_once
from helpers.programs.prepared import run_killed, run_limited, run_module

pytestmark = pytest.mark.slow

ALL = ("suite", "corpus", "tokenizer", "shards", "train", "export", "evaluate", "score", "convert", "report")


@pytest.fixture(scope="module")
def complete(built, tmp_path_factory) -> Path:
    """A workflow that has run for a model with a suite, up to its report."""

    def make(folder: Path) -> None:
        shutil.copytree(built, folder, symlinks=True)
        values = copy.deepcopy(SMALL)
        values["evaluation"] |= {"suites": ["english_basics"], "masked_pairs": 1}
        workspace = Workspace(folder)
        workspace.configure(values)
        workspace.snakemake("reports/eng.html")
        output = workspace.snakemake("reports/eng.html", "--forceall", "--dry-run", "--printshellcmds")
        commands = re.findall(r"python -m babelmill\.(\w+) (.*)", output.stdout + output.stderr)
        (folder / "commands").write_text("\n".join(f"{stage} {words}" for stage, words in commands))

    return made_once(tmp_path_factory, "complete", make)


@pytest.fixture
def work(complete, tmp_path) -> Path:
    """A copy without logs, checkpoints and kept scores."""
    shutil.copytree(complete, tmp_path / "work", symlinks=True)
    for name in ("logs", "results/checkpoints", "results/unfinished"):
        shutil.rmtree(tmp_path / "work" / name, ignore_errors=True)
    return tmp_path / "work"


def command(work: Path, stage: str) -> list[str]:
    """The module and the arguments of a stage, as the workflow calls it."""
    lines = dict(line.split(" ", 1) for line in (work / "commands").read_text().splitlines())
    return [f"babelmill.{stage}", *shlex.split(re.sub(r"\$\(\(.*?\)\)", "1", lines[stage]))]


def log_of(words: list[str], work: Path) -> str:
    path = work / "logs" / words[0].partition(".")[2] / f"{Path(words[1]).stem}.log"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("stage", ALL)
def test_a_full_disk_is_one_line_of_the_stage(work, stage):
    words = command(work, stage)
    done = run_limited(*words, size=2000, cwd=work)
    error = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "error: a file got larger than allowed" in error, done.stderr
    assert error in log_of(words, work)
    assert not re.search("Traceback|Logging error|bug", done.stderr + log_of(words, work)), done.stderr
    assert not [path for path in work.rglob(".*") if writers.FORM.fullmatch(path.name)]


@pytest.mark.parametrize("stage", ALL)
def test_a_stage_that_was_killed_leaves_nothing_to_the_next_attempt(work, stage):
    words = command(work, stage)
    assert run_killed(*words, cwd=work).returncode != 0
    left = list(writers.leftovers([work], deep=True))
    assert left, "it was killed before a file got its name"
    run_module(*words, cwd=work, check=True)
    if stage != "report":
        manifest.verify(work / STAGES[stage].path_of(Path(words[1]).stem))
    assert not [path for path in left if path.exists()]


@pytest.mark.parametrize("stage", ("suite", "corpus", "train", "score", "convert", "report"))
@pytest.mark.parametrize("kilobytes", (125_000, 150_000))
def test_no_memory_while_a_stage_starts_is_one_line(work, stage, kilobytes):
    """Also while libraries are imported. (With some limits, a library in C ends the process itself, with its own line.)"""
    words = command(work, stage)
    start = f'ulimit -v {kilobytes}; exec "$0" -m "$@"'
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow"), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-c", start, sys.executable, *words], cwd=work, env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0 and not re.search("Traceback|Logging error|a bug", done.stderr), done.stderr
    if "error: not enough memory" in done.stderr:
        assert "error: not enough memory" in log_of(words, work)


@pytest.mark.parametrize("kilobytes", (0, 8_000, 30_000))
def test_reading_scores_without_memory_ends(complete, kilobytes):
    """Arrow reads in threads of its own. Where these cannot start, one of its two functions waits forever."""
    code = (
        "import resource, sys; sys.argv[0] = '-m'; import babelmill.commands.terminal.comparison as c; from pathlib import Path\n"
        "import pyarrow.dataset; pages = int(open('/proc/self/statm').read().split()[0])\n"
        f"size = pages * resource.getpagesize() + {kilobytes} * 1024; resource.setrlimit(resource.RLIMIT_AS, (size, size))\n"
        "print(len(c.read(Path('results/of/eng/score/english_basics'), 'eng').rows))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow"), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=complete, env=environment, capture_output=True, text=True, timeout=60
    )
    assert "200\n" in done.stdout or done.stderr.startswith("error: n"), done.stderr
