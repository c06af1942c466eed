"""Text from the Hub, in a workflow that is really run: what is downloaded, when again, and at which commit."""

import json
import shutil
from pathlib import Path

import pytest

from conftest import Workspace

pytestmark = pytest.mark.slow

DOCUMENTS = [{"text": f"Document number {i} says something of its own.", "category": "qed"} for i in range(300)]


def dataset(documents) -> dict[str, bytes]:
    return {"data/train.jsonl": "".join(json.dumps(row) + "\n" for row in documents).encode()}


# What `babelmill tune` does before it tunes.
BY_HAND = """
from babelmill.commands.by_hand import made_by_hand
from babelmill.config import loading
from babelmill.graph import Graph

print(made_by_hand(Graph(loading.load()), "task", "eng", "topics"))
"""


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


def test_parts_of_datasets_have_a_commit_each(hub, work):
    pinned = hub.repositories["datasets/BabyLM-community/babylm-eng"].branches["main"]
    parts = [{"repository": "BabyLM-community/babylm-{language}"}, "BabyLM-community/babylm-deu"]
    work.configure({"languages": {"eng": {"corpus": {"hub": parts}}}})
    work.snakemake(*TARGET)
    lock = dict(line.split() for line in (work.path / "results/hub.lock").read_text().splitlines())
    names = [f"datasets/BabyLM-community/babylm-{code}@main" for code in ("deu", "eng")]
    assert sorted(lock) == names and lock[names[1]] == pinned


def test_a_moved_branch_changes_no_rows_of_a_task_until_it_is_asked_for(hub, work, monkeypatch):
    """The workflow and commands by hand take the commit that was fetched first, whoever fetched it."""
    monkeypatch.chdir(work.path)
    row, repository = "text\tlabel\na {}\t0\nb {}\t1\n", "org/topics"
    rows = {"train.tsv": row.format("dog", "cat").encode(), "test.tsv": row.format("cow", "pig").encode()}
    first = hub.commit(f"datasets/{repository}", rows)
    topics = {"repository": repository, "train": ["train.tsv"], "test": ["test.tsv"], "language": "eng"}
    topics |= {"text": "{text}", "label": "label"}
    work.configure({"tasks": {"topics": topics}, "evaluation": {"tasks": ["topics"]}})
    target = ("converted/eng", "--until", "task")

    def by_hand() -> str:
        folder = work.python("-c", BY_HAND, check=True).stdout.strip()
        return json.loads(Path(folder, "manifest.json").read_text())["figures"]["hub"]["commit"]

    work.snakemake(*target)
    second = hub.commit(f"datasets/{repository}", rows | {"train.tsv": row.format("ant", "bee").encode()})
    asked = hub.count(repository)
    assert by_hand() == first and not Path("tuned").exists()
    assert work.would_run(targets=target) == set()
    assert "task topics.eng  up to date" in work.babelmill("why", "eng")
    assert hub.count(repository) == asked, "nobody asks for the branch again"
    shutil.rmtree("results/task")
    assert by_hand() == first
    shutil.rmtree("results/task")
    Path("results/hub.lock").unlink()
    assert by_hand() == second


def test_local_text_needs_no_download(hub, work):
    work.configure({"languages": {"eng": {"corpus": {"builtin": "python-docs"}}}})
    assert work.would_run(targets=TARGET) == {("corpus", "eng")}
