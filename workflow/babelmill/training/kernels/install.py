"""Put into a GPT-BERT what training needs: dropout keyed by row, and the fastest functions that can be used.

This file is the way into this folder: code elsewhere calls `install` (for a NorBERT4, `dropout.install`), and knows no
kernel by its name. On a GPU, our Triton kernels compute what stands between the matrix products, in bf16. Before the
first step, a small model of the same widths is computed with them and by the formula. If they cannot run or are wrong,
PyTorch's operations compute the same numbers, and a warning says why. PyTorch's own kernels for attention cannot be
used: their dropout is not keyed by row. (The trial has not run on a GPU yet; tests run it in Triton's interpreter.)

Functions import the kernels, and so Triton, when they are called: Triton comes only with a PyTorch for GPUs.
"""

import dataclasses
import logging
from typing import Any

import torch
from torch import nn

from babelmill.core.words import first_line
from babelmill.model.gpt_bert import Attention, FeedForward, GPTBert, GPTBertShape, training_mask
from babelmill.runtime.processes import Processes
from babelmill.training.kernels import dropout
from babelmill.training.kernels.dropout import CPUAttention, KeyedAttention, Keys, NoDropout, OneHotAttention

log = logging.getLogger(__name__)

WIDTHS = 16, 32, 64, 128  # of a head, which our kernels of attention support
BUCKETS = 64  # largest `position_bucket_size`: more would need too much of a processor's memory
LENGTHS = 100, 128  # tokens per row of the trial: whole tiles have kernels of their own
LAYERS, WORDS = 3, 64  # of its model: the sums of so many layers are begun once
CLOSE = 0.05  # largest relative difference of the kernels from the formula; rounding to bf16 makes up to 0.023


def install(model: GPTBert, keys: Keys, processes: Processes, precision: str, compiled: bool = False) -> bool:
    """Put dropout keyed by row and faster functions into a model. Its weights do not change.

    Args:
        model: the model, as it is shipped.
        keys: the keys of dropout, which are set before each forward pass.
        processes: this process among the others. All processes call this function together.
        precision: `train.precision`.
        compiled: whether blocks will be compiled. Then a CPU uses the operations that GPUs use without our kernels.

    Returns:
        whether our kernels compute attention, which need to know what each row sees.
    """
    for_cpu = processes.device.type == "cpu" and not compiled
    dropout.install(model, keys, CPUAttention if for_cpu else OneHotAttention)
    return processes.device.type == "cuda" and use_kernels(model, processes, precision)


def use_kernels(model: GPTBert, processes: Processes, precision: str) -> bool:
    """Let a model use our Triton kernels if all processes can use them. Otherwise, a warning says why they cannot.

    In fp32, PyTorch's operations are used: between sub-blocks they move fewer bytes than the kernels would.

    Returns:
        whether the kernels compute attention, too.
    """
    shape, problem = model.config, None
    attends = shape.hidden_size // shape.num_attention_heads in WIDTHS and shape.position_bucket_size <= BUCKETS
    if processes.main and (precision != "bf16" or not attends):
        needed = (
            "attention is computed with ordinary operations, which takes more time and memory: Babelmill's kernel needs"
            " train.precision: bf16, heads of width 16, 32, 64 or 128, and a model.position_bucket_size of at most %d"
        )
        log.warning(needed, BUCKETS)
    if precision != "bf16":
        return False
    try:
        found = [difference(processes.device, shape, length, attends) for length in LENGTHS]
        off = torch.tensor(found).max().item()  # nan if one is
        problem = None if off < CLOSE else f"they are off by {off:.1%} on this machine; please report it"
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # from Triton, a compiler or a driver
        while error.__cause__ is not None:  # Triton's own errors say only where the cause was met
            error = error.__cause__
        problem = f"{type(error).__name__}: {first_line(error)}"
    if problem:
        log.warning("training is slower, since Babelmill's kernels cannot be used: %s", problem)
    if processes.any(problem is not None):
        return False
    put_kernels(model, attends)
    return attends


