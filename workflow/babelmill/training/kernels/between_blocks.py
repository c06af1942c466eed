"""Compute on a GPU what stands between two sub-blocks of a GPT-BERT: dropout, sums and a normalisation in one kernel.

The sums are those of layer mixing (`mixing_triton.py`) or, in a model without it, the residual stream
(`residual_triton.py`).
"""

from typing import Any

import torch
from torch import nn

from babelmill.model.gpt_bert import Attention, FeedForward, GPTBert
from babelmill.runtime.processes import Processes
from babelmill.training.kernels import kernel_trial


def install_fused(model: GPTBert, processes: Processes, precision: str) -> None:
    """Let a model use our kernels between its sub-blocks if all processes can use them. If not, a warning says why.

    In fp32, ordinary operations move fewer bytes than the kernels would.

    Args:
        model: the model, after `mixing_kernel.install` and `dropout.install`.
        processes: this process among the others; all call this together.
        precision: `train.precision`.
    """
    if precision != "bf16":
        return
    mixes = model.config.layer_mixing

    def trial() -> float:
        from babelmill.training.kernels import kernel_differences  # imports Triton, which comes with PyTorch for GPUs

        return kernel_differences.between_blocks(processes.device, model.config.hidden_size, mixes)

    otherwise = f"{'layer mixing is' if mixes else 'residual sums are'} PyTorch's, which is slower"
    if kernel_trial.passed(processes, trial, otherwise):
        from babelmill.training.kernels.mixing_triton import FusedMixing
        from babelmill.training.kernels.residual_triton import FusedResidual

        install(model, FusedMixing if mixes else FusedResidual)


def install(model: GPTBert, kind: Any) -> None:
    """Let a model use `FusedMixing` or `FusedResidual`. Its weights and their names do not change."""
    encoder, dropouts = model.transformer, [model.embedding.dropout]
    model.embedding.dropout = _Moved(dropouts[0].p)
    for attend, feed_forward in zip(encoder.attention_layers, encoder.mlp_layers, strict=True):
        assert isinstance(attend, Attention) and isinstance(feed_forward, FeedForward)
        dropouts += [attend.dropout, feed_forward.mlp[-1]]
        attend.dropout, feed_forward.mlp[-1] = (_Moved(dropout.p) for dropout in dropouts[-2:])
        attend.add_module("pre_layer_norm", nn.Identity())  # in the same place as before
        feed_forward.mlp[0] = nn.Identity()
    model.classifier.nonlinearity[0] = nn.Identity()
    mixing = [encoder.dwa_modules] if encoder.layer_mixing else []
    encoder.dwa_modules = kind(dropouts, model.config.layer_norm_eps, *mixing)
    encoder.layer_mixing = True  # from now on, `dwa_modules` computes all sums


class _Moved(nn.Dropout):
    """Drops nothing: the kernel behind this sub-block drops these elements."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input
