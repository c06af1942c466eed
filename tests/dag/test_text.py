"""Text of this machine and of the Hub: its content decides what runs, and what of it is a test sentence is dropped.

`unit/core/test_local_sources.py` and `test_rerun.py` have the rest.
"""

import os
import subprocess
from pathlib import Path

import pytest

from babelmill.core import manifest
from babelmill.core.files import read_json
from conftest import SMALL, Workspace
from helpers.hub.hub_stage import jsonl

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
    assert done.returncode == 0 and "Logging error" not in done.stderr, done.stderr
    (log,), corpus = workspace.path.glob("logs/corpus/eng-*.log"), workspace.path / "results/of/eng/corpus"
    assert "Logging error" not in log.read_text(encoding="utf-8")
    assert manifest.read(corpus)["figures"]["sources"][0]["path"] == "texts/ż0.txt"


def test_a_dry_run_and_a_plan_name_texts_of_too_few_documents(tmp_path):
    workspace = of_nine_texts(tmp_path / "few", "a", document="file", validation_share=0.02)
    note = "eng: too few documents to set any aside: corpus.validation_share = 0.02 of 9 documents; set "
    assert f"note: {note}" in workspace.snakemake("converted/eng", "-n").stdout
    assert note in workspace.python("-m", "babelmill", "plan", "eng").stdout


@pytest.mark.slow
def test_a_moved_branch_changes_nothing_until_it_is_asked_for(hub, tmp_path):
    texts = [f"Document number {i} says something of its own." for i in range(300)]
    name, target = "datasets/BabyLM-community/babylm-eng", ("converted/eng", "--until", "corpus")
    hub.commit(name, {"data/train.jsonl": jsonl(texts)})
    work = Workspace(tmp_path / "work")
    work.configure({"targets": ["eng"]})

    def commit() -> str:
        work.snakemake(*target, "--forcerun", "download")
        assert work.would_run(targets=target) == set()
        return read_json(work.path / "results/of/eng/download/manifest.json")["figures"]["commit"]

    first = commit()
    second = hub.commit(name, {"data/train.jsonl": jsonl([*texts, "one more"])})
    assert commit() == first
    lock = work.path / "results/hub.lock"
    assert lock.read_text() == f"{name}@main {first}\n"
    lock.unlink()
    assert work.would_run(targets=target) == set()
    assert commit() == second
    work.configure({"languages": {"eng": {"corpus": {"revision": first}}}})
    assert work.would_run(targets=target) == {("download", "eng"), ("corpus", "eng")}


@pytest.mark.slow
def test_a_document_with_a_test_sentence_is_dropped(workspace):
    """One text of eng holds one, in other clothes. The key is for all languages; the suite has no items of deu."""
    line = "  HE SAID: the Small\nfox \u2014 sees, a bird!"
    (workspace.path / "texts/eng/planted.txt").write_text(f"{line} And more of it.")
    (pairs := workspace.path / "pairs.tsv").write_text(
        "good\tbad\nThe small fox sees a bird.\tThe small fox see a bird.\n"
    )
    corpora, of_eng = ["--until", "corpus"], workspace.path / "results/of/eng/corpus/manifest.json"
    workspace.snakemake("converted/eng", *corpora)
    before = read_json(of_eng)["figures"]
    mine = {"files": ["pairs.tsv"], "language": "eng", "good": "good", "bad": "bad"}
    workspace.configure(SMALL | {"suites": {"mine": mine}, "corpus": {"decontaminate": ["mine"]}})
    assert workspace.would_run(*corpora) == {("suite", "mine_eng"), ("corpus", "eng")}
    workspace.snakemake("converted/eng", *corpora)
    after = read_json(of_eng)["figures"]
    assert after["dropped"] == before["dropped"] | {"test_text": 1} and after["suites"] == {"mine": 1}
    (example,) = after["examples"]["test_text"]
    assert example["note"] == "mine: the small fox sees a bird" and example["text"].startswith(line)
    assert workspace.would_run(*corpora) == set()
    pairs.write_text("good\tbad\nAnother sentence of the suite.\tOther.\n")
    assert workspace.would_run(*corpora) == {("suite", "mine_eng"), ("corpus", "eng")}
