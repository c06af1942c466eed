"""Each stage on a full disk, and killed at the worst moment: one line, and the next run is whole."""

import copy
import re
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

    return made_once(tmp_path_factory, "complete", make)


@pytest.fixture
def work(complete, tmp_path) -> Path:
    """A copy without logs, checkpoints and kept scores."""
    shutil.copytree(complete, tmp_path / "work", symlinks=True)
    for name in ("logs", "results/checkpoints", "results/unfinished"):
        shutil.rmtree(tmp_path / "work" / name, ignore_errors=True)
    return tmp_path / "work"


def temporary_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*") if TEMPORARY.fullmatch(path.name)]


@pytest.mark.parametrize("stage", ALL)
def test_a_full_disk_is_one_line_and_a_killed_stage_leaves_nothing_to_the_next_attempt(work, stage):
    settings = next(path.relative_to(work) for path in work.glob(f"results/settings/{stage}/eng*.json"))
    words = f"babelmill.{stage}", settings
    done = run_limited(*words, size=2000, cwd=work)
    error, log = done.stderr.splitlines()[-1], (work / f"logs/{stage}/{settings.stem}.log").read_text()
    assert done.returncode == 1 and error.endswith("File too large") and error in log, done.stderr
    assert not re.search("Traceback|Logging error|bug", done.stderr + log), done.stderr
    assert not temporary_files(work)

    assert run_killed(*words, cwd=work).returncode != 0
    left = temporary_files(work)
    assert left, "it was killed before a file got its name"
    run_module(*words, cwd=work, check=True)
    if stage != "report":
        manifest.verify(work / STAGES[stage].path_of(settings.stem))
    assert not [path for path in left if path.exists()]
