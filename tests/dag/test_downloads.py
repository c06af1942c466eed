"""Text from the Hub, in a workflow that is really run: what is downloaded, when again, and what a lock does."""

import json

import pytest
import yaml

from conftest import Workspace

DOCUMENTS = [{"text": f"Document number {i} says something of its own.", "category": "qed"} for i in range(300)]


def dataset(documents) -> dict[str, bytes]:
    return {"data/train.jsonl": "".join(json.dumps(row) + "\n" for row in documents).encode()}


@pytest.fixture
def hub(hub):
    for code in ("eng", "deu"):
        hub.commit(f"datasets/BabyLM-community/babylm-{code}", dataset(DOCUMENTS))
    return hub


@pytest.fixture
def work(tmp_path):
    workspace = Workspace(tmp_path / "work")
    workspace.configure({"targets": ["eng"], "models": {"two": {"languages": ["eng", "deu"]}}})
    return workspace


TARGET = ("results/corpora/eng/manifest.json",)


def commit_of(workspace):
    return json.loads((workspace.path / "results/downloads/eng/manifest.json").read_text())["figures"]["commit"]


def test_a_moved_branch_changes_nothing_until_it_is_asked_for(hub, work):
    eng = {("download", "eng"), ("corpus", "eng")}
    work.snakemake(*TARGET)
    first = commit_of(work)
    second = hub.commit("datasets/BabyLM-community/babylm-eng", dataset([*DOCUMENTS, {"text": "one more"}]))
    work.snakemake(*TARGET, "--forcerun", "download")
    assert commit_of(work) == first

    work.python("-m", "babelmill", "lock", "two", check=True)
    lock = yaml.safe_load((work.path / "config/lock.yaml").read_text())
    assert lock["eng"] == {"repository": "BabyLM-community/babylm-eng", "revision": "main", "commit": first}
    assert set(lock) == {"eng", "deu"}
    assert work.would_run(targets=TARGET) == set(), "locking what was downloaded repeats nothing"

    assert f"eng: BabyLM-community/babylm-eng at {second}" in work.python("-m", "babelmill", "lock", "--update").stdout
    assert f"download         source.commit None -> {second}" in work.python("-m", "babelmill", "why", "eng").stdout
    work.snakemake(*TARGET)
    assert commit_of(work) == second
    assert work.would_run(targets=TARGET) == set()
    work.configure({"languages": {"eng": {"corpus": {"revision": first}}}})
    assert work.would_run(targets=TARGET) == eng


def test_another_person_gets_the_bytes_of_the_lock(hub, work, tmp_path):
    pinned = hub.repositories["datasets/BabyLM-community/babylm-eng"].branches["main"]
    assert work.python("-m", "babelmill", "lock", "eng").returncode == 0
    hub.commit("datasets/BabyLM-community/babylm-eng", dataset([{"text": "something else"}]))
    work.snakemake(*TARGET)
    assert commit_of(work) == pinned
    assert work.would_run(targets=TARGET) == set()


def test_a_corpus_key_does_not_download_again_unless_a_budget_counts_what_it_keeps(hub, work):
    work.snakemake(*TARGET)
    work.configure({"corpus": {"min_characters": 5}})
    assert work.would_run(targets=TARGET) == {("corpus", "eng")}
    work.configure({"corpus": {"budget": 0.02}})
    assert work.would_run(targets=TARGET) == {("download", "eng"), ("corpus", "eng")}
    work.snakemake(*TARGET)
    work.configure({"corpus": {"budget": 0.02, "validation_share": 0.3}})
    assert work.would_run(targets=TARGET) == {("corpus", "eng")}


def test_parts_of_datasets_are_locked_each(hub, work):
    pinned = hub.repositories["datasets/BabyLM-community/babylm-eng"].branches["main"]
    parts = [{"repository": "BabyLM-community/babylm-{language}"}, "BabyLM-community/babylm-deu"]
    work.configure({"languages": {"eng": {"corpus": {"hub": parts}}}})
    work.snakemake(*TARGET)
    assert work.python("-m", "babelmill", "lock", "eng").returncode == 0
    lock = yaml.safe_load((work.path / "config/lock.yaml").read_text())
    names = [f"BabyLM-community/babylm-{code}" for code in ("deu", "eng")]
    assert sorted(lock) == [f"datasets/{name}@main" for name in names]
    assert lock[f"datasets/{names[1]}@main"]["commit"] == pinned
    assert work.would_run(targets=TARGET) == set(), "locking what was downloaded repeats nothing"


def test_local_text_needs_no_download(hub, work):
    work.configure({"languages": {"eng": {"corpus": {"builtin": "python-docs"}}}})
    assert work.would_run(targets=TARGET) == {("corpus", "eng")}
    done = work.python("-m", "babelmill", "lock")
    assert "no text, tokenizer, model, suite or task of eng comes from the Hub" in done.stderr
