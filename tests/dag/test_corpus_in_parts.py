"""A corpus in parts (`corpus.parts`), by Snakemake: scatter and gather, and what happens when the gather fails."""

import copy
import json
import random
import shutil

import pytest

from conftest import SMALL, Workspace
from helpers.damage import flip_a_bit
from helpers.hub.hub_stage import jsonl

pytestmark = pytest.mark.slow

TARGET = "results/corpora/eng/manifest.json"


def test_a_corpus_is_made_of_parts_with_the_same_bytes(workspace):
    corpus = workspace.path / "results/corpora/eng"
    before = {path.name: path.read_bytes() for path in corpus.iterdir()}
    values = copy.deepcopy(SMALL)
    values["languages"]["eng"]["corpus"]["parts"] = 2
    workspace.configure(values)
    assert workspace.would_run() == set(), "what is made stays, in how many parts it ever was"

    shutil.rmtree(corpus)
    workspace.snakemake(TARGET, "--until", "corpus_part")
    first, second = sorted((workspace.path / "results/corpus_parts/eng").iterdir())
    assert first.name.endswith("-1-of-2") and second.name.endswith("-2-of-2")
    flip_a_bit(second / "documents.arrow")
    failed = workspace.snakemake(TARGET, check=False)
    assert failed.returncode and "documents.arrow: damaged" in failed.stderr + failed.stdout
    flip_a_bit(second / "documents.arrow")
    assert workspace.would_run(targets=[TARGET]) == {("corpus", "eng")}, "its parts stand"
    (line,) = [
        line for line in workspace.babelmill("clean").splitlines() if str(second.relative_to(workspace.path)) in line
    ]
    assert "in use" in line
    assert workspace.why("eng")["corpus"].startswith("not there; not needed") and "eng" in workspace.babelmill(
        "status", "eng"
    )

    values["languages"]["eng"]["corpus"]["min_characters"] = 3
    workspace.configure(values)
    assert workspace.would_run(targets=[TARGET]) == {("corpus", "eng"), ("corpus_part", "eng")}, "of other settings"
    assert str(second.relative_to(workspace.path)) in workspace.babelmill("clean", "--remove") and not second.exists()
    del values["languages"]["eng"]["corpus"]["min_characters"]
    workspace.configure(values)
    workspace.snakemake(TARGET)
    made = {path.name: path.read_bytes() for path in corpus.iterdir()}
    assert made.keys() == before.keys()
    assert all(made[name] == content for name, content in before.items() if name != "source_hashes.json")
    assert not second.exists(), "Snakemake deletes the parts"
    assert workspace.would_run() == set()


def test_parts_that_wait_beside_an_older_corpus_are_in_use(workspace):
    """They are of the present settings, and the corpus is not."""
    values = copy.deepcopy(SMALL)
    values["languages"]["eng"]["corpus"] |= {"parts": 2, "min_characters": 3}
    workspace.configure(values)
    workspace.snakemake(TARGET, "--until", "corpus_part")
    assert workspace.would_run(targets=[TARGET]) == {("corpus", "eng")}, "its parts stand"
    listed = workspace.babelmill("clean", "--remove")
    parts = sorted((workspace.path / "results/corpus_parts/eng").iterdir())
    assert len(parts) == 2 and all(f"in use    {part.relative_to(workspace.path)}" in listed for part in parts)
    workspace.snakemake(TARGET)
    settings = json.loads((workspace.path / TARGET).read_text())["settings"]
    assert settings["corpus"]["min_characters"] == 3 and not any(part.exists() for part in parts)


def test_a_dataset_of_the_hub_in_more_parts_than_it_has_files(hub, tmp_path):
    draw = random.Random(0)
    texts = [" ".join(f"word{draw.randrange(10**6)}" for _ in range(1000)) for _ in range(320)]
    files = {f"data/train-{i}.jsonl": jsonl(texts[100 * i : 100 * i + 120]) for i in range(3)}  # some texts twice
    hub.commit("datasets/someone/text", files)
    values = {"targets": ["eng"], "languages": {"eng": {"corpus": {"hub": "someone/text", "near_duplicates": 0.8}}}}
    found = []
    for parts in (1, 5):
        values["languages"]["eng"]["corpus"]["parts"] = parts
        work = Workspace(tmp_path / f"in_{parts}")
        work.configure(values)
        if parts > 1:
            work.snakemake(TARGET, "--until", "corpus_part")
            made = (work.path / "results/corpus_parts/eng").glob("*/manifest.json")
            read = [len(json.loads(path.read_text())["figures"]["read"]) for path in made]
            assert sorted(read) == [0, 0, 1, 1, 1]
        work.snakemake(TARGET)
        found.append({path.name: path.read_bytes() for path in (work.path / TARGET).parent.iterdir()})
    assert found[0].keys() == found[1].keys() and json.loads(found[0]["manifest.json"])["figures"]["hub"]
    assert all(found[1][name] == content for name, content in found[0].items() if name != "source_hashes.json")
    assert json.loads(found[1]["manifest.json"])["figures"]["dropped"] == {"duplicate": 40}
