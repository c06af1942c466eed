"""Choose how a GPT-BERT computes attention in training on a GPU, before the first step.

The choice is our kernel (`attention_triton.py`) if it supports the model and computes the right numbers on this
machine, and otherwise ordinary operations (`one_hot_attention.py`). Both drop the same attention weights. PyTorch's own
kernels cannot: their dropout is not keyed by row.
"""

import logging

import torch

from babelmill.runtime.processes import Processes
from babelmill.training import kernel_trial
from babelmill.training.dropout import KeyedAttention
from babelmill.training.one_hot_attention import OneHotAttention

log = logging.getLogger(__name__)

WIDTHS = 16, 32, 64, 128  # of a head, which our kernel supports
LENGTHS = 100, 128  # tokens per row of the trials: Triton builds a kernel of its own for multiples of 16


def choose(processes: Processes, width: int, precision: str) -> type[KeyedAttention]:
    """Return the class that computes attention. If it is not our kernel, a warning says why.

    Args:
        processes: this process among the others. All processes call this function together.
        width: width of a head.
        precision: `train.precision`.
    """
    otherwise = "attention is computed with ordinary operations, which takes more time and memory"
    if precision != "bf16" or width not in WIDTHS:
        if processes.main:
            log.warning(
                "%s: the kernel of Babelmill needs train.precision: bf16 and heads of width 16, 32, 64 or 128",
                otherwise,
            )
        return OneHotAttention

    def trial() -> float:
        from babelmill.training import kernel_differences  # imports Triton, which comes with PyTorch for GPUs

        device, dtype = processes.device, torch.bfloat16
        cases = [(length, dropout) for length in LENGTHS for dropout in (0.1, 0.0)]
        found = [kernel_differences.of_attention(device, width, *case, dtype) for case in cases]
        return torch.tensor(found).max().item()  # nan if one is

    if not kernel_trial.passed(processes, trial, otherwise):
        return OneHotAttention
    from babelmill.training import attention_triton

    return attention_triton.TritonAttention
