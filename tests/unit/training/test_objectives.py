"""The loss and its gradient, made together and in parts, against PyTorch's autograd on the formula."""

from types import SimpleNamespace

import pytest
import torch

from babelmill.training.networks import loss as loss_module

TARGETS, WIDTH, VOCABULARY, GROUPS, Z_WEIGHT = 23, 8, 40, 4, 0.05


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    return SimpleNamespace(
        targets=torch.randint(0, VOCABULARY, (TARGETS,), generator=generator),
        weights=torch.rand(TARGETS, generator=generator),
        groups=torch.randint(0, GROUPS, (TARGETS,), generator=generator),
        importance=None,
    )


def layer(dtype=torch.float64) -> list[torch.Tensor]:
    """Features, matrix and bias."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((TARGETS, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def formula(features, matrix, bias, batch):
    scores = features @ matrix.T + bias
    normalizer = scores.logsumexp(1)
    cross_entropy = normalizer - scores.gather(1, batch.targets[:, None])[:, 0]
    loss = (batch.weights * (cross_entropy + Z_WEIGHT * normalizer**2)).sum()
    values = torch.stack([cross_entropy, normalizer**2, (scores.argmax(1) == batch.targets).double()], 1)
    return loss, torch.stack([values[batch.groups == group].sum(0) for group in range(GROUPS)])


@pytest.mark.parametrize(("rows", "learnt"), [(TARGETS, 3), (5, 3), (1, 3), (5, 1)])
def test_loss_sums_and_gradients_are_those_of_the_formula(batch, rows, learnt, monkeypatch):
    """Also if the features alone get a gradient: the output layer is frozen under adapters."""
    monkeypatch.setattr(loss_module, "CHUNK", (rows * VOCABULARY,) * 2)
    ours, theirs = layer(), layer()
    for frozen in ours[learnt:]:
        frozen.requires_grad_(False)
    loss, sums = loss_module.loss(*ours, batch, Z_WEIGHT, GROUPS)
    expected, expected_sums = formula(*theirs, batch)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(sums, expected_sums.detach())
    (3 * loss).backward()
    (3 * expected).backward()
    for a, b in zip(ours[:learnt], theirs, strict=False):
        torch.testing.assert_close(a.grad, b.grad)
    assert all(frozen.grad is None for frozen in ours[learnt:])


def test_in_bf16_only_the_products_are_rounded(batch):
    ours, theirs = layer(torch.float32), layer(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = loss_module.loss(*ours, batch, Z_WEIGHT, GROUPS)
    loss.backward()
    expected, _ = formula(*theirs, batch)
    expected.backward()
    assert loss.dtype == torch.float32
    assert 0 < abs(loss.item() / expected.item() - 1) < 0.02
    for a, b in zip(ours, theirs, strict=True):
        assert a.grad.dtype == torch.float32
        assert 0 < (a.grad - b.grad).norm() / b.grad.norm() < 0.02
