"""Put into a GPT-BERT what training needs: dropout keyed by row, and the fastest functions that can be used.

This file is the way into this folder: code elsewhere calls `install`, and knows no kernel by its name. On a GPU, our
Triton kernels compute what stands between the matrix products, if they support the model, can run and are right
(`kernel_trial.py`). Otherwise PyTorch's operations compute the same numbers, and a warning says why. PyTorch's own
kernels for attention cannot be used: their dropout is not keyed by row.
"""

import logging
from typing import Any

import torch
from torch import nn

from babelmill.model.gpt_bert import Attention, FeedForward, GPTBert
from babelmill.runtime.processes import Processes
from babelmill.training.kernels import dropout, kernel_trial, pytorch_kernels
from babelmill.training.kernels.dropout import KeyedAttention, Keys, NoDropout

log = logging.getLogger(__name__)

WIDTHS = 16, 32, 64, 128  # of a head, which our kernels support
BUCKETS = 64  # largest `position_bucket_size`: more would need too much of a processor's memory
LENGTHS = 100, 128  # tokens per row of the trials: whole tiles have kernels of their own


def install(
    model: GPTBert, keys: Keys, processes: Processes, precision: str, by_hand: bool = True, compiled: bool = False
) -> set[str]:
    """Put dropout keyed by row and, with `by_hand`, faster functions into a model. Its weights do not change.

    Args:
        model: the model, as it is shipped.
        keys: the keys of dropout, which are set before each forward pass.
        processes: this process among the others. All processes call this function together.
        precision: `train.precision`.
        by_hand: False: use the shipped operations, which are slower.
        compiled: whether blocks will be compiled. Then a CPU uses the operations that GPUs use without our kernels.

    Returns:
        which parts of the model our Triton kernels compute, see `install_triton`.
    """
    attention = KeyedAttention
    if by_hand:
        for_cpu = processes.device.type == "cpu" and not compiled
        pytorch_kernels.install(model)
        attention = pytorch_kernels.CPUAttention if for_cpu else pytorch_kernels.OneHotAttention
    dropout.install(model, keys, attention)
    return install_triton(model, processes, precision) if by_hand and processes.device.type == "cuda" else set()


def install_triton(model: GPTBert, processes: Processes, precision: str) -> set[str]:
    """Let a model use our Triton kernels that all processes can use. Where one cannot, a warning says why.

    In fp32, PyTorch's operations are used; between sub-blocks they move fewer bytes than the kernels would.

    Returns:
        the parts that the kernels compute: "attention", "feed-forward", "sums" (and normalisations between sub-blocks).
    """
    shape, device, used = model.config, processes.device, set[str]()
    mixes, slower = shape.layer_mixing, "PyTorch's operations, which are slower"
    otherwise = "attention is computed with ordinary operations, which takes more time and memory"

    def try_attention() -> float:
        cases = [(length, dropout) for length in LENGTHS for dropout in (0.1, 0.0)]
        found = [kernel_trial.of_attention(device, shape, *case, torch.bfloat16) for case in cases]
        return torch.tensor(found).max().item()  # nan if one is

    fits = shape.hidden_size // shape.num_attention_heads in WIDTHS and shape.position_bucket_size <= BUCKETS
    if precision != "bf16" or not fits:
        if processes.main:
            log.warning(
                "%s: Babelmill's kernel needs train.precision: bf16, heads of width 16, 32, 64 or 128, and a"
                " model.position_bucket_size of at most %d",
                otherwise,
                BUCKETS,
            )
    elif kernel_trial.passed(processes, try_attention, otherwise):
        from babelmill.training.kernels import attention_block_triton

        attention_block_triton.install(model)
        used.add("attention")
    if precision != "bf16":
        return used

    def try_feed_forward() -> float:
        return kernel_trial.of_geglu(device, shape.intermediate_size)

    if kernel_trial.passed(processes, try_feed_forward, f"feed-forward blocks use {slower}"):
        from babelmill.training.kernels import geglu_triton

        geglu_triton.install(model)
        used.add("feed-forward")

    def try_sums() -> float:
        return kernel_trial.of_sums(device, shape.hidden_size, mixes)

    if kernel_trial.passed(processes, try_sums, f"{'layer mixing uses' if mixes else 'residual sums use'} {slower}"):
        from babelmill.training.kernels.mixing_triton import FusedMixing
        from babelmill.training.kernels.residual_triton import FusedResidual

        put_sums(model, FusedMixing if mixes else FusedResidual)
        used.add("sums")
    return used


def put_sums(model: GPTBert, kind: Any) -> None:
    """Let a model use `FusedMixing` or `FusedResidual`, after `dropout.install`.

    What stands between two sub-blocks moves into one module, which a kernel computes: dropout, sums (layer mixing or
    the residual stream) and a normalisation.
    """
    encoder, dropouts = model.transformer, [model.embedding.dropout]
    model.embedding.dropout = NoDropout(dropouts[0].p)
    for attend, feed_forward in zip(encoder.attention_layers, encoder.mlp_layers, strict=True):
        assert isinstance(attend, Attention) and isinstance(feed_forward, FeedForward)
        dropouts += [attend.dropout, feed_forward.mlp[-1]]
        attend.dropout, feed_forward.mlp[-1] = (NoDropout(dropout.p) for dropout in dropouts[-2:])
        attend.add_module("pre_layer_norm", nn.Identity())  # in the same place as before
        feed_forward.mlp[0] = nn.Identity()
    model.classifier.nonlinearity[0] = nn.Identity()
    mixing = [encoder.dwa_modules] if encoder.layer_mixing else []
    encoder.dwa_modules = kind(dropouts, model.config.layer_norm_eps, *mixing)
    encoder.layer_mixing = True  # from now on, `dwa_modules` computes all sums
