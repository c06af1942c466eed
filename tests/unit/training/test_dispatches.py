"""What a step asks PyTorch to do: how many operations, and none whose result the host would wait for on a GPU."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from babelmill.training.kernels import dropout
from helpers.training.tiny_trainer import make_trainer
from helpers.training.training_data import documents, write_documents

STEP = 35
# Their results are on the host, or their shapes depend on values.
WAIT = {"_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "unique2", "_unique2"}


class Dispatches(TorchDispatchMode):
    """Counts operations that are no views, and by name those that the host would wait for."""

    def __init__(self):
        super().__init__()
        self.count, self.waits = 0, Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        masks = [i for i in args[1] if i is not None and i.dtype == torch.bool] if name == "index" else []
        if name in WAIT or masks:
            self.waits[name] += 1
        result = function(*args, **(kwargs or {}))
        self.count += not function.is_view
        return result


def test_the_host_waits_for_nothing_in_a_step(tmp_path):
    """But for the norm of the gradient, which is looked at on a CPU alone (`clip` of `gradients.py`).

    The trainer is as on a GPU, without the functions for CPUs: at first without dropout in attention, as where our
    kernel computes it, and then as where our kernel cannot be used.
    """
    shard = write_documents(tmp_path / "shard.safetensors", documents(60))
    trainer = make_trainer([shard], dropout=0.1, by_hand=False, micro_batch_tokens=160)
    for layer in trainer.model.transformer.attention_layers:
        layer.dropout.p = layer.relative_dropout.p = 0.0
    trainer.run_step(STEP)
    for number, attention_type in ((1, None), (2, dropout.OneHotAttention)):
        if attention_type:
            dropout.install(trainer.model, trainer.network.keys, attention_type)
            for layer in trainer.model.transformer.attention_layers:
                layer.dropout.p = 0.1
        with Dispatches() as seen:
            trainer.run_step(STEP + number)
        assert seen.waits == {"_local_scalar_dense": 1} and seen.count > 500
