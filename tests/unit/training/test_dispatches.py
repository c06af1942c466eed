"""What a step asks PyTorch to do: how many operations, and none whose result the host would wait for on a GPU."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from babelmill.training.kernels import dropout
from babelmill.training.kernels.pytorch_kernels import OneHotAttention
from babelmill.training.optimization.gradients import Sharding
from babelmill.training.optimization.optim import Lamb, parameter_groups
from babelmill.training.trainer import Trainer
from helpers.training.tiny_trainer import ALONE, make_trainer
from helpers.training.training_data import documents, section, write_documents

STEP = 35
# Their results are on the host, or their shapes depend on values.
WAIT = {"_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "unique2", "_unique2"}


class Dispatches(TorchDispatchMode):
    """Counts operations that are no views, except those that give `ignored`; what the host would wait for, by name."""

    def __init__(self, ignored: torch.dtype | None = None):
        super().__init__()
        self.ignored = ignored
        self.count, self.waits = 0, Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        masks = [i for i in args[1] if i is not None and i.dtype == torch.bool] if name == "index" else []
        if name in WAIT or masks:
            self.waits[name] += 1
        result = function(*args, **(kwargs or {}))
        self.count += not function.is_view and (self.ignored is None or getattr(result, "dtype", None) != self.ignored)
        return result


@pytest.fixture
def make(tmp_path):
    """A function that makes a trainer as on a GPU, without the functions for CPUs and without dropout in attention."""
    shard = write_documents(tmp_path / "shard.safetensors", documents(60))

    def make(layers: int = 2) -> Trainer:
        trainer = make_trainer([shard], dropout=0.1, layers=layers, by_hand=False, micro_batch_tokens=160)
        for layer in trainer.model.transformer.attention_layers:
            layer.dropout.p = layer.relative_dropout.p = 0.0
        trainer.run_step(STEP)
        return trainer

    return make


def test_the_host_waits_for_nothing_in_a_step(make):
    """But for the norm of the gradient, which is looked at on a CPU alone (`clip` of `gradients.py`)."""
    trainer = make()
    for number, attention_type in ((1, None), (2, OneHotAttention)):
        if attention_type:  # as on a GPU where our kernel cannot be used, with dropout
            dropout.install(trainer.model, trainer.network.keys, attention_type)
            for layer in trainer.model.transformer.attention_layers:
                layer.dropout.p = 0.1
        with Dispatches() as seen:
            trainer.run_step(STEP + number)
        assert seen.waits == {"_local_scalar_dense": 1} and seen.count > 500


def test_operations_of_lamb_on_parts_of_parameters():
    """Beside the sum of the norms, which is one operation if there are several processes."""
    parameters = {str(size): torch.nn.Parameter(torch.ones(size, 3)) for size in (0, 1, 1000)}
    parameters["bias"] = torch.nn.Parameter(torch.ones(3))
    for parameter in parameters.values():
        parameter.grad = torch.ones_like(parameter)
    shapes = {name: torch.Size((3000, 3)) for name in parameters}
    optimizer = Lamb(parameter_groups(parameters.items(), 0.1), section("train"), Sharding(shapes, ALONE))
    finite = torch.ones(())
    optimizer.update(0.1, finite)
    with Dispatches() as seen:
        optimizer.update(0.1, finite)
    assert seen.count < 29


def test_operations_of_a_step(make):
    """Each is at least one kernel: their number must not grow unseen, nor with what it should not depend on."""
    trainer, deeper = make(2), make(3)
    step = trainer.plan.step(STEP)

    def counted(function, ignored: torch.dtype | None = None) -> int:
        with Dispatches(ignored) as seen:
            function()
        return seen.count

    found = {
        "micro-batch": counted(
            lambda: trainer.network.micro_batch(trainer.stream, step.rows[:5], step.length, step.weights)
        )
    }
    finite = torch.ones(())
    updates = [counted(lambda t=t: t._optimizer.update(0.1, finite)) for t in (trainer, deeper)]
    found |= {"LAMB": updates[0], "LAMB of another layer": updates[1] - updates[0]}
    found["average"] = counted(lambda: trainer.average.update(3))
    found["clipping"] = counted(lambda: trainer._gradients.clip(1.0))
    # The hashes of dropout are int32, and a part of a compiled kernel on a GPU.
    learned = [
        counted(lambda t=t: t.run_pass(t.stream, step.rows[:5], step.length, step.weights), torch.int32)
        for t in (trainer, deeper)
    ]
    found["a layer, forwards and backwards"] = learned[1] - learned[0]
    limits = {"micro-batch": 160, "LAMB": 29, "LAMB of another layer": 0, "average": 1, "clipping": 16}
    limits["a layer, forwards and backwards"] = 145
    assert {name: number for name, number in found.items() if number > limits[name]} == {}
