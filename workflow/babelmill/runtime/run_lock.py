"""One writer per checkpoint folder: a lock file with host, process, job and a heartbeat.

On one machine an owner is dead when its process is; elsewhere, when SLURM says that its job is, or else when its
heartbeat (the file's modification time, by the file system's own clock) has stopped. A second one that finds a
live owner ends with a line that names it.
"""

import contextlib
import fcntl
import json
import os
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from babelmill.core.files import UserError, write_json
from babelmill.runtime import slurm

BEAT = 10.0  # seconds between heartbeats
DEAD_AFTER = 60.0  # seconds without one, for an owner on another machine


def _machine() -> str:
    """Name where process numbers mean something: the host and, in a container, its process namespace."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def _started(pid: int) -> str | None:
    """Return when a process of this machine was started (a number may be used again); None if it is not there.

    The unit is 1/100 s since the machine's start, which setting its clock does not change.
    """
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return str(round(100 * (process.create_time() - psutil.boot_time())))
    return None


def died_here(owner: dict[str, Any]) -> bool:
    """Return whether the owner of a lock was a process of this machine that is no more."""
    return owner.get("machine") == _machine() and _started(owner["pid"]) != owner["started"]


class Lock:
    """Holds a folder; a context manager. A UserError says who holds it already.

    `what`: others that write there, in words.
    """

    def __init__(self, folder: Path, what: str = "another training run"):
        self._path, self._what = folder / "lock.json", what
        self._guard = folder / "lock.guard"
        self._owner = {
            "host": socket.gethostname(),
            "machine": _machine(),
            "pid": os.getpid(),
            "started": _started(os.getpid()),
            "job": slurm.job_id(),
            "cluster": os.environ.get("SLURM_CLUSTER_NAME"),
        }
        self._end = threading.Event()

    def __enter__(self) -> "Lock":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._guard, "w") as guard:  # two that come at once do not both take over
            fcntl.flock(guard, fcntl.LOCK_EX)
            self._refuse_if_held()
            write_json(self._path, self._owner)
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._end.set()
        if self._read() == self._owner:
            self._path.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise a UserError if somebody took the folder over (this process was asleep); call it before writing."""
        owner = self._read()
        if owner != self._owner:
            raise UserError(f"{self._path}: taken over by {self._describe(owner)}; this process ends")

    def _read(self) -> dict[str, Any] | None:
        try:
            return json.loads(self._path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def _refuse_if_held(self) -> None:
        owner = self._read()
        if owner and self._same_cluster(owner) and owner["job"] != self._owner["job"]:
            slurm.wait_while_completing(owner["job"])
        if holder := self.holder():
            raise UserError(f"{self._path.parent}: {self._what} is writing here: {holder}; wait for it, or end it")

    def _same_cluster(self, owner: dict[str, Any]) -> bool:
        return bool(owner["job"] and self._owner["job"]) and owner.get("cluster") == self._owner["cluster"]

    def _alive(self, owner: dict[str, Any]) -> bool:
        if owner["machine"] == self._owner["machine"]:
            return not died_here(owner)
        if self._same_cluster(owner):
            if owner["job"] == self._owner["job"]:
                return False  # SLURM has put this job back into its queue, and killed what it had started
            state = slurm.ask(owner["job"], "%T")
            if state is not None:
                return state == "RUNNING"
        os.utime(self._guard)  # now, by the file system's clock
        return self._guard.stat().st_mtime - self._path.stat().st_mtime < DEAD_AFTER

    def holder(self) -> str | None:
        """Describe the live process that holds the folder; None if it is free."""
        owner = self._read()
        return self._describe(owner) if owner is not None and self._alive(owner) else None

    @staticmethod
    def _describe(owner: dict[str, Any] | None) -> str:
        if owner is None:
            return "nobody: the lock file is gone"
        job = f", job {owner['job']}" if owner["job"] else ""
        return f"process {owner['pid']} on {owner['host']}{job}"

    def _beat(self) -> None:
        while not self._end.wait(BEAT):
            with contextlib.suppress(OSError):
                if self._read() == self._owner:
                    os.utime(self._path)
