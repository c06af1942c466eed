"""Build the Triton kernels for the GPUs that are named, without having one, and print what each build needs."""

import os
import re
import subprocess
import sys
import tempfile

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from babelmill.training.kernels import attention_triton as attention
from babelmill.training.kernels import geglu_triton, mixing_triton
from babelmill.training.kernels.shared_triton import WARPS, sizes

# GPUs, and how many bytes of a multiprocessor a block may take: A100, H100, MI250X, MI300X.
SHARED = {"sm_80": 163 << 10, "sm_90": 227 << 10, "gfx90a": 64 << 10, "gfx942": 64 << 10}
# Types of arguments, by their names. Other names in capitals are tensors in bf16, others in small letters integers.
FLOATS = ("scale", "factor", "eps")
LENGTHS = ("T", "H", "N")
TENSORS = dict.fromkeys(("LSE", "DELTA", "SUMS", "PARTS", "WEIGHTS", "SCALE"), "*fp32")
TENSORS |= dict.fromkeys(("LUT", "SPANS", "KEYS", "PLACE"), "*i32")

# Each kernel with its constants, for heads of 64 numbers, a width of 768 and feed-forward blocks of 2,560; builds for all
# GPUs take long. Rows that are no whole tiles have kernels of their own.
ATTENTION = {"DROPS": True, "EVEN": True, "WHOLE": True, "B": attention.TILE, "C": attention.OTHERS, "D": 64, "R": 64}
NOT_WHOLE = ATTENTION | {"WHOLE": False}
TABLES = {"COUNT": attention.POSITIONS, "B": attention.OF_TABLES, "D": 64, "R": 64}
GATE = {"GATES": True, "D": 64, "TOKENS": attention.TOKENS}
GATE_FORWARD, GATE_BACKWARD = GATE | sizes(768), GATE | sizes(768, attention.NUMBERS)
GEGLU_FORWARD, GEGLU_BACKWARD = (geglu_triton.sizes(2560, numbers) for numbers in geglu_triton.NUMBERS)
BEGIN = {"S": 8, "B": mixing_triton.BLOCK, "num_warps": mixing_triton.WARPS}
UNUSED, USED = ({"EVEN": True, "GOES_ON": used, "DROPS": used} | sizes(768) for used in (False, True))
BUILDS = [
    (attention._forward, ATTENTION, ("sm_80", "sm_90", "gfx90a")),
    (attention._gradient_of_scores, ATTENTION, ("sm_80", "sm_90", "gfx90a")),
    (attention._gradients_of_states, ATTENTION, SHARED),
    (attention._forward, NOT_WHOLE, ("sm_90",)),
    (attention._gradient_of_scores, NOT_WHOLE, ("sm_90",)),
    (attention._gradients_of_states, NOT_WHOLE, ("sm_90",)),
    (attention._backward_of_tables, TABLES, ("sm_80", "sm_90", "gfx90a")),
    (attention._gate_forward, GATE_FORWARD, ("sm_80", "sm_90")),
    (attention._gate_backward, GATE_BACKWARD, SHARED),
    (geglu_triton._geglu_forward, GEGLU_FORWARD, ("sm_80", "sm_90", "gfx90a")),
    (geglu_triton._geglu_backward, GEGLU_BACKWARD, SHARED),
]
SUMS = [
    (mixing_triton._mix_forward, USED, ("sm_90",)),
    (mixing_triton._mix_forward, UNUSED, ("sm_90",)),
    (mixing_triton._mix_backward, USED, ("sm_80", "sm_90", "gfx90a")),
    (mixing_triton._begin_sums, BEGIN, ("sm_80", "sm_90", "gfx90a")),
]


def built(kernel, constants: dict[str, int], gpu: str):
    """Build a kernel for tensors and sizes that are aligned as a model's are, for NVIDIA (sm_...) or AMD (gfx...)."""
    warps = constants.get("num_warps", WARPS)
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    signature = {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        elif name in FLOATS:
            signature[name] = "fp32"
        else:
            signature[name] = TENSORS.get(name, "*bf16") if name.isupper() and name not in LENGTHS else "i32"
    aligned = [name for name in signature if signature[name].startswith("*") or name in (*LENGTHS, "width")]
    attributes = {
        (kernel.arg_names.index(name),): [["tt.divisibility", 16]]
        for name in aligned
        if name != "WEIGHTS" and name not in constants
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    target = GPUTarget("hip", gpu, 64) if gpu.startswith("gfx") else GPUTarget("cuda", int(gpu[3:]), 32)
    return triton.compile(source, target=target, options={"num_warps": warps})


def resources(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread, and bytes of its stack (where spilled registers go)."""
    tool = os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin/cuobjdump")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True)
    return tuple(int(re.search(rf"{name}:(\d+)", done.stdout)[1]) for name in ("REG", "STACK"))


if __name__ == "__main__":
    for kernel, constants, gpus in [*BUILDS, *SUMS]:
        multiplies, adds = "D" in constants and "GATES" not in constants, (kernel, constants, gpus) in SUMS
        for gpu in {*gpus} & {*sys.argv[1:]}:
            amd = gpu.startswith("gfx")
            found = built(kernel, constants, gpu)
            code, shared = found.asm["amdgcn" if amd else "ptx"], found.metadata.shared
            if amd:
                spills = int(re.search(r"vgpr_spill_count: (\d+)", code)[1])
            else:
                registers, spills = resources(found.asm["cubin"])
                assert not adds or registers * found.metadata.num_warps <= 64 * 4
            print(f"{kernel.fn.__name__} {gpu} {shared} bytes shared, {spills} spilled", flush=True)
            # For sm_80, 32 rows of queries are too few for four warps. (Triton 3.6 would spill 160 bytes.)
            most = 32 if gpu == "sm_80" and kernel is attention._gradient_of_scores else 0
            assert shared <= (16384 if adds else SHARED[gpu]) and spills <= most
            assert not re.search(r"\b(red|atom)\.|_atomic_", code), "an atomic addition"
            assert not multiplies or re.search(r"wgmma|mma\.sync|v_mfma", code), "no matrix unit"
            assert amd or not adds or "cvt.rn.bf16" in code, "numbers are not rounded to the nearest"
