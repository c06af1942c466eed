"""What `torch.compile` needs of a machine, and how its helpers live beside a training.

Compilation runs in processes of their own. A signal that is sent to the whole process group (Ctrl-C, SLURM, torchrun)
would end them, and the training would wait for ever for what they were making: they are started so that such signals
do not reach them. They end with the process that started them.
"""

import ctypes.util
import importlib.util
import os
import shutil
import signal
import sysconfig
from pathlib import Path

import torch

CACHE = "TORCHINDUCTOR_CACHE_DIR"  # Triton's kernels go below it
SIGNALS = {signal.SIGTERM, signal.SIGINT}


def lacking(device: torch.device) -> str | None:
    """Return what this machine lacks to compile for a device, in words, one line; None if nothing is known to lack.

    Triton builds a small library that launches each kernel, when the kernel is first used; on a CPU a kernel is C++.
    """
    lacks = []
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        lacks.append("the Python package triton (a PyTorch for GPUs brings it along)")
    if device.type == "cuda" and torch.version.cuda and not _finds_libcuda():
        lacks.append("libcuda.so.1 of NVIDIA's driver where the system looks for libraries (ldconfig -p)")
    variable, names = ("CC", ("gcc", "clang")) if device.type == "cuda" else ("CXX", ("g++",))
    if not any(map(shutil.which, os.environ.get(variable, "").split()[:1] or names)):
        language = "C" if variable == "CC" else "C++"
        lacks.append(f"a {language} compiler ({' or '.join(names)} on PATH, or what {variable} names)")
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").is_file():
        lacks.append(f"{headers}/Python.h (package python3-dev or python3-devel; conda's Python has it)")
    return ", ".join(lacks) or None


def _finds_libcuda() -> bool:
    folders = [os.environ.get("TRITON_LIBCUDA_PATH"), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    found = any(folder and Path(folder, "libcuda.so.1").exists() for folder in folders)
    return found or ctypes.util.find_library("cuda") is not None


def prepare(threads: int, cache: Path | None) -> None:
    """Get ready to compile: before the first compilation of this process.

    Args:
        threads: of this process. PyTorch would start 32 workers for each GPU, of over 1 GB each.
        cache: a folder that keeps kernels for later runs; None: a temporary one. The environment goes before.
    """
    if cache is not None:
        os.environ.setdefault(CACHE, str(cache.absolute()))
    from torch._inductor import config  # which chooses a folder when it is imported
    from torch._inductor.async_compile import AsyncCompile

    if "TORCHINDUCTOR_COMPILE_THREADS" not in os.environ:
        config.compile_threads = max(1, threads)
    if (config.compile_threads or 1) > 1:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # which the new process inherits
        try:
            AsyncCompile.process_pool()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
