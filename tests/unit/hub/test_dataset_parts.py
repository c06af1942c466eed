"""Parts of datasets, and budgets that end a download: the stage with the real client against a Hub on this machine."""

import gzip
import hashlib
import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.corpus.builtin import python_docs
from babelmill.hub.data_files import configurations, data_files, matches
from helpers.hub.hub_server import Fault
from helpers.hub.hub_stage import asked_for, jsonl, parquet, refusal, run_stage
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
    done = stage("download", corpus)
    assert done.returncode == 0, done.stderr
    return manifest.verify("out")["figures"]


def refused(corpus: dict) -> str:
    """Run the stage, which ends with one line and leaves nothing; return the line."""
    line = refusal(stage("download", corpus))
    assert not Path("out").exists()
    return line


def corpus_of(corpus: dict) -> tuple[dict, list[str]]:
    """Run the stage `corpus` on what was downloaded; return its figures and the documents for training."""
    done = stage("corpus", corpus, "corpus", download=["out"])
    assert done.returncode == 0, done.stderr
    return manifest.verify("corpus")["figures"], pq.read_table("corpus/train.parquet")["text"].to_pylist()


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


def order(files: dict[str, bytes]) -> list[str]:
    """Return the training files of the configuration `plain` as a budget takes them."""
    names = [name for name in files if name.startswith("plain/train")]
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())


def documents(files: dict[str, bytes], names: list[str]) -> int:
    return sum(gzip.decompress(files[name]).count(b"\n") for name in names)


def test_a_budget_fetches_what_it_needs_and_a_larger_one_the_rest(hub, files):
    """The first files of the order that hold 1.25 times the budget, and of validation text at least one."""
    taken = {}
    for wanted in (16, 160, 700):
        hub.log.clear()
        hub.backwards = not hub.backwards  # the listing's order means nothing
        part = download(PLAIN | {"budget": f"{wanted} documents"})["parts"][0]
        taken[wanted] = part["train"]
        count = len(part["train"])
        assert part["train"] == sorted(order(files)[:count]), "the first of the order"
        assert documents(files, order(files)[:count]) >= 1.25 * wanted > documents(files, order(files)[: count - 1])
        assert len(part["validation"]) == 1 or wanted == 700
        new = set(fetched(hub)) - set(part["validation"])
        assert new == set(part["train"]) - {
            name for names in taken.values() if names != part["train"] for name in names
        }
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
        (
            {},
            "has several configurations: plain, tables; choose one in corpus.hub, for instance [{repository: ada/prose,",
        ),
        ({"config": "plane"}, "has no configuration 'plane'; there are plain, tables"),
        ({"config": "tables"}, "no column 'text'; there are 'content'; set corpus.text_column"),
        ({"files": ["poems/*"]}, "has no training data in files: poems/* in a supported format"),
    ],
)
def test_what_a_part_may_ask(hub, part, message):
    assert message in refused({"hub": [{"repository": NAME} | part]})
    assert len(fetched(hub)) <= 1, "columns are looked at in the first file"


def test_cards(tmp_path):
    (tmp_path / "README.md").write_bytes(CARD)
    assert configurations(tmp_path / "README.md", "the dataset") == {
        "plain": {"train": ["plain/train-*.json.gz"], "validation": ["plain/validation-*"]},
        "tables": {"train": ["tables/*.parquet", "tables/*.csv"]},
    }
    for text in ("no front matter", "---\nconfigs: 3\n---\n", "---\nconfigs: [\n---\n", "---\n- a list\n---\n"):
        (tmp_path / "README.md").write_text(text)
        assert configurations(tmp_path / "README.md", "the dataset") == {}
    card = "---\nconfigs:\n- config_name: x\n  data_dir: x\n- config_name: y\n  data_files: [{split: test, path: t/*}]\n---\n"
    (tmp_path / "README.md").write_text(card)
    assert configurations(tmp_path / "README.md", "the dataset") == {"x": {"": ["x/**"]}, "y": {"test": ["t/*"]}}
    with pytest.raises(UserError, match="its configuration y has no split `train`; it has test"):
        data_files(["t/a.csv"], {"repository": NAME, "config": "y"}, tmp_path / "README.md", "the dataset")


def chosen(tmp_path, card: str, names: list[str], **part) -> tuple[list[str], list[str]]:
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{card}---\n")
    found = data_files(names, {"repository": NAME} | part, tmp_path / "README.md", "the dataset")
    return found.train, found.validation


