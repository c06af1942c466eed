"""Parts of datasets, and budgets that end a download: the stage with the real client against a Hub on this machine."""

import gzip
import hashlib
import itertools
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from babelmill.config.resolve import Configuration
from babelmill.corpus.builtin import python_docs
from helpers.hub.hub_server import Fault
from helpers.hub.hub_stage import asked_for, figures_of, jsonl, parquet, refusal, run_stage
from helpers.stages import settings_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("folder")]

NAME = "ada/prose"
CARD = b"""---
configs:
- config_name: plain
  data_files:
  - split: train
    path: plain/train-*.json.gz
  - split: validation
    path: plain/validation-*
- config_name: tables
  default: true
  data_files:
    train: ["tables/*.parquet", "tables/*.csv"]
---
# Prose
"""


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """200 files of real text: 120 of lines of JSON, 79 tables in two formats, and a card that tells them apart."""
    texts = [text for batch in python_docs() for text in batch["text"].to_pylist()]
    parts = [texts[i::199] for i in range(199)]
    found = {f"plain/train-{i:03}.json.gz": gzip.compress(jsonl(parts[i]), mtime=0) for i in range(115)}
    found |= {f"plain/validation-{i}.json.gz": gzip.compress(jsonl(parts[115 + i]), mtime=0) for i in range(5)}
    found |= {f"tables/{i:03}.parquet": parquet(content=parts[i]) for i in range(120, 160)}
    rows = {i: "".join('"' + text.replace('"', '""') + '"\n' for text in parts[i]) for i in range(160, 199)}
    found |= {f"tables/{i}.csv": f"content\n{text}".encode() for i, text in rows.items()}
    return found | {"README.md": CARD}


@pytest.fixture
def hub(hub, files):
    hub.commit(f"datasets/{NAME}", files)
    return hub


def stage(name: str, corpus: dict, out: str = "out", **made_from: list[str]):
    """Run a stage of a language as its rule does, with the settings that a configuration gives it."""
    configuration = Configuration([("config.yaml", {"languages": {"eng": {"corpus": corpus}}})])
    return run_stage(name, asked_for(name, settings_of(configuration, "eng", name), out, **made_from))


def download(corpus: dict) -> dict:
    """Run the stage; return the figures of its manifest, which was verified."""
    return figures_of(stage("download", corpus))


def refused(corpus: dict) -> str:
    """Run the stage, which ends with one line and leaves nothing; return the line."""
    line = refusal(stage("download", corpus))
    assert not Path("out").exists()
    return line


def corpus_of(corpus: dict) -> tuple[dict, list[str]]:
    """Run the stage `corpus` on what was downloaded; return its figures and the documents for training."""
    figures = figures_of(stage("corpus", corpus, "corpus", download=["out"]), "corpus")
    return figures, pq.read_table("corpus/train.parquet")["text"].to_pylist()


def fetched(hub) -> list[str]:
    """Return the data files that were asked for, in order."""
    log = [line.partition("/resolve/")[2].partition("/")[2] for line in hub.log]
    return [name for name in dict.fromkeys(log) if name.startswith(("plain/", "tables/"))]


PLAIN = {"hub": [{"repository": NAME, "config": "plain"}]}


def test_a_configuration_is_taken_as_the_card_declares_it(hub, files):
    figures = download(PLAIN)
    [part] = figures["parts"]
    assert part["train"] == sorted(name for name in files if name.startswith("plain/train"))
    assert part["validation"] == sorted(name for name in files if name.startswith("plain/validation"))
    assert Path(f"out/{NAME}/plain/train-000.json.gz").read_bytes() == files["plain/train-000.json.gz"]
    figures, texts = corpus_of(PLAIN)
    assert figures["hub"] == [{key: part[key] for key in ("repository", "revision", "commit")}]
    assert figures["documents"]["train"] == len(texts) > 1000
    assert not any(name.startswith("tables/") for name in fetched(hub))


def test_several_parts_have_columns_of_their_own(hub, files):
    hub.commit("datasets/ada/other", {"eng/one.jsonl": jsonl(["another text"]), "deu/two.jsonl": jsonl(["noch einer"])})
    part = {"repository": NAME, "config": "tables", "files": ["tables/19*"], "text_column": "content"}
    corpus = {"hub": [part, {"repository": "ada/other", "files": ["{language}/*.jsonl"]}], "validation_share": 0.2}
    parts = download(corpus)["parts"]
    assert [part["train"] for part in parts] == [[f"tables/{i}.csv" for i in range(190, 199)], ["eng/one.jsonl"]]
    figures, _ = corpus_of(corpus)
    assert figures["read"] > 50 and [entry["repository"] for entry in figures["hub"]] == [NAME, "ada/other"]
    parts = download(corpus | {"hub": corpus["hub"][::-1], "budget": "1 documents"})["parts"]
    assert [len(part["train"]) for part in parts] == [1, 1], "each gives something to a budget"
    plain = {"repository": NAME, "config": "plain"}
    shutil.rmtree("results/download")
    assert "two entries name the file plain/train" in refused({"hub": [plain, plain | {"files": ["plain/*"]}]})


