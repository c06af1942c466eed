"""Start the processes that train together, and join them."""

import contextlib
import ctypes
import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from babelmill.core.files import UserError
from babelmill.runtime import slurm
from babelmill.runtime.stopping import EXIT_CODE

SHUTDOWN_SECONDS = 900  # for a step and a checkpoint, before torchrun kills what it has asked to end
PR_SET_PDEATHSIG = 1  # linux/prctl.h
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h of glibc
EXIT_CODE_FILE = "BABELMILL_EXIT_CODE_FILE"
LAUNCHER = "BABELMILL_LAUNCHER"  # its process id
TIMEOUT = timedelta(minutes=30)  # the main process may be writing a checkpoint to a slow disk


@dataclass(frozen=True)
class Processes:
    """This process among those that train together."""

    rank: int
    size: int
    local_size: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this is the one process that writes files."""
        return self.rank == 0

    @classmethod
    def start(cls, threads: int) -> "Processes":
        """Join the processes that torchrun started, or be alone; `threads` are for all on this machine together.

        The number of threads is set, since it decides how sums on the CPU are cut and so their last bits.
        """
        rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        local_rank, local_size = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        torch.set_num_threads(max(1, threads // local_size))
        if "RANK" in os.environ:
            end_with_launcher()
        keep_freed_memory()
        device = torch.device("cpu")
        if torch.cuda.is_available():
            if torch.cuda.device_count() <= local_rank:
                raise UserError(
                    f"{local_size} processes but {torch.cuda.device_count()} GPUs on this machine; start one a GPU"
                )
            device = torch.device("cuda", local_rank)
            torch.cuda.set_device(device)
        if size > 1:
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=TIMEOUT)
        return cls(rank, size, local_size, device)

    def stop(self) -> None:
        """Leave the group, all processes together."""
        if self.size > 1:
            dist.barrier()
            dist.destroy_process_group()

    def on_main(self, function: Callable):
        """Run `function` on the main process and give its result to all. Its UserError ends all processes."""
        result, error = None, None
        if self.main:
            try:
                result = function()
            except UserError as raised:
                error = raised
        if self.size > 1:
            message = [(result, error is not None)]
            with lost_process():
                dist.broadcast_object_list(message, device=torch.device("cpu"))
            result, failed = message[0]
            if failed and not self.main:
                raise SystemExit(1)  # the main process says why
        if error is not None:
            raise error
        return result

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            with lost_process():
                dist.all_reduce(tensor)
        return tensor


LOST_PROCESS = (
    "lost contact with another process of this run, see its own message; run the workflow again, it goes on from the"
    " last checkpoint"
)


@contextlib.contextmanager
def lost_process():
    """Around what the processes do together: when one of them is gone, the others end with a line that says so."""
    try:
        yield
    except RuntimeError as error:
        first = (str(error).splitlines() or [""])[0]
        raise UserError(f"{LOST_PROCESS} ({first})") from error


def keep_freed_memory() -> None:
    """Let glibc keep what is freed: otherwise each large tensor of each step is new memory, cleared page by page."""
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, -1)


def end_with_launcher() -> None:
    """Let the system kill this process when its launcher dies: an orphan would go on training and hold the run's lock.

    On Linux; elsewhere orphans notice when a process of theirs is gone. The launcher may have died while this process
    started: torchrun forgets its processes if a signal comes while it starts them.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.environ.get(LAUNCHER, str(os.getppid())) != str(os.getppid()):
        raise SystemExit(EXIT_CODE)


def launch(processes: int, nodes: int, threads: int, arguments: list[str]) -> int:
    """Run `python -m babelmill.train ARGUMENTS` as torchrun would; the exit code of this machine's first process.

    torchrun hands signals on to its workers and waits for them, but ends with 1 whatever their exit code was, so the
    first of them leaves its exit code in a file (see `report_exit_code`). And its own command line would take our
    `--run` and `--log` for abbreviations of its options.

    Args:
        processes: on this machine.
        nodes: machines; above 1 they are those of a SLURM job, and `launch` is called on each.
        threads: on this machine.
        arguments: of the command.

    Raises:
        UserError: the machines did not meet.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, threads // processes)))
    os.environ[LAUNCHER] = str(os.getpid())
    logging.getLogger("torch.distributed.elastic").setLevel(logging.ERROR)
    meeting = slurm.rendezvous() if nodes > 1 else {"run_id": str(uuid.uuid4()), "rdzv_endpoint": "localhost:0"}
    with tempfile.TemporaryDirectory(prefix="babelmill-") as folder:
        outcome = os.environ[EXIT_CODE_FILE] = os.path.join(folder, "exit_code")
        configuration = LaunchConfig(
            min_nodes=nodes,
            max_nodes=nodes,
            nproc_per_node=processes,
            rdzv_backend="c10d",
            max_restarts=0,
            monitor_interval=0.1,
            shutdown_timeout=SHUTDOWN_SECONDS,
            logs_specs=DefaultLogsSpecs(log_dir=os.path.join(folder, "logs")),
            **meeting,
        )
        unheard = 1  # the exit code if the first process ended before it could leave one
        with contextlib.suppress(ChildFailedError):  # the workers have said what happened
            try:
                elastic_launch(configuration, sys.executable)("-u", "-m", "babelmill.train", *arguments)
            except SignalException:
                unheard = EXIT_CODE  # asked to leave while they were starting
            except RendezvousError as error:
                raise UserError(
                    f"the {nodes} nodes did not meet at {meeting['rdzv_endpoint']} ({error.__cause__ or error}); a"
                    " new job tries another port; if it goes on, see NCCL in profiles/README.md"
                ) from error
        try:
            with open(outcome, encoding="utf-8") as file:
                return int(file.read())
        except FileNotFoundError:
            return unheard


def report_exit_code(code: int) -> None:
    """On a machine's first process, before it ends: tell `launch` how."""
    path = os.environ.get(EXIT_CODE_FILE)
    if path is not None and os.environ["LOCAL_RANK"] == "0":
        with open(path, "w", encoding="utf-8") as file:
            file.write(str(code))
