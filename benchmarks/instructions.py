"""Count the instructions of our attention kernels for an H100 or H200, without a GPU.

    python benchmarks/instructions.py

Triton builds each kernel for heads of 64 numbers, and its disassembler shows the machine code. The instructions of a
thread in a loop, times the threads, divided by the scores of an iteration are what the kernel needs per score. (The
gate's kernels have no scores: there it is per number.) What stands outside of loops is not counted. A processor starts
128 of them per clock, but only 64 of those in `HALF`; so if these are more than half, they count twice.

The times are CALCULATED, with 132 processors at 1.6 GHz. They are what a kernel needs at least, if it never waits for
memory, for another warp, or for a matrix product.
"""

import functools
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import triton

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "tests")]

from babelmill.training import attention_triton, gate_triton  # noqa: E402
from babelmill.training.tiles_triton import WARPS  # noqa: E402
from triton_builds import ATTENTION, GATE, built, resources  # noqa: E402

PER_SECOND = 128 * 132 * 1.6e9  # instructions of single threads
WIDTH = 768  # of a token in the gate's kernels
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
def counted(kernel: Any) -> tuple[Counter[str], list[Counter[str]]]:
    """Build a kernel of `attention_triton.py` or `gate_triton.py` and count its instructions."""
    constants = GATE if kernel.__name__.startswith("_gate") else ATTENTION
    return count(code(built(kernel, constants, "sm_90").asm["cubin"]))


def per_score(kernel: Any, length: float) -> float:
    """Return the instructions of a kernel of attention per score, if a query sees `length` keys, by whole tiles."""
    own, others = ATTENTION["B"], ATTENTION["C"]
    needed = [32 * WARPS / own * slots(loop) for loop in counted(kernel)[1]]
    if kernel is not attention_triton._gradients_of_states:
        return needed[0] / others
    of_queries, of_their_products, of_keys, of_their_products_too = needed
    more = (length + own) / length  # a row has this many times more distances than scores, tile by tile
    return (of_queries + of_keys + more * (of_their_products + of_their_products_too)) / own


def per_number(kernel: Any) -> float:
    """Return the instructions of a kernel of the gate per number of a token."""
    whole, of_tokens = counted(kernel)
    return 32 * WARPS * slots(of_tokens[0] if of_tokens else whole) / WIDTH


def main() -> None:
    """Print the table."""
    print("| kernel | registers | bytes spilled | instructions per score, T = 128 | 512 |\n|---|---|---|---|---|")
    for name in ("_forward", "_gradient_of_scores", "_gradients_of_states"):
        kernel = getattr(attention_triton, name)
        registers, spilled = resources(built(kernel, ATTENTION, "sm_90").asm["cubin"])
        short, long = (per_score(kernel, length) for length in (128, 512))
        print(f"| {name} | {registers} | {spilled} | {short:.0f} | {long:.0f} |")
    for name in ("_gate_forward", "_gate_backward"):
        kernel = getattr(gate_triton, name)
        registers, spilled = resources(built(kernel, GATE, "sm_90").asm["cubin"])
        print(f"| {name} | {registers} | {spilled} | {per_number(kernel):.0f} per number | |")


if __name__ == "__main__":
    main()
