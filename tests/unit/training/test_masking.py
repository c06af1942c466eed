"""Which tokens are hidden, and the random numbers behind it."""

import numpy as np
import pytest
import torch

from babelmill.training.batches import choose, corrupt, spans_of
from babelmill.training.plan import randomness
from babelmill.training.plan.objectives import Hiding
from babelmill.training.plan.randomness import ACTION, PRIORITY, REPLACEMENT, SPAN

ROWS, LENGTH, MASK, ORDINARY, HIDING = 400, 128, 4, torch.arange(16, 2048), Hiding()
POSITION = torch.arange(LENGTH)


SPANS, PRIORITIES, *ACTIONS = (
    randomness.key(1, use, torch.arange(ROWS)) for use in (SPAN, PRIORITY, ACTION, REPLACEMENT)
)


@pytest.fixture
def masked():
    """(tokens, maskable, span, chosen, corrupted) of many rows."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(16, 2048, (ROWS, LENGTH), generator=generator)
    maskable = torch.rand(ROWS, LENGTH, generator=generator) > 0.05
    count = torch.randint(1, 60, (ROWS,), generator=generator)
    span = spans_of(SPANS, POSITION, 3)
    chosen = choose(maskable, count, span, PRIORITIES, POSITION)
    return tokens, maskable, span, chosen, corrupt(tokens, chosen, span, *ACTIONS, POSITION, MASK, ORDINARY, HIDING)


def test_python_numpy_and_torch_draw_the_same_numbers():
    number = np.arange(2**33, 2**33 + 1000)
    ours = randomness.draw(randomness.key(42, 3, number), 5)
    assert (torch.from_numpy(ours) == randomness.draw(randomness.key(42, 3, torch.from_numpy(number)), 5)).all()
    assert ours[7] == randomness.draw(randomness.key(42, 3, int(number[7])), 5)
    assert ours.min() >= 0 and ours.max() < 2**32


def test_spans_are_one_to_three_long_and_equally_often():
    span = spans_of(SPANS, POSITION, 3)
    assert (span[:, 0] == 0).all() and ((span.diff() == 0) | (span.diff() == 1)).all()
    lengths = torch.cat([torch.bincount(row)[:-1] for row in span])
    shares = torch.bincount(lengths, minlength=4).double() / len(lengths)
    assert len(shares) == 4
    torch.testing.assert_close(shares, torch.tensor([0, 1, 1, 1]).double() / 3, atol=0.02, rtol=0)


def test_whole_spans_are_taken_but_for_the_last(masked):
    _, maskable, span, chosen, _ = masked
    for row in range(ROWS):
        parts = [chosen[row][(span[row] == s) & maskable[row]] for s in span[row][chosen[row]].unique()]
        assert sum(not part.all() for part in parts) <= 1


def test_eighty_ten_ten_by_span(masked):
    tokens, _, span, chosen, corrupted = masked
    assert (corrupted == tokens)[~chosen].all()
    share = chosen.sum()
    assert ((corrupted == MASK) & chosen).sum() / share == pytest.approx(0.8, abs=0.02)
    assert ((corrupted == tokens) & chosen).sum() / share == pytest.approx(0.1, abs=0.015)
    random = corrupted[chosen & (corrupted != MASK) & (corrupted != tokens)]
    assert random.min() >= 16 and len(random.unique()) > 0.4 * len(random)
    first = (corrupted == MASK) & chosen
    same_span = (span[:, 1:] == span[:, :-1]) & chosen[:, 1:] & chosen[:, :-1]
    assert (first[:, 1:] == first[:, :-1])[same_span].all()
