"""A corpus in parts (`corpus.parts`), by Snakemake: scatter and gather, and what happens when the gather fails."""

import copy
import shutil

from conftest import SMALL
from helpers.damage import flip_a_bit

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
