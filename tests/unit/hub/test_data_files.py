"""Which files of a dataset are for training and which for validation: what its card declares, and words in their paths."""

from pathlib import Path

import pytest

from babelmill.core.files import UserError
from babelmill.hub.data_files import data_files, matches

pytestmark = pytest.mark.usefixtures("folder")


def chosen(names: str, card: str | None, **part) -> tuple[str, str]:
    """The names of the files of both splits; `card`: the front matter of the README.md, if there is one."""
    Path("README.md").write_text(f"---\n{card}\n---\n# Text\n")
    found = data_files(names.split(), {"repository": "ada/prose"} | part, Path("README.md") if card else None, "it")
    return " ".join(found["train"]), " ".join(found["validation"])


def config(name: str, files: str) -> str:
    return f"- config_name: {name}\n  {files}\n"


TSV = "dev.tsv invalidated.tsv other.tsv test.tsv train.tsv validated.tsv"
PARTS = " ".join(f"data/{name}-00000-of-00001.parquet" for name in ("test", "train", "train_extra", "unsupervised"))
SFT = " ".join(f"data/{name}-00000-of-00001.parquet" for name in ("train_sft", "train_gen", "test_sft", "unsupervised"))
FOLDERS = "configs:\n" + config("en", "data_dir: en") + config("de", "data_dir: de")
SPLITS = "configs:\n" + config("x", "data_files: [{split: train, path: a/*}, {split: train, path: [b/*, c.csv]}]")
ONLY = "configs:\n" + config("default", "data_files: [{split: train, path: good/*}, {split: test, path: heldout/*}]")
OF_SFT = (
    "configs:\n"
    + config("default", "data_files:")
    + "".join(f"  - {{split: {name}, path: data/{name}-*}}\n" for name in ("train_sft", "train_gen", "test_sft"))
)


@pytest.mark.parametrize(
    ("card", "names", "part", "train", "validation"),
    [
        # One format, and words that tell the splits, as in `datasets`.
        (None, "b.jsonl.zst a.jsonl notes.txt a.csv x.parquet.md dataset_infos.json", {}, "a.jsonl b.jsonl.zst", ""),
        (None, "contest.csv latest/dev.csv more.csv.gz test.csv", {}, "contest.csv more.csv.gz", "latest/dev.csv"),
        (None, "a.csv b.jsonl", {"files": ["*.csv", "b.*"]}, "a.csv b.jsonl", ""),
        (None, "requirements.txt.gz", {}, "requirements.txt.gz", ""),
        # Where a file has the word `train`, only such files are training text.
        (None, TSV, {}, "train.tsv", "dev.tsv"),
        (None, TSV, {"files": ["*.tsv"]}, "train.tsv", "dev.tsv"),
        (None, TSV, {"files": ["train.tsv", "validated.tsv"]}, "train.tsv validated.tsv", ""),
        (None, f"notes.jsonl {TSV}", {}, "train.tsv", "dev.tsv"),
        (None, "en/training/x.csv pretrain.csv train-1.csv train_0.csv trainer.csv", {}, "en/training/x.csv train-1.csv train_0.csv", ""),
        (None, PARTS, {}, "data/train-00000-of-00001.parquet", ""),
        # What a card declares.
        (ONLY, "good/a.csv heldout/b.csv", {}, "good/a.csv", ""),
        (SPLITS, "a/1.csv b/2.csv c.csv d.csv", {}, "a/1.csv b/2.csv c.csv", ""),
        ("configs:\n" + config("default", "data_dir: null"), "de/b.csv en/a.csv", {}, "de/b.csv en/a.csv", ""),
        (FOLDERS, "en/train.csv en/test.csv en/dev.csv en/dataset_infos.json de/train.csv", {"config": "en"}, "en/train.csv", "en/dev.csv"),
        (OF_SFT, SFT, {"files": ["data/train_gen*"]}, SFT.split()[1], ""),
        ("configs: 3", "a.csv", {}, "a.csv", ""),
        # The name of a configuration is text as it stands, as in YAML 1.2: `no` is Norwegian, and 010 is not 8.
        *(("configs:\n" + config(name, "data_files: a/*") + config("yes", "data_files: null"), "a/x.csv b/x.csv", {"config": name}, "a/x.csv", "") for name in ("no", "010", "1.10", "null", "2024-01-31")),
    ],
)  # fmt: skip
def test_files_of_each_split(card, names, part, train, validation):
    assert chosen(names, card, **part) == (train, validation)


@pytest.mark.parametrize(
    ("card", "names", "part", "message"),
    [
        (None, SFT, {}, "it has no training data in a supported format"),
        (OF_SFT, SFT, {}, "its configuration default has no split `train`; it has train_sft, train_gen, test_sft"),
        (FOLDERS, "en/a.csv", {"config": "fr"}, "it has no configuration 'fr'; there are en, de"),
        ("configs:\n" + config("1.10", "data_files: a/*") + config("yes", "data_files: null"), "a/x.csv", {}, "has several configurations: 1.10, yes"),
    ],
)  # fmt: skip
def test_splits_for_training_are_not_mixed_and_configurations_are_named(card, names, part, message):
    with pytest.raises(UserError, match=message):
        chosen(names, card, **part)


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


@pytest.mark.parametrize(
    "card",
    [
        "a: &a [*a]",
        "configs: " + "[" * 20_000 + "]" * 20_000,
        "configs: []\nconfigs: [{config_name: x, data_files: b/*}]",
        "configs: [",
    ],
    ids=["an alias of itself", "brackets", "a key twice", "broken"],
)
def test_a_hostile_card_declares_nothing_and_is_named(caplog, card):
    assert chosen("a.csv b/c.csv", card) == ("a.csv b/c.csv", "")
    [message] = caplog.messages
    assert message.startswith("it: README.md: not valid YAML: ") and len(message) < 500 and "\n" not in message
