"""Optimizers, clipping and the moving average."""

import copy
from typing import get_args

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from babelmill.config import schema
from babelmill.training.optimization.optim import (
    FusedAdamW,
    Lamb,
    MovingAverage,
    clip,
    make_optimizer,
    parameter_groups,
)
from helpers import DATA
from helpers.training import training_data

ONE, ZERO = torch.ones(()), torch.zeros(())
NAMES = get_args(schema.Train.model_fields["optimizer"].annotation)


@pytest.fixture
def golden():
    return load_file(DATA / "gpt_bert_tiny.safetensors")


class Small(nn.Module):
    """A matrix of a layer, an embedding, a bias."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(7, 4)
        self.linear = nn.Linear(4, 6)

    def gradients(self, scale: float = 1.0):
        for i, parameter in enumerate(self.parameters()):
            generator = torch.Generator().manual_seed(i)
            parameter.grad = scale * torch.randn(parameter.shape, generator=generator)


def test_three_steps_of_lamb_are_the_published_ones(golden):
    weights = {name[7:]: nn.Parameter(value) for name, value in golden.items() if name.startswith("weight.")}
    optimizer = Lamb(parameter_groups(weights.items(), 0.1), 0.01)
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
    Lamb([{"params": [weight, other], "weight_decay": 0.1}], 0.01).update(0.01, ONE)
    torch.testing.assert_close(weight.data, torch.tensor([-0.01, 0.01, -0.01]))
    torch.testing.assert_close(other.data, torch.full((2000,), 2.97))


def test_the_state_of_lamb_has_the_shapes_of_the_parameters():
    """And the numbers of the parameters, with those that decay first, so that older checkpoints can be resumed."""
    model = Small()
    optimizer = make_optimizer(dict(model.named_parameters()), training_data.section("train", optimizer="lamb"))
    model.gradients()
    optimizer.update(0.01, ONE)
    found = {name: tuple(value.shape) for name, value in optimizer.tensors().items()}
    shapes = {"step": [(), (), ()], "exp_avg": [(7, 4), (6, 4), (6,)], "exp_avg_sq": [(7, 4), (6, 4), (6,)]}
    assert found == {
        f"optimizer.0.{i}.{key}": shape for key, values in shapes.items() for i, shape in enumerate(values)
    }
    assert optimizer.parameter("optimizer.0.2.exp_avg") == "linear.bias"
    assert [group["weight_decay"] for group in optimizer.state_dict()["param_groups"]] == [0.1, 0.0]


def test_lamb_holds_no_copy_of_the_weights_or_gradients_between_steps():
    model = Small()
    optimizer = Lamb(parameter_groups(model.named_parameters(), 0.1), 0.01)
    model.gradients()
    optimizer.update(0.01, ONE)
    held = [value for group in optimizer.param_groups for value in group["params"]]
    assert [value.untyped_storage().nbytes() for value in held] == [0, 0, 0]
    assert [value.grad for value in held] == [None, None, None]


def test_adamw_is_pytorchs():
    ours, theirs = Small(), Small()
    optimizer = make_optimizer(
        dict(ours.named_parameters()), training_data.section("train", optimizer="adamw", learning_rate=0.1)
    )
    groups = parameter_groups(theirs.named_parameters(), 0.1)
    reference = torch.optim.AdamW(groups, 0.1, (0.9, 0.98), 1e-8, foreach=False)
    for scale in (1.0, 2.0, 0.5):
        for model in (ours, theirs):
            model.gradients(scale)
        optimizer.update(0.03 * scale, ONE)
        for group in reference.param_groups:
            group["lr"] = 0.03 * scale
        reference.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_that_is_not_finite_leaves_the_weights(name):
    model = Small()
    optimizer = make_optimizer(dict(model.named_parameters()), training_data.section("train", optimizer=name))
    model.gradients()
    optimizer.update(0.01, ONE)
    with torch.no_grad():
        model.linear.weight[:2, :2] = torch.tensor([[0.0, -0.0], [1e-40, -3e38]])
    before = copy.deepcopy(model.state_dict())
    for parameter in model.parameters():
        parameter.grad.zero_()
    optimizer.update(0.01, ZERO)
    for key, value in model.state_dict().items():
        assert torch.equal(value.view(torch.int32), before[key].view(torch.int32)), "to the last bit"
    model.gradients()
    optimizer.update(0.01, ONE)
    assert not torch.equal(model.linear.weight, before["linear.weight"])


@pytest.mark.parametrize("name", NAMES)
def test_an_optimizer_goes_on_from_its_state(name):
    train = training_data.section("train", optimizer=name)
    model = Small()
    optimizer = make_optimizer(dict(model.named_parameters()), train)
    model.gradients()
    optimizer.update(0.01, ONE)
    other = copy.deepcopy(model)
    resumed = make_optimizer(dict(other.named_parameters()), train)
    saved = copy.deepcopy(optimizer.state_dict()["param_groups"])
    resumed.restore(optimizer.tensors() | {"model.embedding.weight": ONE}, saved)
    for instance, part in ((model, optimizer), (other, resumed)):
        instance.gradients(2.0)
        part.update(0.02, ONE)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_an_optimizer_is_one_class_with_the_name_in_the_schema():
    class Plain(FusedAdamW):
        name = "plain"

    train = training_data.section("train").model_copy(update={"optimizer": "plain"})
    assert type(make_optimizer(dict(Small().named_parameters()), train)) is Plain


def test_clipping():
    gradient = torch.tensor([3.0, 4.0])
    norm, finite = clip(gradient, 2.0)
    assert (norm.item(), finite.item()) == (5.0, 1.0)
    torch.testing.assert_close(gradient, torch.tensor([1.2, 1.6]))
    small = torch.tensor([0.3, 0.4])
    clip(small, 2.0)
    torch.testing.assert_close(small, torch.tensor([0.3, 0.4]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_becomes_zero(bad):
    gradient = torch.tensor([1.0, bad, 2.0])
    norm, finite = clip(gradient, 2.0)
    assert not norm.isfinite() and finite == 0 and (gradient == 0).all()


def test_the_average_forgets_its_start_early_in_a_run():
    model = nn.Linear(1, 1, bias=False)
    expected = model.weight.item()
    moving = MovingAverage({"weight": model.weight}, 0.999)
    for step in range(200):
        with torch.no_grad():
            model.weight.fill_(step)
        moving.update(step)
        decay = min(0.999, (1 + step) / (60 + step))
        expected = decay * expected + (1 - decay) * step
    average = moving.tensors["weight"].item()
    assert average == pytest.approx(expected, rel=1e-5) and 170 < average < 199
    with moving.in_place():
        assert model.weight.item() == average
    assert (model.weight.item(), moving.tensors["weight"].item()) == (199, average)


def test_without_a_decay_there_is_no_second_copy():
    model = nn.Linear(1, 1, bias=False)
    moving = MovingAverage({"weight": model.weight}, 0)
    moving.update(3)
    with moving.in_place():
        assert moving.tensors is None
