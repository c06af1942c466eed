"""Each stage on a full disk, and killed at the worst moment: one line, and the next run is whole."""

import copy
import re
import shlex
import shutil
from pathlib import Path

import pytest

from babelmill.core import manifest
from babelmill.core.files import TEMPORARY
from babelmill.stages import STAGES
from conftest import SMALL, Workspace, made_once
from helpers.programs.prepared import run_killed, run_limited, run_module

pytestmark = pytest.mark.slow

ALL = ("suite", "corpus", "tokenizer", "shards", "train", "export", "evaluate", "score", "convert", "report")


@pytest.fixture(scope="module")
def complete(built, tmp_path_factory) -> Path:
    """A workflow that has run for a model with a suite, up to its report."""

    def make(folder: Path) -> None:
        shutil.copytree(built, folder, symlinks=True)
        values = copy.deepcopy(SMALL)
        values["evaluation"] |= {"suites": ["english_basics"], "max_masked_items": 1}
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


def temporary_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*") if TEMPORARY.fullmatch(path.name)]


@pytest.mark.parametrize("stage", ALL)
def test_a_full_disk_is_one_line_of_the_stage(work, stage):
    words = command(work, stage)
    done = run_limited(*words, size=2000, cwd=work)
    error = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and error.endswith("File too large"), done.stderr
    assert error in log_of(words, work)
    assert not re.search("Traceback|Logging error|bug", done.stderr + log_of(words, work)), done.stderr
    assert not temporary_files(work)


@pytest.mark.parametrize("stage", ALL)
def test_a_stage_that_was_killed_leaves_nothing_to_the_next_attempt(work, stage):
    words = command(work, stage)
    assert run_killed(*words, cwd=work).returncode != 0
    left = temporary_files(work)
    assert left, "it was killed before a file got its name"
    run_module(*words, cwd=work, check=True)
    if stage != "report":
        manifest.verify(work / STAGES[stage].path_of(Path(words[1]).stem))
    assert not [path for path in left if path.exists()]
