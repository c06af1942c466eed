"""Text from the Hub, in a workflow that is really run: what is downloaded, when again, and what a lock does."""

import json
from pathlib import Path

import pytest
import yaml

from conftest import Workspace

pytestmark = pytest.mark.slow

DOCUMENTS = [{"text": f"Document number {i} says something of its own.", "category": "qed"} for i in range(300)]


def dataset(documents) -> dict[str, bytes]:
    return {"data/train.jsonl": "".join(json.dumps(row) + "\n" for row in documents).encode()}


# What `babelmill tune` does before it tunes.
BY_HAND = """
from babelmill import task
from babelmill.commands.progress.made_by_hand import made_by_hand
from babelmill.config import loading

print(made_by_hand(loading.load(), "task", task.run, "eng", "topics"))
"""


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


def test_a_moved_branch_changes_no_rows_of_a_task_until_it_is_asked_for(hub, work, monkeypatch):
    """The workflow and commands by hand take the commit that was fetched first, whoever fetched it."""
    monkeypatch.chdir(work.path)
    row, repository = "text\tlabel\na {}\t0\nb {}\t1\n", "org/topics"
    rows = {"train.tsv": row.format("dog", "cat").encode(), "test.tsv": row.format("cow", "pig").encode()}
    first = hub.commit(f"datasets/{repository}", rows)
    topics = {"repository": repository, "train": ["train.tsv"], "test": ["test.tsv"], "language": "eng"}
    topics |= {"text": "{text}", "label": "label"}
    work.configure({"tasks": {"topics": topics}, "evaluation": {"tasks": ["topics"]}})
    target = "results/tasks/topics/eng/manifest.json"

    def by_hand(folder: str) -> str:
        assert work.python("-c", BY_HAND, check=True).stdout.strip() == folder
        return json.loads(Path(folder, "manifest.json").read_text())["figures"]["hub"]["commit"]

    work.snakemake(target)
    second = hub.commit(f"datasets/{repository}", rows | {"train.tsv": row.format("ant", "bee").encode()})
    asked = hub.count(repository)
    assert by_hand("results/tasks/topics/eng") == first and not Path("tuned").exists()
    assert work.would_run(targets=[target]) == set()
    assert "task topics      up to date" in work.babelmill("why", "eng")
    assert hub.count(repository) == asked, "nobody asks for the branch again"
    Path("results/tasks").rename("elsewhere")
    assert by_hand("tuned/tasks/topics/eng") == first
    Path("elsewhere").rename("results/tasks")
    assert f"{repository} at {second}" in work.babelmill("lock", "eng", "--update")
    assert work.would_run(targets=[target]) == {("task", "topics")}
    assert f"task topics      source.commit None -> {second}" in work.babelmill("why", "eng")
    assert by_hand("tuned/tasks/topics/eng") == second


def test_local_text_needs_no_download(hub, work):
    work.configure({"languages": {"eng": {"corpus": {"builtin": "python-docs"}}}})
    assert work.would_run(targets=TARGET) == {("corpus", "eng")}
    done = work.python("-m", "babelmill", "lock")
    assert "no text, tokenizer, model, suite or task of eng comes from the Hub" in done.stderr
