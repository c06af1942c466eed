"""Which tokens are hidden, and the random numbers behind it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from babelmill.tokens.shard_file import ShardFile, write_shard
from babelmill.training.batches import TokenStream, spans_of
from babelmill.training.plan import plan, randomness
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.randomness import SPAN
from babelmill.training.plan.rows import Packed
from helpers.training.training_data import VOCABULARY, section

ROWS, LENGTH, MASK, SEED = 400, 128, VOCABULARY.mask, 7


def spans() -> torch.Tensor:
    return spans_of(randomness.key(SEED, 0, SPAN, torch.arange(ROWS)), torch.arange(LENGTH), 3)


@pytest.fixture
def masked(tmp_path):
    """(tokens, maskable, chosen, corrupted) of many rows, which hide tokens where they stand."""
    vocabulary, objective = replace(VOCABULARY, size=2048), objective_of(section("train", objective="masked"))
    text = np.random.default_rng(0).integers(16, 2048, ROWS * LENGTH)
    text[::20] = VOCABULARY.bos
    write_shard(tmp_path / "shard.safetensors", 2048, "none", [(text, np.array([len(text)]), None)])
    shard = ShardFile.open(tmp_path / "shard.safetensors")
    rows = plan.every_row([Packed(shard.offsets)], LENGTH, objective, 0)
    rows = replace(rows, targets=np.random.default_rng(1).integers(1, 60, ROWS))
    batch = TokenStream([shard], vocabulary, SEED, torch.device("cpu"), objective, in_place=True).micro_batch(
        rows, LENGTH, (1.0, 0.0)
    )
    tokens, chosen = torch.from_numpy(text).view(ROWS, LENGTH), torch.zeros(ROWS * LENGTH, dtype=torch.bool)
    chosen[batch.positions] = True
    assert (chosen.view(ROWS, LENGTH).sum(1) == torch.from_numpy(rows.targets)).all()
    return tokens, tokens != VOCABULARY.bos, chosen.view(ROWS, LENGTH), batch.input_ids


def test_python_numpy_and_torch_draw_the_same_numbers():
    number = np.arange(2**33, 2**33 + 1000)
    ours = randomness.draw(randomness.key(42, 3, number), 5)
    assert (torch.from_numpy(ours) == randomness.draw(randomness.key(42, 3, torch.from_numpy(number)), 5)).all()
    assert ours[7] == randomness.draw(randomness.key(42, 3, int(number[7])), 5)
    assert ours.min() >= 0 and ours.max() < 2**32


def test_spans_are_one_to_three_long_and_equally_often():
    span = spans()
    assert (span[:, 0] == 0).all() and ((span.diff() == 0) | (span.diff() == 1)).all()
    lengths = torch.cat([torch.bincount(row)[:-1] for row in span])
    shares = torch.bincount(lengths, minlength=4).double() / len(lengths)
    assert len(shares) == 4
    torch.testing.assert_close(shares, torch.tensor([0, 1, 1, 1]).double() / 3, atol=0.02, rtol=0)


def test_whole_spans_are_taken_but_for_the_last(masked):
    _, maskable, chosen, _ = masked
    span = spans()
    for row in range(ROWS):
        parts = [chosen[row][(span[row] == s) & maskable[row]] for s in span[row][chosen[row]].unique()]
        assert sum(not part.all() for part in parts) <= 1


def test_eighty_ten_ten_by_span(masked):
    tokens, _, chosen, corrupted = masked
    span = spans()
    assert (corrupted == tokens)[~chosen].all()
    share = chosen.sum()
    assert ((corrupted == MASK) & chosen).sum() / share == pytest.approx(0.8, abs=0.02)
    assert ((corrupted == tokens) & chosen).sum() / share == pytest.approx(0.1, abs=0.015)
    random = corrupted[chosen & (corrupted != MASK) & (corrupted != tokens)]
    assert random.min() >= 16 and len(random.unique()) > 0.4 * len(random)
    first = (corrupted == MASK) & chosen
    same_span = (span[:, 1:] == span[:, :-1]) & chosen[:, 1:] & chosen[:, :-1]
    assert (first[:, 1:] == first[:, :-1])[same_span].all()
