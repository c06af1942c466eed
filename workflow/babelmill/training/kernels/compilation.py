"""Compile a model's parts, its loss and micro-batches: decide which graphs there are, and make them before training.

There is one graph per length of rows in training, and one for validation; the number of rows is dynamic. (The
classifier and the loss do not depend on the length of rows.) So all graphs are known, and made, before the first step.
If another shape occurs later, it is computed without a graph, with a warning. To make a graph for it would stop the run
for minutes, perhaps in a step that has to end soon because of a signal or the end of an allocation.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from babelmill.config import schema
from babelmill.core.files import UserError
from babelmill.core.words import first_line
from babelmill.runtime import compiling
from babelmill.runtime.processes import Processes

log = logging.getLogger(__name__)

Inputs = ParamSpec("Inputs")
Result = TypeVar("Result")

LEAST_ROWS = 2  # the fewest rows that a graph computes: a single row would need a graph of its own
STRICT = False  # True in tests: a shape that needs another graph is an error


def graphs_of(
    run: schema.Run, processes: Processes, compiles: bool, threads: int, cache: Path | None
) -> "Graphs | None":
    """Return what compiles functions, and prepare for it. All processes call this together.

    Args:
        run: `run.compile`: "auto" compiles for GPUs where that is possible, "always" on a CPU, too.
        processes: this process among the others.
        compiles: whether the architecture can be compiled.
        threads: number of threads of all processes on this machine together.
        cache: see `compiling.prepare`.

    Returns:
        None if nothing is to be compiled.

    Raises:
        UserError: `run.compile` is "always", but compiling is not possible.
    """
    if run.compile == "never" or (run.compile == "auto" and (not compiles or processes.device.type == "cpu")):
        return None
    required, problem = run.compile == "always", "transformers models and label models are not compiled"
    if compiles:
        lacks = compiling.lacking(processes.device)
        problem = lacks and f"this machine lacks {lacks}"
    if not possible(required, processes, problem):
        return None
    compiling.prepare(threads // processes.local_size, cache)
    from torch._inductor import config  # after `prepare`, since it chooses its folder when it is imported

    if hasattr(config.triton, "mix_order_reduction"):  # its sums depend on the number of rows, graphs must not
        config.triton.mix_order_reduction = False
    return Graphs(required=required)


def possible(required: bool, processes: Processes, problem: str | None) -> bool:
    """Return whether all processes can compile. A process with a problem logs it.

    Raises:
        UserError: a process has a problem, and compiling is `required`.
    """
    if not processes.any(problem is not None):
        return True
    message = problem or "another process cannot compile, see its message"
    if required:
        raise UserError(f"run.compile = always: {message}")
    if problem or processes.main:
        log.warning("training without compiled kernels, which is slower: %s", message)
    return False


def _first_problem(
    make: Callable[[int, bool], None], shapes: Sequence[tuple[int, bool]], leave: Callable[[], bool]
) -> str | None:
    for length, training in shapes:
        if leave():
            break
        try:
            make(length, training)
        except (UserError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # from Dynamo, Inductor, Triton, a compiler or a driver
            if leave():  # the signal may have ended the compiler
                break
            cause = getattr(error, "inner_exception", error)
            return f"rows of {length} tokens: {type(cause).__name__}: {first_line(cause)}"
    return None


class Graphs:
    """Compiles functions whose tensors have any number of rows, such as the blocks of a model, one by one.

    Functions with the same code share their graphs. So compiling a model's blocks, which are alike, takes the time of
    one block per length.

    Args:
        backend: the backend of `torch.compile`.
        required: whether the run fails if compiling fails.
    """

    def __init__(self, backend: str | Callable[..., Any] = "inductor", required: bool = True):
        self._backend, self._required, self.ready = backend, required, False
        torch._dynamo.config.recompile_limit = 64
        torch.compiler.set_stance("default")

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
            for tensor in batched(*args, **kwargs):
                if len(tensor) < LEAST_ROWS:
                    return plain(*args, **kwargs)
                torch._dynamo.mark_dynamic(tensor, 0)
            try:
                return compiled(*args, **kwargs)
            except RuntimeError as error:
                if STRICT or not self.ready or "fail_on_recompile" not in str(error):
                    raise
                self._warn(str(error))
            return plain(*args, **kwargs)

        return function

    def warm_up(
        self,
        make: Callable[[int, bool], None],
        shapes: Sequence[tuple[int, bool]],
        processes: Processes,
        leave: Callable[[], bool],
    ) -> None:
        """Make all graphs. All processes call this together.

        The main process compiles first; the others find its kernels in the cache.

        Args:
            make: makes a pass with rows of a given length, in training or not.
            shapes: for each graph, the length of its rows, and whether it is for training.
            processes: this process among the others.
            leave: returns whether there is a reason to leave; then nothing more is compiled.

        Raises:
            UserError: a compilation failed, and compiling is required.
        """
        began = time.monotonic()
        log.info("compiling kernels for %d shapes", len(shapes))
        problem = _first_problem(make, shapes, leave) if processes.main else None
        if not processes.any(problem is not None) and not processes.main:
            problem = _first_problem(make, shapes, leave)
        works = possible(self._required, processes, problem)
        self.ready = works and not leave()
        torch.compiler.set_stance("fail_on_recompile" if self.ready else "force_eager")
        if self.ready:
            log.info("kernels for %d shapes are compiled, in %.0f s", len(shapes), time.monotonic() - began)

    def _warn(self, refused: str) -> None:
        """Warn once of a shape that has no graph. From now on, every such shape is computed without one."""
        torch.compiler.set_stance("eager_on_recompile")
        reasons = [line.strip(" -") for line in refused.splitlines() if line.strip().startswith("- ")]
        log.warning(
            "a forward pass has no compiled kernels, so it is slower: %s; please report this with your configuration",
            "; ".join(reasons) or refused,
        )
