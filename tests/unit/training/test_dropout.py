"""Dropout keyed by row: which elements stay is a function of the row, the place and the element alone."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from babelmill.training.kernels import dropout
from babelmill.training.kernels.dropout import Keys, RowDropout
from babelmill.training.plan import randomness

CPU = torch.device("cpu")


def keys(rows: int) -> torch.Tensor:
    return torch.from_numpy(randomness.key(42, randomness.DROPOUT, np.arange(rows))).to(torch.int32)


def test_the_numbers_are_those_of_the_other_random_numbers():
    """Two elements for each, the low half first, and so many that some are just kept."""
    numbers = randomness.draw(
        randomness.draw(randomness.key(42, randomness.DROPOUT, np.arange(9)), 5)[:, None], np.arange(50_000)
    )
    bits = numbers.astype("<u4").view("<i2").astype(np.int64)
    kept = dropout.keep(dropout.draw(keys(9), dropout.counter(5, CPU)), 99_999, 0.25)
    assert (bits == 2**14 - 2**15).any() and (kept.numpy() == (bits[:, :99_999] >= 2**14 - 2**15)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("of", ["rows", "targets", "step"])
def test_dropout(dtype, of):
    """Drops its share, scales the rest, and is off in evaluation; a row keeps the same whatever is beside it."""
    held, ones = Keys(7, CPU), torch.ones(30, 11, 333, dtype=dtype)
    held.begin_step(3)
    positions = torch.arange(30) * 11 % 13 + 13 * torch.arange(30)  # one in each row of 13
    held.begin_pass(torch.arange(30), positions, 13)
    layer = RowDropout(0.3, 2, held, of)
    first = layer(ones)
    assert sorted(first.unique().tolist()) == [0.0, pytest.approx(1 / 0.7, rel=0.01)]
    assert (first == 0).float().mean().item() == pytest.approx(0.3, abs=5 * (0.21 / ones.numel()) ** 0.5)
    assert torch.equal(first, layer(ones)) and not torch.equal(first, RowDropout(0.3, 3, held, of)(ones))
    assert torch.equal(layer.eval()(ones), ones)
    if of != "step":
        layer.train()
        held.begin_pass(torch.arange(30)[20:], positions[20:] - 20 * 13, 13)
        assert torch.equal(layer(ones[20:]), first[20:])


def test_other_devices_keep_the_same():
    """The form that is compiled for them, here on a tensor that says that it is elsewhere."""

    class Elsewhere(torch.Tensor):
        device = SimpleNamespace(type="elsewhere")

    wanted = dropout.keep(keys(5), 101, 0.1)
    with pytest.MonkeyPatch.context() as patch:
        counters = dropout._counters
        patch.setattr(dropout, "_counters", lambda count, device: counters(count, CPU))
        got = dropout.keep(keys(5).as_subclass(Elsewhere), 101, 0.1)
    assert torch.equal(got.as_subclass(torch.Tensor), wanted)
