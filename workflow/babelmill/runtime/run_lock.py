"""Allow only one writer per checkpoint folder, with a lock file that has host, process, job and a heartbeat.

A lock whose owner is dead is taken over. On the same machine, the owner is dead if its process has ended. On another
machine, it is dead if SLURM says that its job has ended or waits in the queue; a suspended job is alive. If SLURM does
not answer, it is dead if its heartbeat (the file's modification time, on the file system's clock) has stopped. If the
owner is alive, a second process ends with a line that names the owner.
"""

import contextlib
import json
import os
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from babelmill.core.files import UserError, lock, write_json
from babelmill.runtime import slurm

BEAT = 10.0  # seconds between heartbeats
DEAD_AFTER = 60.0  # seconds without a heartbeat after which an owner on another machine is dead


def machine() -> str:
    """Return a name for the place where a process number is unique: the host and its process namespace (container)."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def started(pid: int) -> str | None:
    """Return when a process of this machine was started, since a process number may be used again; None if it ended.

    The unit is 1/100 s since the machine's start, so setting the machine's clock does not change it.
    """
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return str(round(100 * (process.create_time() - psutil.boot_time())))
    return None


def died_here(owner: dict[str, Any]) -> bool:
    """Return whether the owner of a lock was a process of this machine that has ended."""
    return owner.get("machine") == machine() and started(owner["pid"]) != owner["started"]


def this_process() -> dict[str, Any]:
    """Describe this process as the owner of a lock."""
    return {
        "host": socket.gethostname(),
        "machine": machine(),
        "pid": os.getpid(),
        "started": started(os.getpid()),
        "job": slurm.job_id(),
        "cluster": os.environ.get("SLURM_CLUSTER_NAME"),
    }


def same_cluster(owner: dict[str, Any], me: dict[str, Any]) -> bool:
    """Return whether two owners are jobs of one SLURM cluster."""
    return bool(owner["job"] and me["job"]) and owner.get("cluster") == me["cluster"]


def lives(owner: dict[str, Any], me: dict[str, Any]) -> bool | None:
    """Return whether an owner lives, as far as this machine or SLURM knows; None: only its heartbeat can tell."""
    if owner["machine"] == me["machine"]:
        return started(owner["pid"]) == owner["started"]
    if same_cluster(owner, me):
        if owner["job"] == me["job"]:
            return False  # SLURM has put this job back into its queue, and killed its processes
        state = slurm.ask(owner["job"], "%T")
        if state is not None:
            return slurm.may_have_processes(state)
    return None


def describe(owner: dict[str, Any] | None) -> str:
    """Return who an owner is, for messages."""
    if owner is None:
        return "an unknown process: the lock file is gone"
    job = f", job {owner['job']}" if owner["job"] else ""
    return f"process {owner['pid']} on {owner['host']}{job}"


class Lock:
    """Locks a folder; a context manager. If another process holds the folder, a UserError names it.

    `what`: the kind of process that writes there, for this error.
    """

    def __init__(self, folder: Path, what: str = "another training run"):
        self._path, self._what = folder / "lock.json", what
        self._guard = folder / "lock.guard"
        self._owner = this_process()
        self._end = threading.Event()

    def __enter__(self) -> "Lock":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._guard, "w") as guard:  # so that of two processes that start at once only one gets the lock
            lock(guard)
            owner = self._read()
            if owner and same_cluster(owner, self._owner) and owner["job"] != self._owner["job"]:
                slurm.wait_while_completing(owner["job"])
            if holder := self.holder():
                raise UserError(f"{self._path.parent}: {self._what} is writing here: {holder}; wait for it, or end it")
            write_json(self._path, self._owner)
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._end.set()
        if self._read() == self._owner:
            self._path.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise a UserError if another process has taken the folder over while this one slept; call before writing."""
        owner = self._read()
        if owner != self._owner:
            raise UserError(f"{self._path}: taken over by {describe(owner)}; this process ends")

    def _read(self) -> dict[str, Any] | None:
        try:
            return json.loads(self._path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def _alive(self, owner: dict[str, Any]) -> bool:
        if (known := lives(owner, self._owner)) is not None:
            return known
        os.utime(self._guard)  # sets the file's time to the present, on the file system's clock
        return self._guard.stat().st_mtime - self._path.stat().st_mtime < DEAD_AFTER

    def holder(self) -> str | None:
        """Describe the live process that holds the folder; None if it is free."""
        owner = self._read()
        return describe(owner) if owner is not None and self._alive(owner) else None

    def _beat(self) -> None:
        while not self._end.wait(BEAT):
            with contextlib.suppress(OSError):
                if self._read() == self._owner:
                    os.utime(self._path)
