"""Tagging by the stages `task` and `tune`: from .conllu and CoNLL files to scores, joint tasks, and bad files."""

import copy
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import pipeline

from babelmill.core import manifest
from babelmill.core.files import read_json
from babelmill.suites.challenge import Tuned, labels
from babelmill.tasks.rows import resplit
from conftest import SMALL
from helpers.results.fields import undocumented

pytestmark = pytest.mark.slow

TUNING = {"epochs": 30, "batch": 16, "learning_rate": 0.01, "longest": 64}
POS = {"kind": "tagging", "train": ["train.conllu"], "test": ["test.conllu"], "language": "eng", "tuning": TUNING}
TAGS = {"fox": "NOUN", "dog": "NOUN", "jumps": "VERB", "boil": "VERB", "lazy": "ADJ", "quick": "ADJ", "the": "DET"}


def sentences(count: int, seed: int) -> list[list[tuple[str, str]]]:
    draw = random.Random(seed)
    words = [draw.choices([*TAGS], k=draw.randrange(3, 8)) for _ in range(count)]
    return [[(word, TAGS[word]) for word in each] for each in words]


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
    evaluation = {"tasks": list(tasks), "max_documents": 10, "task_seeds": [1]} | evaluation
    values["models"] = {"eng": {"evaluation": evaluation}} | (model or {})
    return values


@pytest.fixture
def words(workspace):
    write_conllu(workspace.path / "train.conllu", sentences(96, 1))
    write_conllu(workspace.path / "test.conllu", sentences(40, 2))
    return workspace


def test_parts_of_speech(words):
    """What can be learnt is learnt: scores, one prediction per word, card, report; the weights that are kept load."""
    words.configure(configured("mine", keep_tuned=True))
    words.snakemake("reports/eng.html")
    folder = words.path / "results/of/eng/tune/mine.1"
    eng, rows = read_json(folder / "scores.json")["languages"]["eng"], pq.read_table(folder / "predictions.parquet")
    assert not undocumented(folder / "scores.json", "scores.json of a task")
    expected = [(tag, number) for number, each in enumerate(sentences(40, 2)) for _, tag in each]
    assert eng["score"] == eng["metrics"]["accuracy"]["score"] == 1.0 and eng["n"] == len(expected) == len(rows)
    assert eng["metrics"]["accuracy"]["without_prediction"] == 0 and eng["majority"] is None
    assert eng["classes"] == ["ADJ", "DET", "NOUN", "VERB"] and eng["rows"]["test"] == 40
    for column in ("label", "prediction"):
        assert [*zip(rows[column].to_pylist(), rows["sentence"].to_pylist(), strict=True)] == expected
    assert manifest.read(folder)["figures"]["summary"] == "accuracy: eng 100.0 (most frequent class 25.3); 150 steps"
    shown = manifest.read(words.path / "results/of/eng/task/mine.eng")["figures"]["summary"]
    assert shown == "96 sentences to learn from, 40 to test, 4 classes"
    card = (words.path / "converted/eng/README.md").read_text()
    scored = f"100.0 (100.0 to 100.0), most frequent class 25.3, 1 seed of 150 steps, n = {len(expected)} |"
    assert "| mine | English | sound" in card and scored in card
    assert "type: token-classification" in card
    assert "accuracy, sound" in (words.path / "reports/eng.html").read_text()
    tag = pipeline("token-classification", str(folder / "model/eng"), trust_remote_code=True)
    found = {each["word"].strip("Ġ "): each["entity"] for each in tag("the quick fox jumps")}
    assert found["the"] == "DET" and "NOUN" in found.values()
    assert words.would_run() == set()


def test_names_and_words_that_are_cut_off(words):
    """CoNLL files and the metric of spans; a word that is cut off has no prediction."""
    names = {"fox": "B-PERSON", "lazy": "B-ANIMAL", "dog": "I-ANIMAL"}
    for name, count, seed in (("train", 96, 1), ("test", 40, 2)):
        found = ["\n".join(f"{word} x {names.get(word, 'O')}" for word, _ in each) for each in sentences(count, seed)]
        (words.path / f"{name}.txt").write_text("-DOCSTART- x O\n\n" + "\n\n".join(found) + "\n")
    own = {"train": ["train.txt"], "test": ["test.txt"], "label": 3, "metric": "span_f1"}
    words.configure(configured("mine", own=own | {"tuning": TUNING | {"longest": 8}}))
    words.snakemake("converted/eng", "--until", "tune")
    eng = read_json(words.path / "results/of/eng/tune/mine.1/scores.json")["languages"]["eng"]
    assert 0.5 < eng["score"] == eng["metrics"]["span_f1"]["score"] < 1 and eng["most_frequent"] == 0.0
    missing = eng["metrics"]["accuracy"]["without_prediction"]
    rows = pq.read_table(words.path / "results/of/eng/tune/mine.1/predictions.parquet")
    assert eng["cut"] > 0 and rows["prediction"].null_count == rows["probability"].null_count == missing > 0
    assert eng["metrics"]["accuracy"]["n"] == len(rows) > eng["n"]


def test_one_model_for_all_languages(words):
    """Equal shares of both languages, scored for each; rows that are divided anew have some to be predicted only."""
    for code, count in (("eng", 100), ("deu", 60)):
        found = sentences(count, count)
        write_conllu(words.path / f"{code}-train.conllu", found[:50])
        write_conllu(words.path / f"{code}-dev.conllu", found[50:])
    own = {"train": ["{language}-train.conllu", "{language}-dev.conllu"], "test": ["test.conllu"], "kind": "tagging"}
    own |= {"languages": {"eng": "eng", "deu": "deu"}, "joint": True, "resplit": {"rows": 120}}
    task = own | {"tuning": TUNING | {"head": "challenge"}}
    both = {"languages": ["eng", "deu"], "evaluation": {"tasks": ["mine"], "task_seeds": [1]}}
    words.configure(configured(model={"both": both}) | {"tasks": {"mine": task}})
    words.snakemake("converted/both")
    folder = words.path / "results/of/both/tune/mine.1"
    scores = read_json(folder / "scores.json")["languages"]
    assert {*scores} == {"eng", "deu"} and all(each["score"] == 1.0 for each in scores.values())
    assert scores["eng"]["scores_of_epochs"] == scores["deu"]["scores_of_epochs"], "there is one training"
    assert scores["eng"]["rows"] | {"scored": 0, "test": 0} == scores["deu"]["rows"] | {"scored": 0, "test": 0}
    for code, rows in (("eng", (96, 12, 12)), ("deu", (80, 10, 10))):
        about = manifest.read(words.path / f"results/of/both/task/mine.{code}")["figures"]
        assert about["rows"] == dict(zip(("train", "test", "predicted"), rows, strict=True))
    used = scores["eng"]["rows"]["train"] + scores["eng"]["rows"]["chosen_by"]
    assert used == 160, "80 of each"
    tagged = labels(Tuned({"mine": folder}, "deu"), tags=True)
    assert [each["index"] for each in tagged] == [*range(10)]
    pool = [[tag for _, tag in sentence] for sentence in [*sentences(60, 60), *sentences(40, 2)]]
    gold = resplit(pa.table({"labels": pool}), 120, 42)["predicted"]["labels"].to_pylist()
    assert [each["prediction"].split() for each in tagged] == gold, "the order of the files is that of the patterns"
    assert "Nothing to be done" in words.snakemake("converted/both", "--dry-run").stdout
