"""Run Python on GPUs that compute nothing: `null_gpu.c` takes the place of the driver.

It needs PyTorch for CUDA, a C compiler and the headers of the CUDA toolkit (in CUDA_HOME, or else /usr/local/cuda).
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

SOURCE = Path(__file__).resolve().with_suffix(".c")


def run(arguments: Sequence[object], gpus: int = 1, **more) -> subprocess.CompletedProcess:
    """Run Python with these arguments on a machine with so many GPUs.

    A GPU has 139 GiB of memory, or as many as the environment variable NULL_GPU_GB says.

    Args:
        arguments: what follows `python` on the command line.
        gpus: number of GPUs.
        more: for `subprocess.run`.
    """
    if torch.version.cuda is None:
        sys.exit("a GPU that computes nothing needs PyTorch for CUDA; yours computes on CPUs only")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "libcuda.so.1")
        toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")
        of_pip = Path(sysconfig.get_path("purelib"), "nvidia", f"cu{torch.version.cuda.split('.')[0]}", "include")
        flags = ["-O1", "-shared", "-fPIC", f"-I{of_pip}", f"-I{toolkit}"]
        try:
            subprocess.run(["cc", *flags, SOURCE, "-ldl", "-o", library], check=True)
        except (OSError, subprocess.CalledProcessError):
            sys.exit(f"null_gpu.c needs a C compiler (cc), and the CUDA toolkit's headers in {toolkit}: set CUDA_HOME")
        found = dict.fromkeys(("NULL_GPU", "LD_PRELOAD"), str(library)) | {"TRITON_LIBCUDA_PATH": folder}
        found |= {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        found |= {"TRITON_CACHE_DIR": f"{folder}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        found |= {"NULL_GPUS": str(gpus)}
        return subprocess.run([sys.executable, *map(str, arguments)], env=os.environ | found, **more)
