"""`corpus.decontaminate`: what it drops, what it makes again, and which suites it refuses."""

import pytest

from babelmill.core.files import read_json
from conftest import SMALL

pytestmark = pytest.mark.slow

MINE = {"files": ["pairs.tsv"], "language": "eng", "good": "good", "bad": "bad"}


def test_a_document_with_a_test_sentence_is_dropped(workspace):
    """One text of eng holds one, in other clothes. The key is for all languages; the suite has no items of deu."""
    line = "  HE SAID: the Small\nfox \u2014 sees, a bird!"
    (workspace.path / "texts/eng/planted.txt").write_text(f"{line} And more of it.")
    (workspace.path / "pairs.tsv").write_text("good\tbad\nThe small fox sees a bird.\tThe small fox see a bird.\n")
    corpora, of_eng = ["--until", "corpus"], workspace.path / "results/of/eng/corpus/manifest.json"
    workspace.snakemake("converted/eng", *corpora)
    before = read_json(of_eng)["figures"]
    workspace.configure(SMALL | {"suites": {"mine": MINE}, "corpus": {"decontaminate": ["mine"]}})
    assert workspace.would_run(*corpora) == {("suite", "mine_eng"), ("corpus", "eng")}
    workspace.snakemake("converted/eng", *corpora)
    after = read_json(of_eng)["figures"]
    assert after["dropped"] == before["dropped"] | {"test_text": 1} and after["suites"] == {"mine": 1}
    (example,) = after["examples"]["test_text"]
    assert example["note"] == "mine: the small fox sees a bird" and example["text"].startswith(line)
    assert workspace.would_run(*corpora) == set()
    (workspace.path / "pairs.tsv").write_text("good\tbad\nAnother sentence of the suite.\tOther.\n")
    assert workspace.would_run(*corpora) == {("suite", "mine_eng"), ("corpus", "eng")}
