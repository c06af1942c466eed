"""Use our kernels for a GPT-BERT's attention in training on a GPU, if they support the model and are right.

Otherwise ordinary operations (`one_hot_attention.py`) drop the same attention weights. PyTorch's own kernels cannot:
their dropout is not keyed by row.
"""

import logging

import torch

from babelmill.model.gpt_bert import GPTBert
from babelmill.runtime.processes import Processes
from babelmill.training.kernels import kernel_trial

log = logging.getLogger(__name__)

WIDTHS = 16, 32, 64, 128  # of a head, which our kernels support
BUCKETS = 64  # largest `position_bucket_size`: more would need too much of a processor's memory
LENGTHS = 100, 128  # tokens per row of the trials: whole tiles have kernels of their own


def install_fused(model: GPTBert, processes: Processes, precision: str) -> bool:
    """Let a model use our kernels for attention if all processes can. If not, a warning says why.

    Args:
        model: the model, after `dropout.install`.
        processes: this process among the others. All processes call this function together.
        precision: `train.precision`.

    Returns:
        whether the model uses them.
    """
    otherwise = "attention is computed with ordinary operations, which takes more time and memory"
    shape = model.config
    supported = shape.hidden_size // shape.num_attention_heads in WIDTHS and shape.position_bucket_size <= BUCKETS
    if precision != "bf16" or not supported:
        if processes.main:
            log.warning(
                "%s: the kernel of Babelmill needs train.precision: bf16, heads of width 16, 32, 64 or 128, and a"
                " model.position_bucket_size of at most %d",
                otherwise,
                BUCKETS,
            )
        return False

    def trial() -> float:
        from babelmill.training.kernels import kernel_differences  # imports Triton, which comes with PyTorch for GPUs

        cases = [(length, dropout) for length in LENGTHS for dropout in (0.1, 0.0)]
        found = [kernel_differences.of_attention(processes.device, shape, *case, torch.bfloat16) for case in cases]
        return torch.tensor(found).max().item()  # nan if one is

    if not kernel_trial.passed(processes, trial, otherwise):
        return False
    from babelmill.training.kernels import fused_attention

    fused_attention.install(model)
    return True