FOLDERS = "- config_name: en\n  data_dir: en\n- config_name: de\n  data_dir: de\n"
SPLITS = "- config_name: x\n  data_files: [{split: train, path: a/*}, {split: train, path: [b/*, c.csv]}]\n"
ONLY = "- config_name: default\n  data_files: [{split: train, path: good/*}, {split: test, path: heldout/*}]\n"


@pytest.mark.parametrize(
    ("card", "names", "part", "train", "validation"),
    [
        (ONLY, "good/a.csv heldout/b.csv", {}, "good/a.csv", ""),
        (SPLITS, "a/1.csv b/2.csv c.csv d.csv", {}, "a/1.csv b/2.csv c.csv", ""),
        ("- config_name: default\n  data_dir: null\n", "en/a.csv de/b.csv", {}, "de/b.csv en/a.csv", ""),
        ("- config_name: default\n  data_dir: en\n", "en/a.csv de/b.csv", {}, "en/a.csv", ""),
        (FOLDERS, "en/train.csv en/test.csv en/dev.csv en/dataset_infos.json de/train.csv", {"config": "en"}, "en/train.csv", "en/dev.csv"),
    ],
)  # fmt: skip
def test_files_are_what_a_card_declares_and_words_tell_the_splits_of_a_folder(tmp_path, card, names, part, train, validation):  # fmt: skip
    assert chosen(tmp_path, card, names.split(), **part) == (train.split(), validation.split())


def test_splits_for_training_are_not_mixed(tmp_path):
    """As in `datasets`, where they are splits of their own, and none is called `train`."""
    card = "- config_name: default\n  data_files:\n"
    card += "".join(f"  - {{split: {name}, path: data/{name}-*}}\n" for name in ("train_sft", "train_gen", "test_sft"))
    names = [f"data/{name}-00000-of-00001.parquet" for name in ("train_sft", "train_gen", "test_sft", "unsupervised")]
    with pytest.raises(
        UserError, match=r"its configuration default has no split `train`; it has train_sft, train_gen, t"
    ):
        chosen(tmp_path, card, names)
    assert chosen(tmp_path, card, names, files=["data/train_gen*"]) == ([names[1]], [])


@pytest.mark.parametrize("name", ["no", "010", "1.10", "null", "2024-01-31"])
def test_the_name_of_a_configuration_is_text_as_it_stands(tmp_path, name):
    """As in YAML 1.2: `no` is Norwegian, and 010 is not 8. An odd entry hides no other."""
    card = f"- config_name: {name}\n  data_files: a/*\n- config_name: yes\n  data_files: null\n"
    assert chosen(tmp_path, card, ["a/x.csv", "b/x.csv"], config=name) == (["a/x.csv"], [])
    with pytest.raises(UserError, match=f"has several configurations: {re.escape(name)}, yes"):
        chosen(tmp_path, card, ["a/x.csv", "b/x.csv"])


def test_globs_of_names():
    assert matches("en/c4-train.00000-of-01024.json.gz", "en/c4-train.*.json.gz")
    assert not matches("en/deep/c4.json.gz", "en/*")
    assert matches("en/deep/c4.json.gz", "en/**") and matches("a.csv", "**/*.csv") and matches("x/y/a.csv", "**/*.csv")
    assert not matches("a.csv", "b/**") and not matches("A.csv", "a.csv")
    # It takes no time: `**` that follow each other mean one; else they need no more than parts times folders.
    deep = "/".join("abc"[i % 3] for i in range(60))
    for glob in ("**/" * 40, "**/*/" * 25):
        assert not matches(f"{deep}/x.csv", f"{glob}y.csv") and matches(f"{deep}/x.csv", f"{glob}x.csv")
    assert matches("a", "a/**") and not matches("a/b", "**/*/*/**/b")


HOSTILE = {
    "an alias of itself": "a: &a [*a]",
    "brackets": "configs: " + "[" * 20_000 + "]" * 20_000,
    "a key twice": "configs: []\nconfigs: [{config_name: x, data_files: b/*}]",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_card_declares_nothing_and_is_named(tmp_path, caplog, what):
    card = tmp_path / "README.md"
    card.write_text(f"---\n{HOSTILE[what]}\n---\n# Text\n")
    found = data_files(["a.csv", "b/c.csv"], {"repository": NAME}, card, "the dataset")
    assert found.train == ["a.csv", "b/c.csv"]
    [message] = caplog.messages
    assert message.startswith("the dataset: README.md: not valid YAML: ") and len(message) < 500 and "\n" not in message


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
