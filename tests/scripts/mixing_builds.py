"""Build the Triton kernels between sub-blocks for GPUs that are not here, and print what each build takes."""

import os
import re
import subprocess
import tempfile

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from babelmill.training.kernels import mixing_triton as kernels
from babelmill.training.kernels import residual_triton
from babelmill.training.kernels.shared_triton import sizes as of_width

FLOAT32 = "WEIGHTS", "SCALE", "STREAM"
ADDS = {"BEGINS": False, "DROPS": True}
INTEGERS = "KEYS", "PLACE"
USED, UNUSED = (dict.fromkeys(("GOES_ON", "DROPS"), value) for value in (True, False))
BUILDS = [
    (90, kernels._mix_forward, USED),
    (90, kernels._mix_forward, UNUSED),
    (90, kernels._mix_backward, USED),
    (90, kernels._begin_sums, {}),
    (90, residual_triton._add_forward, ADDS),
    (90, residual_triton._add_backward, ADDS),
    (80, kernels._mix_backward, USED),
    (80, kernels._begin_sums, {}),
]


def built(gpu: GPUTarget, kernel, switches: dict[str, int]):
    """A kernel for a number of elements that is a multiple of 16, as PyTorch's tensors are aligned."""
    begins = kernel is kernels._begin_sums
    sizes = {"S": 8, "B": kernels.BLOCK, "num_warps": kernels.WARPS} if begins else {"EVEN": True} | of_width(768)
    warps, constants, types = sizes.pop("num_warps"), switches | sizes, {"N": "i32", "H": "i32"}
    types |= dict.fromkeys(FLOAT32, "*fp32") | dict.fromkeys(INTEGERS, "*i32")
    types |= {name: "i32" for name in kernel.arg_names if name.islower()} | dict.fromkeys(("eps", "factor"), "fp32")
    signature = {name: "constexpr" if name in constants else types.get(name, "*bf16") for name in kernel.arg_names}
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(kernel.arg_names)
        if name.isupper() and name not in constants and name != "WEIGHTS"
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    return triton.compile(source, target=gpu, options={"num_warps": warps})


def resources(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread, and bytes of its stack (where spilled registers go)."""
    folder = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [f"{folder}/cuobjdump", "-res-usage", file.name], capture_output=True, text=True, check=True
        )
    return tuple(int(re.search(rf"{name}:(\d+)", done.stdout).group(1)) for name in ("REG", "STACK"))


if __name__ == "__main__":
    for capability, kernel, switches in BUILDS:
        found = built(GPUTarget("cuda", capability, 32), kernel, switches)
        ptx, (registers, stack) = found.asm["ptx"], resources(found.asm["cubin"])
        wide = len(re.findall(r"ld\.global[.\w:]*\.v4\.b32", ptx))
        print(f"sm_{capability} {kernel.fn.__name__}: {registers} registers, {stack} bytes of stack,", end=" ")
        print(f"{found.metadata.shared} bytes shared, {wide} loads of 16 bytes", flush=True)
        assert stack == 0 and registers * found.metadata.num_warps <= 64 * 4 and found.metadata.shared <= 16384
        assert not re.search(r"\b(red|atom)\.", ptx), "an atomic addition"
        assert "cvt.rn.bf16" in ptx, "numbers are not rounded to the nearest"
    for _, kernel, switches in BUILDS[2:4]:
        code = built(GPUTarget("hip", "gfx90a", 64), kernel, switches).asm["amdgcn"]
        print("gfx90a:", *re.findall(r"\.(vgpr_count: +\d+|vgpr_spill_count: \d+)", code))
        assert re.search(r"vgpr_spill_count: 0\b", code) and "_atomic_" not in code
