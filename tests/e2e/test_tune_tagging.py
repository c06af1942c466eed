"""Tagging by the stages `task` and `tune`: from .conllu and CoNLL files to scores, joint tasks, and bad files."""

import copy
import random
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from transformers import pipeline

from babelmill.core.files import read_json
from conftest import SMALL

TUNING = {"epochs": 30, "batch": 16, "learning_rate": 0.01, "longest": 64}
POS = {"kind": "tagging", "train": ["train.conllu"], "test": ["test.conllu"], "language": "eng", "tuning": TUNING}
TAGS = {"fox": "NOUN", "dog": "NOUN", "jumps": "VERB", "boil": "VERB", "lazy": "ADJ", "quick": "ADJ", "the": "DET"}


def sentences(count: int, seed: int, learnable: bool = True) -> list[list[tuple[str, str]]]:
    draw = random.Random(seed)
    words = [draw.choices([*TAGS], k=draw.randrange(3, 8)) for _ in range(count)]
    return [[(word, TAGS[word] if learnable else draw.choice([*TAGS.values()])) for word in each] for each in words]


def write_conllu(path, found: list[list[tuple[str, str]]]) -> None:
    """With comments, a token that is two words (1-2), and a word that is not written (1.1)."""
    lines = []
    for sentence in found:
        lines += ["# text = a sentence", "\t".join(["1-2", "".join(word for word, _ in sentence[:2]), *"________"])]
        for number, (word, tag) in enumerate(sentence, 1):
            lines.append("\t".join([str(number), word, "_", tag, tag.lower(), *"_____"]))
            lines += ["1.1\tunwritten\t_\tX\t_\t_\t_\t_\t_\t_"] if number == 1 else []
        lines.append("")
    path.write_text("\n".join(lines) + "\n")


def configured(*tasks, own=None, model=None, **evaluation) -> dict:
    values = copy.deepcopy(SMALL) | {"tasks": {"mine": POS | (own or {})}}
    evaluation = {"tasks": list(tasks), "documents": 10, "task_seeds": [1]} | evaluation
    values["models"] = {"eng": {"evaluation": evaluation}} | (model or {})
    return values


@pytest.fixture
def words(workspace):
    write_conllu(workspace.path / "train.conllu", sentences(96, 1))
    write_conllu(workspace.path / "test.conllu", sentences(40, 2))
    return workspace


def test_parts_of_speech(words):
    """The thin slice: a file, tagged by a tiny model."""
    words.configure(configured("mine", keep_tuned=True))
    words.snakemake("converted/eng")
    folder = words.path / "results/tuned/eng/mine/1"
    eng, rows = read_json(folder / "scores.json")["languages"]["eng"], pq.read_table(folder / "predictions.parquet")
    count = sum(map(len, sentences(40, 2)))
    assert eng["score"] == 1.0 and eng["n"] == count == len(rows)
