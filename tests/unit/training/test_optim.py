"""Optimizers, clipping and the moving average."""

import copy
from typing import get_args

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from babelmill.config import schema
from babelmill.training.optimization import optim
from babelmill.training.optimization.gradients import clip
from babelmill.training.optimization.optim import (
    Lamb,
    MovingAverage,
    make_optimizer,
    parameter_groups,
)
from helpers import DATA
from helpers.training import training_data
from helpers.training.tiny_trainer import trainer_maker

ONE, ZERO = torch.ones(()), torch.zeros(())
TRAIN = training_data.section("train")
NAMES = get_args(schema.Train.model_fields["optimizer"].annotation)


@pytest.fixture
def golden():
    return load_file(DATA / "gpt_bert_tiny.safetensors")


def test_three_steps_of_lamb_are_the_published_ones(golden):
    weights = {name[7:]: nn.Parameter(value) for name, value in golden.items() if name.startswith("weight.")}
    optimizer = Lamb(parameter_groups(weights.items(), 0.1), TRAIN)
    for step in range(3):
        for name, weight in weights.items():
            weight.grad = (step + 1) * golden[f"grad.{name}"]
        optimizer.update(0.01, torch.ones((), dtype=torch.float64))
    for name, weight in weights.items():
        torch.testing.assert_close(weight.data, golden[f"lamb3.{name}"], atol=1e-9, rtol=0)


def test_lamb_leaves_a_weight_of_norm_zero_to_adam():
    """Beside it, the update of a weight without a gradient is its decay alone: it loses 1 %."""
    weight, other = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.full((2000,), 3.0))
    weight.grad, other.grad = torch.tensor([1.0, -2.0, 3.0]), torch.zeros(2000)
    Lamb([{"params": [weight, other], "weight_decay": 0.1}], TRAIN).update(0.01, ONE)
    torch.testing.assert_close(weight.data, torch.tensor([-0.01, 0.01, -0.01]))
    torch.testing.assert_close(other.data, torch.full((2000,), 2.97))


class Layers(nn.Module):
    """Matrices of layers of three shapes, two of one shape, and what is no matrix of a layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(11, 24)
        self.layers = nn.ModuleList(nn.Linear(*sizes) for sizes in ((24, 40), (24, 40), (24, 24), (40, 24)))

    def matrices(self) -> dict[str, nn.Parameter]:
        return {name: value for name, value in self.named_parameters() if "layers" in name and value.ndim == 2}


def give_gradients(model: nn.Module, step: int) -> None:
    for i, parameter in enumerate(model.parameters()):
        generator = torch.Generator().manual_seed(100 * step + i)
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


@pytest.mark.parametrize(("precision", "tolerance", "at_once"), [("bf16", 0.01, 2**25), ("fp32", 0.03, 1000)])
def test_muon_is_pytorchs(precision, tolerance, at_once, monkeypatch):
    """PyTorch computes in bf16. So both are as near to each other as bf16 allows, and equal in all but the matrices.

    Two matrices of a shape are updated together or, if they are too large for that, one after the other.
    """
    monkeypatch.setattr(optim, "AT_ONCE", at_once)
    ours, theirs, before = Layers(), Layers(), Layers()
    train = training_data.section("train", optimizer="muon", weight_decay=2.0, precision=precision)
    muon = make_optimizer(dict(ours.named_parameters()), train, matrices=ours.matrices())
    matrices = theirs.matrices()
    rest = [(name, parameter) for name, parameter in theirs.named_parameters() if name not in matrices]
    optimizers = [
        torch.optim.Muon(matrices.values(), 0.01, weight_decay=2.0, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([parameter for _, parameter in rest], 0.01, (0.9, 0.98), 1e-8, weight_decay=0.0),
    ]
    for step in range(4):
        for model in (ours, theirs):
            give_gradients(model, step)
        muon.update(0.01, ONE)
        for optimizer in optimizers:
            optimizer.step()
    for (name, a), b, start in zip(ours.named_parameters(), theirs.parameters(), before.parameters(), strict=True):
        if name in matrices:
            assert (a - b).norm() < tolerance * (b - start).norm(), name
        else:
            torch.testing.assert_close(a, b, msg=name)


def test_muon_gets_the_matrices_of_layers(tmp_path):
    """Not those of embeddings, of relative positions and of the head."""
    network = trainer_maker(tmp_path)().network
    named = network.model.named_parameters()
    assert network.matrices() == {name for name, p in named if "_layers." in name and p.ndim == 2}
    assert network.matrices() <= network.trained().keys() and len(network.matrices()) >= 8


@pytest.mark.parametrize("name", NAMES)
def test_a_step_that_is_not_finite_leaves_the_weights(name):
    model = Layers()
    train = training_data.section("train", optimizer=name)
    optimizer = make_optimizer(dict(model.named_parameters()), train, matrices=model.matrices())
    give_gradients(model, 0)
    optimizer.update(0.01, ONE)
    weight = model.layers[0].weight
    with torch.no_grad():
        weight[:2, :2] = torch.tensor([[0.0, -0.0], [1e-40, -3e38]])
    before = copy.deepcopy(model.state_dict())
    for parameter in model.parameters():
        parameter.grad.zero_()
    state = {key: value.clone() for key, value in optimizer.tensors().items()}
    optimizer.update(0.01, ZERO)
    for key, value in model.state_dict().items():
        assert torch.equal(value.view(torch.int32), before[key].view(torch.int32)), "to the last bit"
    assert all(torch.equal(value, state[key]) for key, value in optimizer.tensors().items())
    give_gradients(model, 1)
    optimizer.update(0.01, ONE)
    assert not torch.equal(weight, before["layers.0.weight"])


@pytest.mark.parametrize(
    ("gradient", "wanted"),
    [
        ([3.0, 4.0], [1.2, 1.6]),
        ([0.3, 0.4], [0.3, 0.4]),
        ([1.0, float("nan")], [0.0, 0.0]),
        ([1.0, float("inf")], [0.0, 0.0]),
    ],
)
def test_clipping(gradient, wanted):
    """What is not finite becomes 0."""
    found = torch.tensor(gradient)
    norm, finite = clip([found], found.norm(), 2.0)
    torch.testing.assert_close(norm, torch.tensor(gradient).norm(), equal_nan=True)
    assert finite == norm.isfinite()
    torch.testing.assert_close(found, torch.tensor(wanted))


@pytest.mark.parametrize(("decay", "start"), [(0.999, None), (0.999, 190), (0.0, 190), (0.0, None)])
def test_the_average_of_weights(decay, start):
    """It forgets its start early in a run. From a step on, it is the mean of the weights. In place, it is the weights."""
    model, weights = nn.Linear(1, 1, bias=False), []
    expected = model.weight.item()
    moving = MovingAverage({"weight": model.weight}, decay, start)
    for step in range(200):
        weights.append(step**2 / 200)
        with torch.no_grad():
            model.weight.fill_(weights[-1])
        moving.update(step)
        now = min(decay, (1 + step) / (60 + step))
        expected = now * expected + (1 - now) * weights[-1]
        if start is not None and step >= start:
            expected = sum(weights[start:]) / (step - start + 1)
        average = (moving.tensors or model.state_dict())["weight"].item()
        assert average == pytest.approx(expected, rel=1e-5), step
    assert (moving.tensors is None) == (not decay and start is None), "no second copy without need"
    with moving.in_place():
        assert model.weight.item() == average and 180 < average < 199
    assert model.weight.item() == pytest.approx(weights[-1])
