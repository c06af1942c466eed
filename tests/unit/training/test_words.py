"""Words of corpora and of shards, which hold tokens; the steps of snapshots, and those that a run does not have."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill import shards, tokenizer
from babelmill.config.languages import read_table
from babelmill.config.snapshots import BABYLM, kept_at_the_end, missing_points, say_missing
from babelmill.core.words import and_words
from babelmill.tokens.documents import Documents
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.loop import snapshot_steps
from babelmill.training.plan.plan import Plan
from babelmill.training.plan.rows import Packed
from helpers import ROOT
from helpers.training.training_data import section

pytestmark = pytest.mark.slow

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


def test_the_words_of_shards_are_those_of_the_text(trained, tmp_path):
    """Counted while the shards are made, also of a large text."""
    repeated = [text.replace("rose", f"rose{i % 7}") for i in range(300) for text in TEXTS]
    pq.write_table(pa.table({"text": repeated}), tmp_path / "train.parquet")
    trained.save(str(tmp_path / "tokenizer.json"))
    vocabulary = Vocabulary.read(tmp_path / "tokenizer.json", trained.get_vocab_size())
    corpus = Documents(tmp_path / "train.parquet")
    counts = shards.build(trained, vocabulary, "none", corpus, tmp_path / "train.safetensors", 2)
    assert counts["words"] == sum(len(text.split()) for text in repeated) and counts["tokens"] > 500_000


def test_scripts_without_spaces_count_bytes():
    """585 lines of 12 characters of Chinese, each of which whitespace takes for a word."""
    languages = read_table(ROOT / "config/languages.tsv")
    measure = languages["zho"].bytes_per_word
    assert languages["eng"].bytes_per_word is None and measure == pytest.approx(5.43 * languages["zho"].byte_premium)
    assert and_words(585, 585 * 36, measure) == f", about {round(585 * 36 / measure):,} words"
    assert and_words(585, 585 * 36) == ", 585 words" and and_words(585, 585 * 1000) == ""


def test_a_snapshot_is_of_the_first_step_that_has_read_its_words():
    layouts = [Packed(np.array([0, 4000])), Packed(np.array([0, 1000]))]
    words = [2000.0, 900.0]  # half a word and 0.9 of a word a token
    plan = Plan(section("train", max_steps=50, global_batch_tokens=320), 1.0, layouts, words=words)
    per_token = plan.words_per_token
    assert per_token == pytest.approx(0.8 * 0.5 + 0.2 * 0.9, abs=1e-3)
    steps = snapshot_steps(plan, [1e-9, 0.001, 0.002, 1.0])
    assert steps.pop(1e-9) == 1 and 1.0 not in steps
    for point, step in steps.items():
        assert plan.tokens_until(step - 1) * per_token < point * 1e6 <= plan.tokens_until(step) * per_token
    assert len(steps) == 2


def test_a_point_shortly_after_the_end_is_the_end():
    """Ten epochs over 10 million words, of which 2 % are set aside: 98 million words are the point 100 of BabyLM."""
    layouts = [Packed(np.array([0, 9800]))]
    train, points = section("train", epochs=10, max_steps=None, global_batch_tokens=320), list(map(float, BABYLM))
    plan, short = (Plan(train, 1.0, layouts, words=[words]) for words in (9_800_000.0, 9_604_000.0))
    assert plan.words_until(plan.steps) == pytest.approx(98e6, rel=0.005)
    steps = snapshot_steps(plan, points)
    assert steps[100.0] == plan.steps and len(steps) == 19
    steps = snapshot_steps(short, points)
    assert max(steps.values()) < short.steps and len(steps) == 18
    assert kept_at_the_end([90.0, 100.0, 101.0], 98.0) == [90.0, 100.0]


def test_points_that_will_not_exist_are_named():
    """But not those for longer runs: ten epochs over BabyLM's 10 million words never meant to reach 200 million."""
    missing = missing_points([10.0, 100.0, 200.0], 95.0)
    assert say_missing(missing, 95.0) == "run.snapshots: chck_100M, chck_200M: the run ends after 95 million words"
    assert missing_points([10.0, 100.0, 200.0], 198.0) == [] and say_missing([], 198.0) == ""

    assert missing_points("babylm", 98.0) == [] and missing_points([float(point) for point in BABYLM], 98.0)[0] == 200
    assert missing_points("babylm", 90.5) == [100.0] and missing_points("babylm", 850.0) == [900.0]
