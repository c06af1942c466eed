"""The validation text: every token is scored once, after its own document alone; and the scores of documents."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import AutoConfig

from babelmill.core import manifest, words
from babelmill.core.files import UserError
from babelmill.evaluate import check_length
from babelmill.evaluation.metrics import described, entry, in_words, pooled
from babelmill.evaluation.validation_text import ValidationText, changed, choose, unigram_nats, windows
from babelmill.tokens.vocabulary import Vocabulary
from helpers.models.published_models import bytes_bpe, word_piece
from helpers.stages import any_settings

TOKENS = np.array([1, *range(16, 36), 2])


@pytest.mark.parametrize("length", [2, 5, 8, 21, 22, 100])
@pytest.mark.parametrize("prompt", [0, 9])
def test_every_token_to_score_is_in_one_window(length, prompt):
    """A document that fits is whole; each window of a longer one begins with `<s>`."""
    scored = (TOKENS >= 16) & (np.arange(22) > prompt)
    found = windows(TOKENS, scored, length)
    assert [each.ids[place] for each in found for place in each.scored] == [*range(16 + prompt, 36)]
    assert all(each.ids[0] == 1 and 1 not in each.ids[1:] and len(each.ids) <= length for each in found)
    assert (len(found) == 1) == (length >= 22 or (length == 21 and found[0].ids[-1] == 35)), "</s> alone is no window"
    if length >= 22:
        assert found[0].ids == TOKENS.tolist()


def test_responses_are_scored_and_prompts_are_context(tmp_path):
    rows = {"prompt": ["ab", "", "a"], "text": ["c <s>d", "é", "b"]}
    pq.write_table(pa.table(rows), tmp_path / "validation.parquet")
    manifest.write(tmp_path, any_settings("corpus"), ["validation.parquet"])
    tokenizer = bytes_bpe("<s>")
    begin = tokenizer.token_to_id("<s>")
    words = Vocabulary(300, begin, begin, begin, -1, (begin,))
    tokenizer.encode_special_tokens = True
    text = ValidationText(tmp_path, tokenizer, words)
    assert text.size == {"scored": 3, "of": 3, "with_prompt": 2} and text.count == 9 == text.bytes.sum()
    pairs = zip(text.tokens, text.scored, strict=True)
    assert [tokenizer.decode(ids[scored].tolist()) for ids, scored in pairs] == rows["text"]
    assert [tokenizer.decode(ids[1:-1].tolist()) for ids in text.tokens] == ["abc <s>d", "é", "ab"]


def test_unigram_by_hand():
    """Three entries seen 3, 1 and 0 times: 4/7, 2/7 and 1/7."""
    small = Vocabulary(size=5, bos=0, eos=1, pad=0, mask=1, special=(0, 1))
    found = unigram_nats(np.array([0, 0, 3, 1, 0]), small)
    assert found[2:] == pytest.approx(-np.log([4 / 7, 2 / 7, 1 / 7]))


def test_the_standard_error_is_that_of_many_samples():
    """Of documents drawn at random, from a population whose bits per byte are known."""
    draw = np.random.default_rng(0)
    estimates, errors = [], []
    for _ in range(2000):
        size = draw.integers(10, 200, 50)
        score = entry(size * draw.normal(2.0, 0.4, 50) + draw.normal(0, 5, 50), size, tokens=1)
        estimates.append(score["value"])
        errors.append(score["standard_error"])
    assert np.mean(estimates) == pytest.approx(2 / np.log(2), rel=0.01)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(estimates), rel=0.1)


def test_scores_are_pooled_by_bytes():
    one = entry(np.log(2) * np.array([10, 20]), np.array([4, 6]), tokens=5)
    two = entry(np.log(2) * np.array([4, 6]), np.array([15, 15]), tokens=15)
    assert one["value"] == pytest.approx(3)
    errors = np.hypot(one["standard_error"] * 10, two["standard_error"] * 30) / 40
    assert pooled([one, two], [10, 30]) == pytest.approx(
        {"value": 1, "standard_error": errors, "nats_per_token": np.log(2) * 2, "tokens": 20, "bytes": 40}
    )
    alone = entry(np.array([1.0]), np.array([3]), tokens=1)
    assert alone["standard_error"] is None and pooled([one, alone], [10, 3])["standard_error"] is None
    assert pooled([one], [10]) is one


def test_a_sample_of_a_language_stands_for_all_of_it():
    """The pooled score is an estimate of the one over all documents, whatever was drawn of each language."""
    random = np.random.default_rng(0)
    sizes = [random.integers(50, 150, count) for count in (1000, 100)]
    nats = [rate * size for rate, size in zip((0.7, 2.1), sizes, strict=True)]
    whole = [int(size.sum()) for size in sizes]
    tokens = [int(size.sum()) // 4 for size in sizes]
    every = pooled([entry(n, s, t) for n, s, t in zip(nats, sizes, tokens, strict=True)], whole)
    drawn = [entry(n[:100], s[:100], int(s[:100].sum()) // 4) for n, s in zip(nats, sizes, strict=True)]
    some = pooled(drawn, whole)
    assert some["value"] == pytest.approx(every["value"], rel=1e-3)
    assert some["nats_per_token"] == pytest.approx(every["nats_per_token"], rel=1e-2)


def test_a_sample_is_chosen_by_the_text_alone():
    texts = [f"Document number {i}." for i in range(50)]

    def chosen(texts, count):
        numbers = choose([(text,) for text in texts], count)
        assert (np.diff(numbers) > 0).all()
        return {texts[i] for i in numbers}

    assert chosen(texts, None) == chosen(texts, 50) == chosen(texts, 99) == {*texts}
    ten = chosen(texts, 10)
    assert len(ten) == 10 and ten == chosen(texts[::-1], 10) and ten < chosen(texts, 20)
    assert ten not in ({*texts[:10]}, {*texts[-10:]})
    kept = [text for text in texts if text in ten or texts.index(text) % 2]
    assert chosen(kept, 10) == ten, "documents that were not chosen change nothing"


def test_documents_that_a_tokenizer_changes_are_counted(monkeypatch):
    """A tokenizer of bytes changes none."""
    monkeypatch.setattr(words, "PART", 16)
    texts = ["the fox", "The fox", "the \u2603", "the fox", "A dog", "the dog"]
    assert changed(word_piece(), texts) == 3 and changed(bytes_bpe("<s>"), texts) == 0


@pytest.mark.parametrize(("kind", "more"), [("roberta", {"pad_token_id": 3}), ("bert", {})])
def test_rows_that_a_model_cannot_read_are_refused(kind, more, tmp_path):
    """RoBERTa has positions that no token has: those up to the id of <pad>."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    positions = 32 + (4 if more else 0)
    AutoConfig.for_model(kind, **sizes, **more, max_position_embeddings=positions).save_pretrained(tmp_path)
    check_length(tmp_path, 32)
    with pytest.raises(UserError, match="sequence_length = 33 is more than the 32 positions of"):
        check_length(tmp_path, 33)


def test_a_score_comes_with_its_error_and_its_sample():
    variants = {"ema": {"causal": {"value": 2.5, "standard_error": 0.0123}}}
    evaluation = {"metrics": described(["causal"]), "variants": variants, "documents": {"scored": 100, "of": 1234}}
    assert in_words(evaluation, "ema") == "bits per byte 2.500 ± 0.012 causal (100 of 1,234 documents)"
    evaluation["documents"] = {"scored": 9, "of": 9, "changed": 2}
    assert in_words(evaluation, "ema") == "bits per byte 2.500 ± 0.012 causal (the tokenizer changes 2 of 9)"
