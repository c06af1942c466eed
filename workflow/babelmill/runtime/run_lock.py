"""Allow only one writer per folder: a file that the writer keeps locked, and that says which process it is.

The kernel frees the lock when its process dies, and keeps it while the process is suspended. NFS passes it on to other
machines. On a file system without locks, nothing keeps a second process away.
"""

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from babelmill.core.files import UserError, lock

# How long to wait for a lock. In a SLURM job that was started again, its earlier processes may still be saving, or NFS
# may not know yet that they died.
SECONDS, SECONDS_IN_SLURM = 1.0, 120.0


class Lock:
    """Locks a folder; a context manager. If another process holds the folder, a UserError names it.

    `what`: the kind of process that writes there, for this error.
    """

    def __init__(self, folder: Path, what: str = "another training run"):
        self._path, self._what = folder / "lock.json", what

    def __enter__(self) -> "Lock":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        job = os.environ.get("SLURM_JOB_ID")
        self._file = open(self._path, "a", encoding="utf-8")  # it stays open to hold the lock
        end = time.monotonic() + (SECONDS_IN_SLURM if job else SECONDS)
        while not lock(self._file, wait=False):
            if time.monotonic() > end:
                self._file.close()
                raise UserError(
                    f"{self._path.parent}: {self._what} is writing here: {self._describe()}; wait for it, or end it"
                )
            time.sleep(0.1)
        self._write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "job": job}))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._write("")
        self._file.close()

    def _write(self, text: str) -> None:
        """Replace the content of the file. It must stay the same file, since another one would not be locked."""
        self._file.truncate(0)
        self._file.write(text)
        self._file.flush()

    def holder(self) -> dict[str, Any] | None:
        """Return the host, the process and the SLURM job that hold the folder; None if it is free.

        They are None each if the file is damaged.
        """
        with contextlib.suppress(OSError), open(self._path, "r+", encoding="utf-8") as file:
            if not lock(file, wait=False):
                owner: dict[str, Any] = dict.fromkeys(("host", "pid", "job"))
                with contextlib.suppress(ValueError, TypeError):
                    owner |= json.load(file)
                return owner
        return None

    def _describe(self) -> str:
        """Return who holds the folder, for messages."""
        owner = self.holder()
        if owner is None or owner["pid"] is None:
            return f"a process that {self._path} does not name"
        return f"process {owner['pid']} on {owner['host']}" + (f", job {owner['job']}" if owner["job"] else "")
