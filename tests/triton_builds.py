"""Build the Triton kernels for GPUs without having one, and print the resources that each build needs."""

import re

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from babelmill.training import attention_triton as kernels

SHARED = {80: 163 << 10, 90: 227 << 10}  # bytes of a multiprocessor that a block may take
FLOATS = ("scale", "factor")
FLOAT32 = ("LSE", "DELTA")
INTEGERS = ("LUT", "KEYS")


def built(kernel, tile: tuple[int, int], capability: int, width: int):
    """Build a kernel for heads of so many numbers, in bf16."""
    constants = {"DROPS": True, "B": tile[0], "D": width, "R": 64, "PRECISION": "tf32"}
    signature = {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        elif name in FLOATS:
            signature[name] = "fp32"
        elif name.isupper() and name != "T":
            signature[name] = "*i32" if name in INTEGERS else "*fp32" if name in FLOAT32 else "*bf16"
        else:
            signature[name] = "i32"
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": tile[1]})


if __name__ == "__main__":
    for kernel in (kernels._forward, kernels._backward_of_queries, kernels._backward_of_keys):
        tile = kernels.FORWARD if kernel is kernels._forward else kernels.BACKWARD
        for capability, most in SHARED.items():
            if capability == 80 and kernel is not kernels._backward_of_keys:  # the largest; each build takes seconds
                continue
            found = built(kernel, tile, capability, width=64)
            ptx = found.asm["ptx"]
            print(kernel.__name__, f"sm_{capability}", found.metadata.shared, "bytes", flush=True)
            assert found.metadata.shared <= most
            assert not re.search(r"\b(red|atom)\.", ptx), "an atomic addition"
            assert "wgmma" in ptx or "mma.sync" in ptx, "no matrix unit"
