"""What a step asks PyTorch to do: no operation whose result the host would wait for on a GPU."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from babelmill.training.kernels import dropout
from helpers.training.tiny_trainer import make_trainer
from helpers.training.training_data import documents, write_documents

STEP = 35
# Their results are on the host, or their shapes depend on values.
WAIT = {"_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "unique2", "_unique2"}


class Waits(TorchDispatchMode):
    """Counts what the host would wait for, by name."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        masks = [i for i in args[1] if i is not None and i.dtype == torch.bool] if name == "index" else []
        if name in WAIT or masks:
            self.found[name] += 1
        return function(*args, **(kwargs or {}))


def test_the_host_waits_for_nothing_in_a_step(tmp_path):
    """But for the norm of the gradient, which is looked at on a CPU alone (`clip` of `gradients.py`).

    The trainer is one as on a GPU, at first without dropout in attention.
    """
    shard = write_documents(tmp_path / "shard.safetensors", documents(60))
    trainer = make_trainer([shard], dropout=0.1, by_hand=False, micro_batch_tokens=160)
    for number, chance in enumerate((0.0, 0.1)):
        if chance:  # as on a GPU where our kernel cannot be used
            dropout.install(trainer.model, trainer.network.keys, dropout.OneHotAttention)
        for layer in trainer.model.transformer.attention_layers:
            layer.dropout.p = layer.relative_dropout.p = chance
        trainer.run_step(STEP + 2 * number)
        with Waits() as seen:
            trainer.run_step(STEP + 2 * number + 1)
        assert seen.found == {"_local_scalar_dense": 1}
