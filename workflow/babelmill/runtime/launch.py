"""Start one training process per GPU of this machine, watch the processes, and return how they ended.

This is a small `torchrun`. It starts its processes with the same environment variables, so that starting them by hand
with `torchrun -m babelmill.train` works, too. It exists for two reasons. First, torchrun always ends with exit code 1
if a process fails. But a run that left early and can continue (exit code 75) has not failed. Second, torchrun sends
signals to whole process groups, which ends the workers that compile kernels for `torch.compile`, and the training would
wait for them forever. Here, signals go only to the training processes, and the launcher learns only their exit codes.
"""

import ctypes
import functools
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from types import FrameType

from torch.distributed import DistError, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from babelmill.core.files import UserError
from babelmill.core.words import first_line
from babelmill.runtime import slurm
from babelmill.runtime.processes import LAUNCHED
from babelmill.runtime.slurm import EXIT_CODE, signals

MEETING_SECONDS = 600  # time in which the launchers of all machines must start
SHUTDOWN_SECONDS = 900  # time for a last step and a checkpoint, before a process that was asked to end is killed
POLL_SECONDS = 0.05
PR_SET_PDEATHSIG = 1  # linux/prctl.h


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
    node = slurm.node_number() if nodes > 1 else 0
    store = meet(nodes, node)
    shared = {
        LAUNCHED: "1",
        "MASTER_ADDR": store.host,
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(nodes * processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the launcher has opened the store, so process 0 must not open another
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, threads // processes))),
    }
    children = Children()
    for local_rank in range(processes):
        children.start(command, shared | {"RANK": str(node * processes + local_rank), "LOCAL_RANK": str(local_rank)})
    return children.wait()


def meet(nodes: int, node: int) -> TCPStore:
    """Open the key-value store with which the processes find each other, and wait until all launchers have joined it.

    The store is on the first machine. With several machines, its port follows from the SLURM job; on a single machine,
    the system chooses a free port.
    """
    host, port = slurm.meeting_point() if nodes > 1 else ("localhost", 0)
    timeout = timedelta(seconds=MEETING_SECONDS)
    try:
        return TCPStore(host, port, world_size=nodes, is_master=node == 0, timeout=timeout)
    except DistError as error:
        raise UserError(
            f"the {nodes} nodes did not meet at {host}:{port} ({first_line(error)}); a new job tries another port; if"
            " this happens again, see NCCL in profiles/README.md"
        ) from error


class Children:
    """The training processes of this machine.

    After its creation, SIGTERM, SIGINT and SIGHUP do not end the launcher. Instead, it asks the processes to leave. It
    always sends SIGTERM, since a Python process that is still starting answers SIGINT with a traceback.
    """

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._signalled = False  # whether the launcher received a signal
        self._deadline = math.inf  # when the processes that still run are killed (time.monotonic)
        for number in signals():
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._signalled = True

    def start(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Start a process with this process's environment and `environment`.

        It has its own session, so that Ctrl-C in a terminal reaches only the launcher.
        """
        child = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            start_new_session=True,
            preexec_fn=functools.partial(end_with_launcher, os.getpid()),
        )
        self._running.append(child)

    def wait(self) -> int:
        """Wait until all processes have ended, and return the exit code for all of them (see `launch`)."""
        result = 0
        while self._running:
            if self._signalled:
                self._ask_to_end()
            ended = [child for child in self._running if child.poll() is not None]
            self._running = [child for child in self._running if child not in ended]
            for child in ended:
                if child.returncode != 0:
                    # If our signal ended a process before it could handle it, the others only lost contact to it.
                    left = self._signalled and child.returncode == -signal.SIGTERM
                    result = EXIT_CODE if left else result or max(1, child.returncode)  # less than 0: the signal
                    self._ask_to_end()
            if time.monotonic() > self._deadline:
                for child in self._running:
                    child.kill()
            time.sleep(POLL_SECONDS)
        return result

    def _ask_to_end(self) -> None:
        """Send SIGTERM to the processes that still run, once."""
        if self._deadline == math.inf:
            self._deadline = time.monotonic() + SHUTDOWN_SECONDS
            for child in self._running:
                child.terminate()


def end_with_launcher(launcher: int) -> None:
    """Make the system kill this new process when its launcher dies; `launcher`: the launcher's process id.

    Otherwise an orphan would continue training and hold the run's lock. This works only on Linux. On other systems,
    orphans end when they lose contact with another process of the run. If the launcher has died already, end at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:
            os._exit(1)
