"""`corpus.prompt_column`: prompts from files to shards, through the real stages."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.tokens.tokenizer_file import load_tokenizer
from helpers.stages import run_stage
from helpers.tables import write_table

pytestmark = pytest.mark.usefixtures("folder")

COLUMNS = {"text_column": "answer", "prompt_column": "question"}
PAIRS = [(f"What is {i} plus {k}?\n", f"It is {i + k}, für alle.") for i in range(100) for k in range(3)]


def write(name: str, pairs: list[tuple[str | None, str | None]]) -> None:
    """A file with these prompts and responses."""
    write_table(name, [{"answer": response, "question": prompt, "other": 1} for prompt, response in pairs])


def configuration(**corpus) -> Configuration:
    values = {"tokenizer": {"vocab_size": 300}, "languages": {"eng": {"corpus": {**COLUMNS, **corpus}}}}
    return Configuration([("test", values)])


def build(**corpus) -> dict:
    """Run the stage; its figures."""
    return run_stage("corpus", configuration(**corpus))


def pairs_of(split: str) -> list[tuple[str, str]]:
    table = pq.read_table(f"out/{split}.parquet")
    return list(zip(table["prompt"].to_pylist(), table["text"].to_pylist(), strict=True))


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_all_formats_with_columns_have_prompts(name):
    """A response that says nothing drops its document; a prompt that does is none."""
    extra = [("no answer", ""), ("none either", " \n"), ("", "a text alone"), *PAIRS[:2]]
    write(name, [*PAIRS[:9], *extra, *([] if name == "a.csv" else [("null", None), (None, "another text")])])
    figures = build(files=[name], validation_share=0)
    texts = [("", "a text alone")] + ([] if name == "a.csv" else [("", "another text")])
    assert pairs_of("train") == PAIRS[:9] + texts
    assert figures["dropped"] == {"empty": 2 + (name != "a.csv"), "duplicate": 2}
    assert figures["with_prompt"] == {"train": 9, "validation": 0}
    assert figures["bytes"]["train"] == sum(len((p + r).encode()) for p, r in pairs_of("train"))


def test_the_same_answer_to_another_question_is_another_document_and_a_question_is_on_one_side():
    pairs = [(f"question {i}", f"answer {k}") for i in range(200) for k in range(3)]
    write("a.jsonl", [*pairs, *pairs[:5]])
    figures = build(files=["a.jsonl"], validation_share=0.2)
    train, validation = pairs_of("train"), pairs_of("validation")
    assert sorted(train + validation) == sorted(pairs) and figures["dropped"] == {"duplicate": 5}
    questions = [{prompt for prompt, _ in split} for split in (train, validation)]
    assert not questions[0] & questions[1] and 20 < len(questions[1]) < 60
    assert figures["with_prompt"] == {"train": len(train), "validation": len(validation)}
    write("held_out.jsonl", [("question 7", "something else"), ("", "answer 1")])
    figures = build(files=["a.jsonl"], validation_files=["held_out.jsonl"])
    assert figures["dropped"] == {"duplicate": 5, "in_validation": 3}
    write("few.jsonl", [("one question", f"answer {k}") for k in range(9)])
    with pytest.raises(UserError, match=r"by chance none.*; documents with the same prompt stay in the same split"):
        build(files=["few.jsonl"], validation_share=1e-9)


def test_cleaning_and_budgets_count_prompts(folder):
    pairs = [(f"cafe\u0301 {i}", f"bell\x07 {i} " + "x" * 80) for i in range(100)]
    write("a.parquet", pairs)
    figures = build(
        files=["a.parquet"], budget=0.004, validation_share=0, normalization="NFC", control_characters="remove"
    )
    assert all(prompt.startswith("café ") and text.startswith("bell ") for prompt, text in pairs_of("train"))
    assert figures["budget"]["realised"] == figures["bytes"]["train"] and 3_800 < figures["bytes"]["train"] <= 4_000
    assert figures["changed"] == {"normalized": 100, "control_characters": 100}


@pytest.mark.parametrize(
    ("corpus", "words"),
    [
        ({"files": ["a.txt"]}, r"prompt_column = 'question': plain text has no columns"),
        ({"files": ["a.*"]}, r"a\.txt: plain text has no columns; corpus\.prompt_column needs a table"),
        ({"builtin": "python-docs"}, r"plain text has no columns"),
        ({"files": ["*.jsonl"], "prompt_column": "answer"}, r"text_column = 'answer': different columns"),
        ({"files": ["*.parquet"], "prompt_column": "other"}, r"'other' is int64, not text; set corpus\.prompt_column$"),
    ],
)
def test_what_has_no_prompts_is_refused(corpus, words):
    Path("a.txt").write_text("plain")
    for name in ("b.jsonl", "b.csv", "b.parquet"):
        write(name, PAIRS[:3])
    with pytest.raises(UserError, match=words) as error:
        build(**corpus)
    assert "\n" not in str(error.value)


def test_shards_count_prompts():
    """That they hold the tokens of prompts and responses, see `unit/tokens/test_prefix_space.py`."""
    write("a.jsonl", [*PAIRS, ("", "a text alone")])
    made = build(files=["a.jsonl"], validation_share=0.1)
    run_stage("tokenizer", configuration(), out="tokenizer", corpora=[Path("out")])
    figures = run_stage("shards", configuration(), out="shards", tokenizer=Path("tokenizer"), corpus=Path("out"))
    loaded = load_tokenizer("tokenizer/tokenizer.json")
    for split in ("train", "validation"):
        prompts = [loaded.encode(prompt, add_special_tokens=False).ids for prompt, _ in pairs_of(split)]
        assert figures["prompt_tokens"][split] == sum(map(len, prompts)) > 0
        assert figures["bytes"][split] == made["bytes"][split]
