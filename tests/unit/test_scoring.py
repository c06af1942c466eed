"""Rows of the evaluation: every token of the text is scored once, and sees its own document only."""

import numpy as np
import pytest
import torch
from babelmill.evaluate import entry, pooled, unigram_nats
from babelmill.scoring import Vocabulary, attention_mask, causal_rows, masked_rows

BOS, EOS, PAD, MASK = 1, 2, 3, 4
VOCABULARY = Vocabulary(BOS, PAD, MASK, np.arange(40) < 16)
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


def test_attention_stays_in_the_document():
    inputs = torch.tensor([[BOS, 20, BOS, 21, MASK, PAD, PAD]])
    block = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3), torch.ones(2, 2)).bool()
    assert torch.equal(attention_mask(inputs, False, VOCABULARY)[0], block)
    assert torch.equal(attention_mask(inputs, True, VOCABULARY)[0], block.tril())


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
