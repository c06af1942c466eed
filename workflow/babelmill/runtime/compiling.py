"""Check what `torch.compile` needs on a machine, and start its worker processes so that signals do not end them.

Compilation runs in worker processes. A signal to the whole process group (from Ctrl-C, SLURM, Grid Engine or torchrun)
would end them, and the training would wait for their kernels forever. So the workers are started with these signals
blocked. They end together with the process that started them.
"""

import ctypes.util
import importlib.util
import os
import shutil
import signal
import sysconfig
from pathlib import Path

import torch

CACHE = "TORCHINDUCTOR_CACHE_DIR"
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2}


def lacking(device: torch.device) -> str | None:
    """Return one line that names what this machine lacks to compile for a device; None if it seems to lack nothing.

    On a GPU, Triton compiles a small C library that launches each kernel when it is first used. On a CPU, kernels
    are compiled from C++.
    """
    lacks = []
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        lacks.append("the Python package triton (a PyTorch for GPUs installs it)")
    if device.type == "cuda" and torch.version.cuda and not _finds_libcuda():
        lacks.append("libcuda.so.1 of NVIDIA's driver in a folder where the system looks for libraries (ldconfig -p)")
    variable, names = ("CC", ("gcc", "clang")) if device.type == "cuda" else ("CXX", ("g++",))
    if not any(map(shutil.which, os.environ.get(variable, "").split()[:1] or names)):
        language = "C" if variable == "CC" else "C++"
        lacks.append(f"a {language} compiler ({' or '.join(names)} on PATH, or the program that {variable} names)")
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").is_file():
        lacks.append(f"{headers}/Python.h (package python3-dev or python3-devel; conda's Python has it)")
    return ", ".join(lacks) or None


def _finds_libcuda() -> bool:
    folders = [os.environ.get("TRITON_LIBCUDA_PATH"), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    found = any(folder and Path(folder, "libcuda.so.1").exists() for folder in folders)
    return found or ctypes.util.find_library("cuda") is not None


def prepare(threads: int, cache: Path | None) -> None:
    """Prepare for compilation; call this before the first compilation of this process.

    Args:
        threads: the number of threads of this process, and of compile workers. (By default PyTorch would start 32
            workers per GPU, each of over 1 GB.)
        cache: a folder that keeps kernels for later runs; None: a temporary folder. An environment variable
            overrides it.
    """
    if cache is not None:
        os.environ.setdefault(CACHE, str(cache.absolute()))
        os.environ.setdefault("TRITON_CACHE_DIR", str(Path(os.environ[CACHE], "triton")))  # of our own kernels, too
    from torch._inductor import config  # chooses its folder when it is imported
    from torch._inductor.async_compile import AsyncCompile

    if "TORCHINDUCTOR_COMPILE_THREADS" not in os.environ:
        config.compile_threads = max(1, threads)
    if (config.compile_threads or 1) > 1:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the new process inherits this
        try:
            AsyncCompile.process_pool()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
