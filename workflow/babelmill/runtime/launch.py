"""Start one training process per GPU of this machine with the agent of torchrun, and return how the processes ended.

The agent itself handles no signal. It would no longer say how the processes ended, and a second signal would end it
while they still save a checkpoint.
"""

import contextlib
import logging
import os
import signal
from types import FrameType

import psutil
from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, PContext
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from babelmill.core.files import UserError
from babelmill.core.words import first_line
from babelmill.runtime import slurm
from babelmill.runtime.slurm import EXIT_CODE, signals

MEETING_SECONDS = 600  # time in which the launchers of all machines must start
# How long the others may take to end after one process has failed: the main process may be in the middle of a large
# checkpoint. A process that waits for the failed one on a GPU takes all of it.
SAVING_SECONDS = 300
NO_SIGNAL = "SIGQUIT"  # of those that a training handles


def launch(command: list[str], processes: int, nodes: int, threads: int) -> int:
    """Run `command` in several processes that train together, and wait for them.

    Args:
        command: a program and its arguments; in it, `Processes.start` finds out which process it is.
        processes: the number of processes to start on this machine.
        nodes: the number of machines; if above 1, they belong to a SLURM job, and `launch` is called on each machine.
        threads: the number of threads of all processes on this machine together.

    Returns:
        0 if all processes succeeded, else the exit code of the first process that failed: the others end because of it.
        A process that was killed by a signal counts as 1. But if a process was asked to leave before it could handle
        the signal, the result is 75, whatever the others say, which lose contact with it.

    Raises:
        UserError: the machines did not meet.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, threads // processes)))
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the processes say what is wrong
    where, backend, rendezvous = "localhost:0", "c10d", {}
    if nodes > 1:
        where, backend = slurm.meeting_point(), "static"
        rendezvous = {"rank": slurm.node_number(), "timeout": MEETING_SECONDS}
    config = LaunchConfig(nodes, nodes, processes, DefaultLogsSpecs(os.devnull), run_id="train", max_restarts=0)
    config.rdzv_endpoint, config.rdzv_backend, config.rdzv_configs = where, backend, rendezvous
    config.local_addr = "localhost" if nodes == 1 else None
    config.signals_to_handle = NO_SIGNAL
    PContext.close.__defaults__ = (None, SAVING_SECONDS)  # instead of 30; shutdown_timeout counts after signals alone
    asked = ask_children_to_leave()
    try:
        elastic_launch(config, command[0])(*command[1:])
    except ChildFailedError as error:
        codes = [failure.exitcode for failure in error.failures.values()]
        if asked and -signal.SIGTERM in codes:
            return EXIT_CODE
        return max(1, error.get_first_failure()[1].exitcode)  # less than 0: the signal
    except DistError as error:
        raise UserError(
            f"the {nodes} nodes did not meet at {where} ({first_line(error)}); a new job tries another port; if"
            " this happens again, see NCCL in profiles/README.md"
        ) from error
    return 0


def ask_children_to_leave() -> list[int]:
    """Hand on signals to the processes that this one starts, from now on. Return a list of those that will come.

    The processes always get SIGTERM, since a Python process that is still starting answers SIGINT with a traceback.
    """
    received: list[int] = []

    def hand_on(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if not (children := psutil.Process().children()):
            raise SystemExit(EXIT_CODE)
        for child in children:
            with contextlib.suppress(psutil.Error):  # it has just ended
                child.terminate()

    for number in signals():
        signal.signal(number, hand_on)
    return received
