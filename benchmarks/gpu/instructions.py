"""Count the instructions of our kernels for an H100 or H200, without a GPU.

    python benchmarks/gpu/instructions.py

Triton builds each kernel for `base`, and its disassembler shows the machine code. The instructions of a thread in a
loop, times the threads, divided by the scores of an iteration are what a kernel of attention needs per score. What
stands outside of loops is not counted. For the other kernels it is per number of a token (or, for `_begin_sums`, of a
row). A processor starts 128 instructions per clock, but only 64 of those in `HALF`; so if these are more than half,
they count twice.
"""

import argparse
import functools
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import triton

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "tests/scripts")]

import kernel_builds  # noqa: E402
from kernel_builds import ATTENTION, BUILDS, SUMS, resources  # noqa: E402

from babelmill.training.kernels import attention_triton, mixing_triton  # noqa: E402

# Instructions that only half of the lanes can compute.
HALF = {"F2FP", "FMNMX", "FSEL", "FSETP", "IABS", "IADD3", "ISETP", "LEA", "LOP3", "MOV"}
HALF |= {"P2R", "PLOP3", "PRMT", "R2P", "SEL", "SGXT", "SHF", "VIADD", "VIMNMX"}
SHORT = 40  # loops with fewer instructions wait for something, and compute nothing


def code(cubin: bytes) -> str:
    """Return the machine code of a kernel as text."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True).stdout


def count(text: str) -> tuple[Counter[str], list[Counter[str]]]:
    """Return how often each instruction stands in a kernel, and in each of its loops."""
    labels, names, found = {}, [], []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(names)
        elif instruction := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+\s+)?([A-Z0-9]+)(.*)", line):
            names.append(instruction[1])
            target = re.search(r"\.L_x_\d+", instruction[2]) if instruction[1] == "BRA" else None
            if target and target[0] in labels:  # it jumps back
                found.append(Counter(names[labels[target[0]] :]))
    return Counter(names), [loop for loop in found if loop.total() > SHORT]


def slots(counted: Counter[str]) -> int:
    """Return how many instructions start in the time that these need."""
    return max(counted.total(), 2 * sum(number for name, number in counted.items() if name in HALF))


@functools.cache
def built(kernel: Any) -> Any:
    """Build a kernel as the tests do."""
    (constants, *_) = (constants for each, constants, _ in [*BUILDS, *SUMS] if each is kernel)
    return kernel_builds.built(kernel, constants, "sm_90")


@functools.cache
def counted(kernel: Any) -> tuple[Counter[str], list[Counter[str]]]:
    """Count the instructions of a kernel, and of its loops."""
    return count(code(built(kernel).asm["cubin"]))


def per_score(kernel: Any, length: float) -> float:
    """Return the instructions of a kernel of attention per score, if a query sees `length` keys, by whole tiles."""
    own, others = ATTENTION["B"], ATTENTION["C"]
    needed = [32 * built(kernel).metadata.num_warps / own * slots(loop) for loop in counted(kernel)[1]]
    if kernel is not attention_triton._gradients_of_states:
        return needed[0] / others
    of_queries, of_their_products, of_keys, of_their_products_too = needed
    more = (length + own) / length  # a row has this many times more distances than scores, tile by tile
    return (of_queries + of_keys + more * (of_their_products + of_their_products_too)) / own


def per_number(kernel: Any) -> float:
    """Return the instructions of another kernel per number of a token, or of a row."""
    whole, loops = counted(kernel)
    widths = {"_geglu_forward": 2560, "_geglu_backward": 2560, "_begin_sums": mixing_triton.BLOCK}
    threads = 32 * built(kernel).metadata.num_warps
    return threads * slots(loops[0] if loops else whole) / widths.get(kernel.__name__, 768)


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print("| kernel | registers | bytes spilled | instructions per score, T = 128 | 512 | per number |")
    print("|---|---|---|---|---|---|")
    of_attention = [kernel for kernel, constants, _ in BUILDS if constants is ATTENTION]
    others = [kernel for kernel, constants, _ in [*BUILDS, *SUMS] if "num_warps" in constants]
    for kernel in (*of_attention, *dict.fromkeys(others)):
        registers, spilled = resources(built(kernel).asm["cubin"])
        scores = [f"{per_score(kernel, length):.0f}" for length in (128, 512) if kernel in of_attention] or ["", ""]
        number = "" if kernel in of_attention else f"{per_number(kernel):.0f}"
        print(f"| {kernel.__name__} | {registers} | {spilled} | {' | '.join(scores)} | {number} |")


if __name__ == "__main__":
    main()
