"""Text that is edited: its content decides what runs (`unit/core/test_local_sources.py` and `test_rerun.py` have the rest)."""

import os
import subprocess
from pathlib import Path

from babelmill.core import manifest
from conftest import Workspace

CORPUS = {("corpus", "eng"), ("tokenizer", "eng"), ("shards", "eng"), ("train", "eng")}
CORPUS |= {("export", "eng"), ("evaluate", "eng"), ("convert", "eng")}


def test_more_text_is_seen_and_what_it_makes_stays(workspace):
    """The corpus that a changed text gave is known by its content, too."""
    path = workspace.path / "texts/eng/more.txt"
    path.write_text("One more document, all of its own.\n")
    assert workspace.would_run() == CORPUS
    assert workspace.why("eng")["corpus"] == "texts/eng/*.txt changed"
    workspace.snakemake("converted/eng", "--until", "corpus")
    assert ("corpus", "eng") not in workspace.would_run()
    path.touch()
    assert ("corpus", "eng") not in workspace.would_run()
    path.unlink()
    assert workspace.would_run() == set()


def of_nine_texts(path: Path, name: str, **corpus) -> Workspace:
    """Return a workspace with nine texts, whose names begin with `name`."""
    workspace = Workspace(path)
    (path / "texts").mkdir(parents=True)
    for number in range(9):
        (path / f"texts/{name}{number}.txt").write_text(f"A text of several words, number {number}.\n")
    workspace.configure({"languages": {"eng": {"corpus": {"files": ["texts/*.txt"]} | corpus}}})
    return workspace


def test_a_locale_without_letters(tmp_path):
    """The workflow runs in a folder, and on files, whose names LC_ALL=C cannot write."""
    workspace = of_nine_texts(tmp_path / "żółć", "ż", validation_share=0.3)
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"}
    command = workspace.command("converted/eng", "--until", "corpus")
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Logging error" not in done.stderr
    (log,), corpus = workspace.path.glob("logs/corpus/eng-*.log"), workspace.path / "results/of/eng/corpus"
    sources = manifest.read(corpus)
    assert "Logging error" not in log.read_text(encoding="utf-8")
    assert sources["figures"]["sources"][0]["path"] == "texts/ż0.txt"


def test_a_dry_run_and_a_plan_name_texts_of_too_few_documents(tmp_path):
    workspace = of_nine_texts(tmp_path / "few", "a", document="file", validation_share=0.02)
    note = "eng: too few documents to set any aside: corpus.validation_share = 0.02 of 9 documents; set "
    done = subprocess.run(workspace.command("converted/eng", "-n"), cwd=tmp_path, capture_output=True, text=True)
    assert f"note: {note}" in done.stdout + done.stderr
    assert note in workspace.python("-m", "babelmill", "plan", "eng").stdout