def test_a_budget_fetches_what_it_needs_and_a_larger_one_the_rest(hub, files):
    """The first files of the order that hold 1.25 times the budget, and of validation text at least one."""
    names = [name for name in files if name.startswith("plain/train")]
    order = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    held = [0, *itertools.accumulate(gzip.decompress(files[name]).count(b"\n") for name in order)]
    before = set()
    for wanted in (16, 160, 700):
        hub.log.clear()
        hub.backwards = not hub.backwards  # the listing's order means nothing
        part = download(PLAIN | {"budget": f"{wanted} documents"})["parts"][0]
        count = len(part["train"])
        assert part["train"] == sorted(order[:count]), "the first of the order"
        assert held[count] >= 1.25 * wanted > held[count - 1]
        assert len(part["validation"]) == 1 or wanted == 700
        assert set(fetched(hub)) - set(part["validation"]) == set(part["train"]) - before
        before |= set(part["train"])
    figures, texts = corpus_of(PLAIN | {"budget": "700 documents"})
    assert figures["budget"] == {"unit": "documents", "asked": 700, "realised": 700} and len(texts) == 700


def test_a_budget_counts_what_the_corpus_keeps(hub):
    """Documents that are there again do not count, nor what is too short."""
    texts = [f"document {i} of few" for i in range(100)]
    files = {f"{i}.jsonl": jsonl([*texts[10 * (i // 4) :][:10], f"short {i}"]) for i in range(40)}
    hub.commit("datasets/ada/twice", files)
    corpus = {"hub": "ada/twice", "budget": "60 documents", "validation_share": 0.2, "min_words": 3}
    taken = download(corpus)["train"]
    assert len({int(Path(name).stem) // 4 for name in taken}) == 8, "75 documents, ten in each four files"
    figures, _ = corpus_of(corpus)
    assert figures["budget"]["realised"] == 60
    assert {**figures["hub"], "commit": ""} == {"repository": "ada/twice", "revision": "main", "commit": ""}
    Path("out", taken[0]).write_bytes(b"damaged")
    assert (
        f"{taken[0]}: 7 bytes, but out/manifest.json says" in stage("corpus", corpus, "corpus", download=["out"]).stderr
    )


def test_what_is_no_text_is_said_after_the_first_file(hub):
    array = json.dumps([{"text": "a"}, {"text": "b"}], indent=1).encode()
    hub.commit("datasets/ada/array", {f"{i}.json": array + b" " * i for i in range(20)} | {"empty.json": b""})
    done = stage("download", {"hub": "ada/array"})
    assert "error: 4.json: its beginning contains no document of this format" in done.stderr
    assert hub.count("HEAD .*json") == 1
    hub.commit("datasets/ada/plain", {f"{i}.jsonl": jsonl([f"text {i}"]) for i in range(30)})
    asked = {"hub": "ada/plain", "budget": "10 documents", "categories": ["news"]}
    assert "no document has a `category`" in refused(asked) and hub.count("HEAD .*jsonl") == 1


def test_an_interrupted_download_goes_on(hub):
    corpus = PLAIN | {"budget": "0.4 MB"}
    hub.faults = [Fault("GET /cdn/", times=5), Fault("GET /cdn/", times=10**6, status=404)]  # five files arrive
    assert "the dataset ada/prose" in refused(corpus)
    hub.faults.clear()
    arrived = hub.sent
    assert arrived > 10_000
    part = download(corpus)["parts"][0]
    whole = sum(Path(f"out/{NAME}", name).stat().st_size for name in part["train"] + part["validation"])
    assert whole < hub.sent < whole + 3_000, "nothing but the card was fetched twice"


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"config": "tables"}, "no column 'text'; there are 'content'; set corpus.text_column"),
        ({"files": ["poems/*"]}, "has no training data in files: poems/* in a supported format"),
    ],
)
def test_what_a_part_may_ask(hub, part, message):
    assert message in refused({"hub": [{"repository": NAME} | part]})
    assert len(fetched(hub)) <= 1, "columns are looked at in the first file"


def test_files_whose_names_do_not_say_their_format(hub):
    """Those that the user names, and no README; with a budget, too."""
    talks = {f"talks/{i}.train": f"A: talk {i}.\nB: it ends.\n\nA: another {i}.\n".encode() for i in range(6)}
    talks |= {"talks/a.dev": b"A: held out.\n", "README.md": b"# Talks\n"}
    hub.commit("datasets/ada/talks", talks)
    asked = {"hub": [{"repository": "ada/talks", "files": ["talks/*"]}], "format": "txt", "document": "paragraph"}
    part = download(asked)["parts"][0]
    assert (len(part["train"]), part["validation"]) == (6, ["talks/a.dev"])
    figures, texts = corpus_of(asked)
    assert figures["documents"] == {"train": 12, "validation": 1}
    assert texts[:2] == ["A: talk 0.\nB: it ends.", "A: another 0."]
    part = download(asked | {"budget": "2 documents"})["parts"][0]
    assert 1 <= len(part["train"]) < 6
    hub.commit("datasets/ada/held_out", {"talks/b.dev": b"A: of another dataset.\n"})
    held_out = {"repository": "ada/held_out", "files": ["talks/*.dev"]}
    parts = download(asked | {"hub": [{"repository": "ada/talks", "files": ["talks/*.train"]}, held_out]})["parts"]
    assert [(len(part["train"]), part["validation"]) for part in parts] == [(6, []), (0, ["talks/b.dev"])]
    done = stage("download", asked | {"hub": [held_out]}, "other")
    assert "all files are for validation, by their names (ada/held_out: talks/b.dev)" in refusal(done)
