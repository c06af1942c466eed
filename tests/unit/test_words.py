"""Words of shards, which hold tokens, and the steps of snapshots."""

import numpy as np
import pytest

from babelmill import tokenizer
from babelmill.config.languages import Language
from babelmill.tokens.shard_file import ShardFile, write_shard
from babelmill.tokens.tokenizer_file import encode
from babelmill.training import words
from babelmill.training.layouts import Packed
from babelmill.training.plan import Plan
from training_data import section

TEXTS = [
    "\n  The cat\tsat\n\non the mat. ",
    "unbelievably",
    " ",
    *("a rose is a rose " * n + "isn't it" for n in range(1, 60)),
    "今天天气很好，我们去公园。",
]


@pytest.fixture(scope="module")
def trained():
    return tokenizer.train(iter([TEXTS * 3]), 320, 2)


@pytest.fixture
def shard(trained, tmp_path) -> ShardFile:
    tokens, lengths = encode(trained, TEXTS)
    with write_shard(tmp_path / "train.safetensors", len(TEXTS), trained.get_vocab_size(), "none") as writer:
        for text in np.split(tokens, np.cumsum(lengths)[:-1]):
            writer.append(np.array([1, *text, 2]), np.array([len(text) + 2]))
    return ShardFile.open(tmp_path / "train.safetensors")


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_each_word_counts_once_wherever_blocks_begin(trained, shard, monkeypatch, block):
    monkeypatch.setattr(words, "BLOCK", block)
    monkeypatch.setattr(words, "BLOCKS", 10**9)
    assert words.count_words(shard, trained, None) == sum(len(text.split()) for text in TEXTS)


def test_a_large_shard_is_estimated_from_blocks_of_all_of_it(trained, shard, monkeypatch):
    monkeypatch.setattr(words, "BLOCK", 20)
    monkeypatch.setattr(words, "BLOCKS", 100)
    decoded = []
    count = words._count
    monkeypatch.setattr(
        words, "_count", lambda t, parts, size: decoded.append(sum(map(len, parts))) or count(t, parts, size)
    )
    found = words.count_words(shard, trained, None)
    assert sum(decoded) < 0.3 * len(shard.tokens)
    assert found == pytest.approx(sum(len(text.split()) for text in TEXTS), rel=0.05)


def test_scripts_without_spaces_count_bytes(trained, shard):
    chinese, english = (Language("x", "x", 1, script, 0.936, "x") for script in ("Hans", "Latn"))
    assert english.bytes_per_word is None and chinese.bytes_per_word == pytest.approx(5.43 * 0.936)
    size = sum(len(text.encode()) for text in TEXTS)
    assert words.count_words(shard, trained, 5.0) == pytest.approx(size / 5)


def test_a_snapshot_is_of_the_first_step_that_has_read_its_words():
    layouts = [Packed(np.array([0, 4000])), Packed(np.array([0, 1000]))]
    plan = Plan(section("train", max_steps=50, global_batch_tokens=320), 1.0, layouts)
    per_token = words.words_per_token(plan, [2000.0, 900.0])  # half a word and 0.9 of a word for each token
    assert per_token == pytest.approx(0.8 * 0.5 + 0.2 * 0.9, abs=1e-3)
    steps = words.snapshot_steps(plan, per_token, [1e-9, 0.001, 0.002, 1.0])
    assert steps.pop(1) == [1e-9] and [1.0] not in steps.values()
    for step, (point,) in steps.items():
        assert plan.tokens_until(step - 1) * per_token < point * 1e6 <= plan.tokens_until(step) * per_token
    assert len(steps) == 2
