"""Choose the device, and set how PyTorch computes on GPUs, wherever this decides the last bits of a result.

Nothing in `runtime/` may change a number, so this stands here.
"""

import torch

from babelmill.runtime import cost
from babelmill.runtime.processes import ignore_gpu_warnings, let_segments_grow


def set_gpu_options() -> None:
    """Set how PyTorch computes on GPUs: without cuDNN's attention, and with long sums in float32, as on a CPU.

    PyTorch prefers cuDNN's attention on an H100 or H200. It was never tested with our masks, which hold -1.7e38 where a
    padding token may attend to nothing. On a machine without GPUs, the options change nothing.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def fast_in_bf16(device: torch.device) -> bool:
    """Return whether a device computes bf16 faster than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return cost.fast_in_bf16()


def scoring_device() -> torch.device:
    """Return the device on which a single process scores a model: a GPU, or the CPU if there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    let_segments_grow()
    ignore_gpu_warnings()
    set_gpu_options()
    return torch.device("cuda")
