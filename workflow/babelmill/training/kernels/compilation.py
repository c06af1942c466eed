"""Choose how PyTorch computes: the device, what decides the last bits of a result on it, and what is compiled.

Nothing in `runtime/` may change a number, so this stands here.

A model's parts, its loss and micro-batches are compiled with `torch.compile`. There is one graph per length of rows in
training, and one for validation; the number of rows is dynamic. (The classifier and the loss do not depend on the
length of rows.) Each is compiled in the first pass that needs it, which takes minutes. If a compilation fails, a
warning quotes the error, and everything is computed without graphs. (Compiling in the first pass: not run on a GPU
yet.)
"""

import logging
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from babelmill.config import schema
from babelmill.core.files import UserError
from babelmill.core.words import first_line
from babelmill.runtime import cost
from babelmill.runtime.processes import Processes, prepare_gpus

log = logging.getLogger(__name__)


def set_gpu_options() -> None:
    """Set how PyTorch computes on GPUs: without cuDNN's attention, and with long sums in float32, as on a CPU.

    PyTorch prefers cuDNN's attention on an H100 or H200. It was never tested with our masks, which hold -1.7e38 where a
    padding token may attend to nothing. On a machine without GPUs, the options change nothing.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def fast_in_bf16(device: torch.device) -> bool:
    """Return whether a device computes bf16 faster than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return cost.fast_in_bf16()


def scoring_device() -> torch.device:
    """Return the device on which a single process scores a model: a GPU, or the CPU if there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    prepare_gpus()
    set_gpu_options()
    return torch.device("cuda")


Inputs = ParamSpec("Inputs")
Result = TypeVar("Result")

LEAST_ROWS = 2  # the fewest rows that a graph computes: a single row would need a graph of its own
CACHE = "TORCHINDUCTOR_CACHE_DIR"
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2}


def graphs_of(
    run: schema.Run, processes: Processes, compiles: bool, threads: int, cache: Path | None
) -> "Graphs | None":
    """Return what compiles functions, and prepare for it; None if nothing is to be compiled, as on a CPU.

    Args:
        run: `run.compile`.
        processes: this process among the others.
        compiles: whether the architecture can be compiled.
        threads: number of threads of all processes on this machine together.
        cache: see `prepare`.
    """
    if run.compile == "never" or not compiles or processes.device.type == "cpu":
        return None
    prepare(threads // processes.local_size, cache)
    from torch._inductor import config  # after `prepare`, since it chooses its folder when it is imported

    config.triton.mix_order_reduction = False  # its sums depend on the number of rows, graphs must not
    return Graphs()


def prepare(threads: int, cache: Path | None) -> None:
    """Prepare for compilation; call this before the first compilation of this process.

    Compilation runs in worker processes. A signal to the whole process group (from Ctrl-C, SLURM or torchrun) would end
    them, and the training would wait for their kernels forever. So they are started with these signals blocked. They
    end together with the process that started them.

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


class Graphs:
    """Compiles functions whose tensors have any number of rows, such as the blocks of a model, one by one.

    Functions with the same code share their graphs. So compiling a model's blocks, which are alike, takes the time of
    one block per length.

    Args:
        backend: the backend of `torch.compile`.
    """

    def __init__(self, backend: str | Callable[..., Any] = "inductor"):
        self._backend, self.failed = backend, False
        torch._dynamo.config.recompile_limit = 64

    def of(
        self, plain: Callable[Inputs, Result], batched: Callable[Inputs, Iterable[torch.Tensor]]
    ) -> Callable[Inputs, Result]:
        """Return a compiled version of a function. It computes fewer than `LEAST_ROWS` rows without a graph.

        Args:
            plain: the function.
            batched: returns those tensors among the function's inputs whose first dimension is the rows.
        """
        compiled = torch.compile(plain, dynamic=False, fullgraph=True, backend=self._backend)

        def function(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Result:
            tensors = [] if self.failed else list(batched(*args, **kwargs))
            if self.failed or min(map(len, tensors)) < LEAST_ROWS:
                return plain(*args, **kwargs)
            for tensor in tensors:
                torch._dynamo.mark_dynamic(tensor, 0)
            return compiled(*args, **kwargs)

        return function

    def attempt(self, compute: Callable[[], Result]) -> Result:
        """Return the result of a pass. If it fails, it is computed again without graphs, as are all later passes."""
        try:
            return compute()
        except (UserError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # from Dynamo, Inductor, Triton, a compiler or a driver; others come again below
            if self.failed:
                raise
            cause = getattr(error, "inner_exception", error)
            why = f"{type(cause).__name__}: {first_line(cause)}"
        self.failed = True
        log.warning("training without compiled kernels, which is slower: %s", why)
        return compute()
