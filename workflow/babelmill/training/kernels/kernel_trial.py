"""Try our own GPU kernels before the first step: a kernel that cannot run, or computes wrong numbers, is not used."""

import logging
from collections.abc import Callable

import torch

from babelmill.runtime.processes import Processes

log = logging.getLogger(__name__)

CLOSE = 0.03  # largest difference of a kernel from its formula, in bf16, relative to its norm


def passed(processes: Processes, trial: Callable[[], float], otherwise: str) -> bool:
    """Return whether all processes can use a kernel. A process that cannot logs a warning.

    Args:
        processes: this process among the others; all call this together.
        trial: runs the kernel, and returns its largest difference from the formula.
        otherwise: what happens without the kernel, for the warning.
    """
    problem = None
    try:
        found = trial()
        problem = None if found < CLOSE else f"it is off by {found:.1%} on this machine; please report it"
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # from Triton, a compiler or a driver
        while error.__cause__ is not None:  # Triton's own errors say only where the cause was met
            error = error.__cause__
        problem = f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"
    if problem:
        log.warning("%s: the kernel of Babelmill cannot be used: %s", otherwise, problem)
    return not processes.any(problem is not None)
