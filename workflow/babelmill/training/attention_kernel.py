"""Choose one attention kernel for training on a GPU, before the first step.

The choice is our kernel (`attention_triton.py`) if it supports the model and computes the right numbers on this
machine, and otherwise one of PyTorch's. By default, PyTorch chooses at each call, and its choice may differ between
training and validation. If no fused kernel supports the inputs, PyTorch computes the formula without a warning, which
is slower and keeps several [B, n, T, T] tensors. The memory-efficient kernel supports a bias, its gradient and dropout.
Flash attention does not support a bias.
"""

import logging
from collections.abc import Iterable

import torch
from torch.nn import functional as F

from babelmill.runtime.processes import Processes
from babelmill.training import kernel_trial
from babelmill.training.amounts import has_attention_kernel
from babelmill.training.dropout import KeyedAttention

log = logging.getLogger(__name__)

ROWS = 2  # rows of a trial
LENGTHS = 100, 128  # tokens per row of the trials: Triton builds a kernel of its own for multiples of 16


def keyed(processes: Processes, width: int, precision: str) -> type[KeyedAttention] | None:
    """Return our kernels, whose dropout is keyed by row, or None if they do not support the model.

    If a process cannot use them, it logs a warning, and all processes return None.

    Args:
        processes: this process among the others. All processes call this function together.
        width: width of a head.
        precision: `train.precision`.
    """
    if not has_attention_kernel(width, precision):
        return None

    def trial() -> float:
        from babelmill.training import attention_triton  # imports Triton, which comes with PyTorch for GPUs

        device, dtype = processes.device, torch.bfloat16
        found = [attention_triton.difference(device, width, length, 0.1, dtype) for length in LENGTHS]
        return torch.tensor(found).max().item()  # nan if one is

    otherwise = (
        "attention is PyTorch's, which is slower, and drops by micro-batch (train.micro_batch_tokens is part of the"
        " result)"
    )
    if not kernel_trial.passed(processes, trial, otherwise):
        return None
    from babelmill.training import attention_triton

    return attention_triton.TritonAttention


def pin(device: torch.device, heads: int, size: int, lengths: Iterable[int], dtype: torch.dtype) -> None:
    """Let PyTorch compute this process's attention only with its memory-efficient kernel.

    If that kernel does not support the model, PyTorch computes the formula instead, and this function logs a warning.
    Later inputs that the chosen implementation does not support raise an error.

    Args:
        device: the GPU.
        heads: number of attention heads.
        size: width of a head.
        lengths: lengths of the rows.
        dtype: type in which attention computes.
    """
    _only(fused=True)
    for length in lengths:
        try:
            _attend(torch.empty(ROWS, heads, length, size, device=device, dtype=dtype))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            _only(fused=False)
            log.warning(
                "PyTorch has no fused attention for rows of %d tokens with %d heads of width %d here (%s):"
                " it computes the formula, which is slower and takes more memory",
                length,
                heads,
                size,
                str(error).splitlines()[0],
            )
            return


def _only(fused: bool) -> None:
    """Allow only the memory-efficient kernel, or only the formula."""
    torch.backends.cuda.enable_mem_efficient_sdp(fused)
    torch.backends.cuda.enable_math_sdp(not fused)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


def _attend(like: torch.Tensor) -> None:
    """Compute attention with a bias and dropout, as training does, and its gradients."""
    inputs = [torch.zeros_like(like, requires_grad=True) for _ in range(3)]
    bias = like.new_zeros([*like.shape[:3], like.size(2)], requires_grad=True)
    F.scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], bias, dropout_p=0.1).sum().backward()
