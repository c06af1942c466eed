"""Text from the Hub, in a workflow that is really run: what is downloaded, when again, and at which commit."""

import json

import pytest

from conftest import Workspace

pytestmark = pytest.mark.slow

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
    workspace.configure({"targets": ["eng"]})
    return workspace


TARGET = ("converted/eng", "--until", "corpus")


def commit_of(workspace):
    return json.loads((workspace.path / "results/of/eng/download/manifest.json").read_text())["figures"]["commit"]


def test_a_moved_branch_changes_nothing_until_it_is_asked_for(hub, work):
    work.snakemake(*TARGET)
    first = commit_of(work)
    second = hub.commit("datasets/BabyLM-community/babylm-eng", dataset([*DOCUMENTS, {"text": "one more"}]))
    work.snakemake(*TARGET, "--forcerun", "download")
    assert commit_of(work) == first

    lock = work.path / "results/hub.lock"
    assert lock.read_text() == f"datasets/BabyLM-community/babylm-eng@main {first}\n"
    lock.unlink()
    assert work.would_run(targets=TARGET) == set()
    work.snakemake(*TARGET, "--forcerun", "download")
    assert commit_of(work) == second
    assert work.would_run(targets=TARGET) == set()
    work.configure({"languages": {"eng": {"corpus": {"revision": first}}}})
    assert work.would_run(targets=TARGET) == {("download", "eng"), ("corpus", "eng")}


def test_another_person_gets_the_bytes_of_the_lock(hub, work, tmp_path):
    pinned = hub.repositories["datasets/BabyLM-community/babylm-eng"].branches["main"]
    (work.path / "results").mkdir()
    (work.path / "results/hub.lock").write_text(f"datasets/BabyLM-community/babylm-eng@main {pinned}\n")
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
