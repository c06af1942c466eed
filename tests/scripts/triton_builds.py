"""Build the Triton kernels for GPUs without having one, and print the resources that each build needs."""

import re

import triton
from mixing_builds import resources
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from babelmill.training.kernels import attention_block_triton as block
from babelmill.training.kernels import attention_triton as kernels
from babelmill.training.kernels import geglu_triton
from babelmill.training.kernels.shared_triton import WARPS, sizes

# GPUs, and how many bytes of a multiprocessor a block may take: A100, H100, MI250X, MI300X.
SHARED = {"sm_80": 163 << 10, "sm_90": 227 << 10, "gfx90a": 64 << 10, "gfx942": 64 << 10}
FLOATS = ("scale", "factor", "eps")
FLOAT32 = ("LSE", "DELTA", "SUMS", "PARTS")
INTEGERS = ("LUT", "SPANS", "KEYS")


def target(name: str) -> GPUTarget:
    """Return a GPU of NVIDIA (sm_...) or AMD (gfx...)."""
    return GPUTarget("hip", name, 64) if name.startswith("gfx") else GPUTarget("cuda", int(name[3:]), 32)


# Each kernel with its constants, for heads of 64 numbers, a width of 768 and feed-forward blocks of 2,560; builds for all
# GPUs take long. Rows that are no whole tiles have kernels of their own.
ATTENTION = {"DROPS": True, "EVEN": True, "WHOLE": True, "B": kernels.TILE, "C": kernels.OTHERS, "D": 64, "R": 64}
NOT_WHOLE = ATTENTION | {"WHOLE": False}
TABLES = {"COUNT": kernels.POSITIONS, "B": kernels.OF_TABLES, "D": 64, "R": 64}
GATE = {"GATES": True, "D": 64, "TOKENS": block.TOKENS}
GATE_FORWARD, GATE_BACKWARD = GATE | sizes(768), GATE | sizes(768, block.NUMBERS)
GEGLU_FORWARD, GEGLU_BACKWARD = (geglu_triton.sizes(2560, numbers) for numbers in geglu_triton.NUMBERS)
BUILDS = [
    (kernels._forward, ATTENTION, ("sm_80", "sm_90", "gfx90a")),
    (kernels._gradient_of_scores, ATTENTION, ("sm_80", "sm_90", "gfx90a")),
    (kernels._gradients_of_states, ATTENTION, SHARED),
    (kernels._forward, NOT_WHOLE, ("sm_90",)),
    (kernels._gradient_of_scores, NOT_WHOLE, ("sm_90",)),
    (kernels._gradients_of_states, NOT_WHOLE, ("sm_90",)),
    (kernels._backward_of_tables, TABLES, ("sm_80", "sm_90", "gfx90a")),
    (block._gate_forward, GATE_FORWARD, ("sm_80", "sm_90")),
    (block._gate_backward, GATE_BACKWARD, SHARED),
    (geglu_triton._geglu_forward, GEGLU_FORWARD, ("sm_80", "sm_90", "gfx90a")),
    (geglu_triton._geglu_backward, GEGLU_BACKWARD, SHARED),
]


def built(kernel, constants: dict[str, int], gpu: str):
    """Build a kernel in bf16, for tensors and sizes that are aligned as a model's are."""
    warps = constants.get("num_warps", WARPS)
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    signature = {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        elif name in FLOATS:
            signature[name] = "fp32"
        elif name.isupper() and name not in ("T", "H"):
            signature[name] = "*i32" if name in INTEGERS else "*fp32" if name in FLOAT32 else "*bf16"
        else:
            signature[name] = "i32"
    aligned = [name for name in kernel.arg_names if signature[name].startswith("*") or name in ("T", "H", "width")]
    attributes = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    return triton.compile(source, target=target(gpu), options={"num_warps": warps})


if __name__ == "__main__":
    for kernel, constants, gpus in BUILDS:
        multiplies = "D" in constants and "GATES" not in constants
        for gpu in gpus:
            amd = gpu.startswith("gfx")
            found = built(kernel, constants, gpu)
            code = found.asm["amdgcn" if amd else "ptx"]
            spills = int(re.search(r"vgpr_spill_count: (\d+)", code)[1]) if amd else resources(found.asm["cubin"])[1]
            print(f"{kernel.__name__} {gpu} {found.metadata.shared} bytes shared, {spills} spilled", flush=True)
            # For sm_80, 32 rows of queries are too few for four warps. (Triton 3.6 would spill 160 bytes.)
            most = 32 if gpu == "sm_80" and kernel is kernels._gradient_of_scores else 0
            assert found.metadata.shared <= SHARED[gpu] and spills <= most
            assert not re.search(r"\b(red|atom)\.|_atomic_", code), "an atomic addition"
            assert not multiplies or re.search(r"wgmma|mma\.sync|v_mfma", code), "no matrix unit"
