"""Build the Triton kernels for GPUs without having one, and print the resources that each build needs."""

import re

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from babelmill.training import attention_triton as kernels

# GPUs, and how many bytes of a multiprocessor a block may take: A100, H100, MI250X, MI300X.
SHARED = {"sm_80": 163 << 10, "sm_90": 227 << 10, "gfx90a": 64 << 10, "gfx942": 64 << 10}
FLOATS = ("scale", "factor")
FLOAT32 = ("LSE", "DELTA")
INTEGERS = ("LUT", "KEYS")


def target(name: str) -> GPUTarget:
    """Return a GPU of NVIDIA (sm_...) or AMD (gfx...)."""
    return GPUTarget("hip", name, 64) if name.startswith("gfx") else GPUTarget("cuda", int(name[3:]), 32)


def built(kernel, tile: tuple[int, int], gpu: str, width: int):
    """Build a kernel for heads of so many numbers, in bf16."""
    constants = {"DROPS": True, "B": tile[0], "D": width, "R": 64}
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
    return triton.compile(source, target=target(gpu), options={"num_warps": tile[1]})


if __name__ == "__main__":
    for kernel in (kernels._forward, kernels._backward_of_queries, kernels._backward_of_keys):
        tile = kernels.FORWARD if kernel is kernels._forward else kernels.BACKWARD
        for gpu, most in SHARED.items():
            if (
                gpu in ("sm_80", "gfx942") and kernel is not kernels._backward_of_keys
            ):  # the largest; a build takes seconds
                continue
            found = built(kernel, tile, gpu, width=64)
            code = found.asm["amdgcn" if gpu.startswith("gfx") else "ptx"]
            print(kernel.__name__, gpu, found.metadata.shared, "bytes", flush=True)
            assert found.metadata.shared <= most
            assert not re.search(r"\b(red|atom)\.|_atomic_", code), "an atomic addition"
            assert re.search(r"wgmma|mma\.sync|v_mfma", code), "no matrix unit"
