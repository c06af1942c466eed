"""Rows of the evaluation: every token of the text is scored once, and sees its own document only."""

import numpy as np
import pytest

from babelmill.evaluate import entry, pooled, unigram_nats
from babelmill.evaluation.scoring import batches, causal_rows, masked_rows, parts
from babelmill.tokens.vocabulary import Vocabulary

BOS, EOS, PAD, MASK = 1, 2, 3, 4
VOCABULARY = Vocabulary(size=40, bos=BOS, eos=EOS, pad=PAD, mask=MASK, special=tuple(range(16)))
DOCUMENTS = [[16, 17, 18], [], [19], list(range(20, 40)), [16] * 9]
STREAM = np.array([token for document in DOCUMENTS for token in (BOS, *document, EOS)], np.uint16)
TEXT = [token for document in DOCUMENTS for token in document]


@pytest.mark.parametrize("length", [2, 5, 7, 16, 100])
def test_causal_rows_score_every_token_once(length):
    rows = causal_rows(STREAM, length, VOCABULARY)
    assert rows.inputs.shape == rows.targets.shape and rows.inputs.shape[1] == length
    assert rows.targets[rows.scored].tolist() == TEXT
    assert (rows.inputs[:, 0] == BOS).all() and (rows.inputs[:, 1:] == rows.targets[:, :-1]).all()


@pytest.mark.parametrize("length", [2, 5, 7, 16, 100])
@pytest.mark.parametrize("masks", [2, 7])
def test_masked_rows_score_every_token_once(length, masks):
    passes = list(masked_rows(STREAM, length, masks, VOCABULARY))
    assert len(passes) == masks
    assert sum(rows.scored.astype(int) for rows in passes).max() == 1
    scored = np.any([rows.scored for rows in passes], axis=0)
    assert passes[0].targets[scored].tolist() == TEXT
    for rows in passes:
        assert rows.inputs.shape[1] == length
        assert (rows.inputs[rows.scored] == MASK).all(), "what is scored is hidden"
        assert (rows.inputs == rows.targets)[~rows.scored].all(), "and nothing else"
    if length == 100:  # one row: each pass hides its share of the text
        assert max(rows.scored.sum() for rows in passes) - min(rows.scored.sum() for rows in passes) <= 1


def test_parts_are_documents_with_something_to_score():
    rows = causal_rows(STREAM, 12, VOCABULARY)
    found = parts(rows, VOCABULARY)
    for row, start, end in found:
        inputs = rows.inputs[row, start:end]
        assert inputs[0] == BOS and BOS not in inputs[1:] and PAD not in inputs
    assert sum(rows.scored[row, start:end].sum() for row, start, end in found) == len(TEXT)
    assert [end - start for *_, start, end in found] == sorted(end - start for *_, start, end in found)
    assert all(rows.scored[row, start:end].any() for row, start, end in found)


@pytest.mark.parametrize("size", [1, 20, 1000])
def test_batches_are_of_bounded_size(size):
    found = parts(causal_rows(STREAM, 12, VOCABULARY), VOCABULARY)
    made = list(batches(found, size))
    assert [part for batch in made for part in batch] == found
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(end - start for *_, start, end in batch) <= size


def test_unigram_by_hand():
    """Three entries seen 3, 1 and 0 times: 4/7, 2/7 and 1/7."""
    expected = -(2 * np.log(4 / 7) + np.log(1 / 7))
    assert unigram_nats(np.array([3, 1, 0]), np.array([2, 0, 1])) == pytest.approx(expected)


def test_scores_are_pooled_by_bytes():
    one, two = entry(np.log(2) * 30, tokens=5, size=10), entry(np.log(2) * 10, tokens=15, size=30)
    assert one["bits_per_byte"] == pytest.approx(3)
    assert pooled([one, two]) == pytest.approx(
        {"bits_per_byte": 1, "nats_per_token": np.log(2) * 2, "tokens": 20, "bytes": 40}
    )