def put_kernels(model: GPTBert, attends: bool) -> None:
    """Let a model use our Triton kernels, those of attention if it `attends` with them, after `dropout.install`."""
    from babelmill.training.kernels import attention_triton, geglu_triton

    if attends:
        attention_triton.install(model)
    geglu_triton.install(model)
    put_sums(model)


def put_sums(model: GPTBert) -> None:
    """Move what stands between two sub-blocks into one module, which a kernel computes.

    These are dropout, sums (layer mixing or the residual stream) and a normalisation.
    """
    from babelmill.training.kernels.mixing_triton import FusedMixing

    encoder = model.transformer
    dropouts: list[Any] = [model.embedding.dropout]  # `RowDropout`
    model.embedding.dropout = NoDropout(dropouts[0].p)
    for attend, feed_forward in zip(encoder.attention_layers, encoder.mlp_layers, strict=True):
        assert isinstance(attend, Attention) and isinstance(feed_forward, FeedForward)
        dropouts += [attend.dropout, feed_forward.mlp[-1]]
        attend.dropout, feed_forward.mlp[-1] = (NoDropout(dropout.p) for dropout in dropouts[-2:])
        attend.add_module("pre_layer_norm", nn.Identity())  # in the same place as before
        feed_forward.mlp[0] = nn.Identity()
    model.classifier.nonlinearity[0] = nn.Identity()
    encoder.dwa_modules = FusedMixing(dropouts, model.config.layer_norm_eps, encoder.dwa_modules)


def difference(device: torch.device, shape: GPTBertShape, length: int, attends: bool, in_bf16: bool = True) -> float:
    """Return how far a small model with our kernels is from the formula in fp64: nan if a number is nan.

    It has the widths, the dropout and the layer mixing of `shape`. There is a causal row of three documents, a
    bidirectional one whose second half is padding, and one that is a single document. The features and the gradients of
    the weights are compared, each by its norm; those of layer mixing are one tensor.
    """
    small, keys = dataclasses.replace(shape, vocab_size=WORDS, num_hidden_layers=LAYERS), Keys(7, device)
    segments = torch.arange(length).repeat(3, 1) * 3 // length
    segments[1, length // 2 :], segments[2] = -1, 0
    seen = training_mask(segments, torch.tensor([True, False, False])).to(device)
    with torch.random.fork_rng([]):  # the weights of the real model do not depend on a trial
        torch.manual_seed(length)
        formula, fused = GPTBert(small), GPTBert(small)
        for weight in formula.parameters():
            weight.data.add_(torch.randn_like(weight), alpha=0.2 * shape.hidden_size**-0.5)
        ids, gradient = torch.randint(WORDS, (3, length)), torch.randn(3 * length, shape.hidden_size)
    fused.load_state_dict(formula.double().state_dict())
    for model in (formula, fused):
        dropout.install(model.to(device), keys, KeyedAttention)
    put_kernels(fused, attends)
    rows, everywhere = torch.tensor([11, 2**31 + 5, 12]), torch.arange(ids.numel())
    keys.begin_step(1)
    keys.begin_pass(rows.to(device), everywhere.to(device), length, seen)
    found = []
    for model in (formula, fused):
        with torch.autocast(device.type, torch.bfloat16, enabled=in_bf16 and model is fused):
            features = model.classifier.features(model.encode(ids.to(device), seen).flatten(0, 1))
        features.backward(gradient.to(device, features.dtype))
        kinds = {"features": [features.detach().double().flatten()]}
        for name, weight in model.named_parameters():
            if weight.grad is not None:
                kinds.setdefault(name.rstrip("0123456789"), []).append(weight.grad.flatten())
        found.append([torch.cat(tensors) for tensors in kinds.values()])
    pairs = zip(*found, strict=True)
    return torch.stack([(got - wanted).norm() / wanted.norm() for wanted, got in pairs]).max().item()
