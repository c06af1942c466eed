"""Compute the floating-point operations of a training, and look up what a machine can do. No torch is needed."""

import glob
import re
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from babelmill.config.models import Size

DRIVERS = ("/dev/nvidia[0-9]*", "/dev/kfd")  # device files of NVIDIA's and AMD's drivers
# Peak dense bf16 FLOP/s (from the vendors' data sheets). The first key whose words are all in the device's name counts.
# PyTorch sees each half of an MI250 or MI250X as a GPU.
PEAK = {
    "B200": 2250e12,
    "GB200": 2250e12,
    "H200": 989e12,
    "GH200": 989e12,
    "H100 PCIE": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H800": 989e12,
    "H20": 148e12,
    "A100": 312e12,
    "A800": 312e12,
    "A30": 165e12,
    "A40": 150e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "MI325X": 1307e12,
    "MI300X": 1307e12,
    "MI300A": 981e12,
    "MI250X": 383e12 / 2,
    "MI250": 362e12 / 2,
    "MI210": 181e12,
}


def peak_of(device: str) -> float | None:
    """Return the peak of a GPU in FLOP/s; None if it is unknown.

    Args:
        device: the name of the GPU, such as `NVIDIA A100-SXM4-80GB`, `a100_80gb` or `AMD Instinct MI250X`.
    """
    words = set(re.split(r"[^A-Z0-9]+", device.upper()))
    return next((peak for names, peak in PEAK.items() if words.issuperset(names.split())), None)


CPU_INFO = Path("/proc/cpuinfo")
FAST_BF16 = {"amx_bf16", "avx512_bf16"}  # with one of them, `small` trains 1.8 times as fast as in fp32 (AMD Zen 4)


def precision_of(asked: str, bf16_is_fast: bool) -> str:
    """Return the precision of a training that begins: `train.precision`, or what `auto` is on a device."""
    return asked if asked != "auto" else "bf16" if bf16_is_fast else "fp32"


def fast_in_bf16() -> bool:
    """Return whether this machine's processor is known to compute bf16 faster than fp32."""
    words = CPU_INFO.read_text(encoding="utf-8", errors="replace").split() if CPU_INFO.exists() else []
    return not FAST_BF16.isdisjoint(words)


def has_gpu() -> bool:
    """Return whether a GPU driver is loaded on this machine."""
    return any(glob.glob(pattern) for pattern in DRIVERS)


Amount = TypeVar("Amount", float, np.ndarray)


def flops(size: Size, length: Any, positions: Any, targets: Amount) -> Amount:
    """Return the floating-point operations of forward and backward passes.

    Only matrix products are counted: projections, feed-forward, attention over the whole row, position tables, output.

    Args:
        size: the size of the model.
        length: tokens per row.
        positions: number of positions.
        targets: number of targets. All three may be arrays.
    """
    attention = 2 * length * size.hidden_size * size.num_hidden_layers
    of_matrices = 4.0 if size.frozen else 6.0  # forward, gradient of the input and, unless frozen, of the weights
    return of_matrices * (size.matrices * positions + size.output * targets) + 6.0 * attention * positions
