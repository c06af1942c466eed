"""Content decides what runs, and times obey: results that were copied, restored, or made by a clock that is ahead."""

import copy
import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from babelmill.config import loading
from babelmill.core import manifest
from babelmill.graph import explain
from babelmill.stages import STAGES
from conftest import ROOT, SMALL, Workspace, write_texts
from finished import finish
from prepared import run_python

AFTER_TOKENIZER = {"tokenizer", "shards", "train", "export", "evaluate", "score", "convert"}
VALUES = copy.deepcopy(SMALL) | {
    "targets": ["two", "more"],
    "evaluation": {"documents": 10, "suites": ["english_basics"]},
    "models": {"two": {"languages": ["eng", "deu"]}, "more": {"languages": ["eng"], "model": {"source": "eng"}}},
}


@pytest.fixture
def tree(tmp_path, monkeypatch) -> Workspace:
    """A finished tree of a mixture, and of a model that continues another one. Nothing has run; Snakemake knows nothing."""
    monkeypatch.chdir(tmp_path)
    for language in ("eng", "deu"):
        write_texts(tmp_path / "texts" / language, language, documents=3)
    workspace = Workspace(tmp_path)
    workspace.configure(VALUES)
    finish(loading.load(), "two", "more")
    return workspace


def rewrite(folder: str, change) -> None:
    """Write a manifest with another content, as a run with other settings would have done."""
    path = Path(folder, manifest.NAME)
    content = json.loads(path.read_text())
    change(content)
    manifest.write_sealed(path, content)


def other_vocabulary():
    rewrite("results/tokenizers/two", lambda content: content["settings"]["tokenizer"].update(vocab_size=300))


def other_rate_of_the_source():
    rewrite("results/models/eng", lambda content: content["settings"]["train"].update(learning_rate=0.5))


def tokenizer_again():
    rewrite("results/tokenizers/two", lambda content: content["figures"].update(seconds=1))


def lost_intermediates():
    for folder in ("tokenizers/two", "shards/two", "suites", "exports/more"):
        shutil.rmtree(f"results/{folder}")


def lost_intermediates_and_other_settings():
    lost_intermediates()
    changed = {"train": SMALL["train"] | {"learning_rate": 0.5}, "tokenizer": {"vocab_size": 300}}
    Workspace(Path()).configure(VALUES | changed)


def lost_manifest():
    Path("results/models/two/manifest.json").unlink()


SITUATIONS = {
    "nothing": (lambda: None, 200),
    "a changed key": (other_vocabulary, 40),
    "a changed key of the model that another one continues": (other_rate_of_the_source, 20),
    "an upstream result made again": (tokenizer_again, 20),
    "deleted intermediates": (lost_intermediates, 40),
    "deleted intermediates, changed keys": (lost_intermediates_and_other_settings, 20),
    "a deleted manifest": (lost_manifest, 20),
}


@pytest.mark.parametrize(("happens", "draws"), SITUATIONS.values(), ids=SITUATIONS.keys())
def test_shuffled_times_change_nothing_of_what_runs(tree, happens, draws):
    """Snakemake's own graph, for times drawn at random; what `why` says is the same."""
    happens()
    configuration = loading.load()
    said = {job.folder: job for model in ("two", "more") for job in explain(configuration, model) if job.runs}
    assert bool(said) == (happens not in (SITUATIONS["nothing"][0], lost_intermediates, lost_manifest))
    program = ROOT / "tests/file_time_checks.py"
    done = run_python(program, draws, 7, ROOT / "Snakefile", "converted/two", "converted/more", cwd=tree.path)
    assert done.returncode == 0, done.stderr
    found, *others = re.findall(r"^\d+ draws: (.*)", done.stdout, re.MULTILINE)
    assert not others, done.stdout
    assert sorted(found.split()) == sorted(job.folder.as_posix() for job in said.values()), done.stdout
