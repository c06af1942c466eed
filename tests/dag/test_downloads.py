"""Text from the Hub, in a workflow that is really run: what is downloaded, when again, and at which commit."""

import pytest

from babelmill.core.files import read_json
from conftest import Workspace
from helpers.hub.hub_stage import jsonl

pytestmark = pytest.mark.slow

NAME = "datasets/BabyLM-community/babylm-eng"
TARGET = ("converted/eng", "--until", "corpus")


def test_a_moved_branch_changes_nothing_until_it_is_asked_for(hub, tmp_path):
    texts = [f"Document number {i} says something of its own." for i in range(300)]
    hub.commit(NAME, {"data/train.jsonl": jsonl(texts)})
    work = Workspace(tmp_path / "work")
    work.configure({"targets": ["eng"]})

    def commit() -> str:
        return read_json(work.path / "results/of/eng/download/manifest.json")["figures"]["commit"]

    work.snakemake(*TARGET)
    first = commit()
    second = hub.commit(NAME, {"data/train.jsonl": jsonl([*texts, "one more"])})
    work.snakemake(*TARGET, "--forcerun", "download")
    assert commit() == first

    lock = work.path / "results/hub.lock"
    assert lock.read_text() == f"{NAME}@main {first}\n"
    lock.unlink()
    assert work.would_run(targets=TARGET) == set()
    work.snakemake(*TARGET, "--forcerun", "download")
    assert commit() == second
    assert work.would_run(targets=TARGET) == set()
    work.configure({"languages": {"eng": {"corpus": {"revision": first}}}})
    assert work.would_run(targets=TARGET) == {("download", "eng"), ("corpus", "eng")}
