"""Allow only one writer per folder: a file that the writer keeps locked, and that says which process it is.

The kernel frees the lock when its process dies, and keeps it while the process is suspended. NFS passes it on to other
machines. On a file system without locks, nothing keeps a second process away.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from babelmill.core.files import UserError, is_locked, lock

# How long to wait for a lock. In a SLURM job that was started again, its earlier processes may still be saving, or NFS
# may not know yet that they died.
SECONDS, SECONDS_IN_SLURM = 1.0, 120.0
NOBODY: dict[str, Any] = {"host": None, "pid": None, "job": None}


@contextlib.contextmanager
def locked(folder: Path, what: str = "another training run") -> Iterator[None]:
    """Lock a folder. If another process holds it, a UserError names it; `what`: the kind of process that does that."""
    path, job = folder / "lock.json", os.environ.get("SLURM_JOB_ID")
    folder.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        end = time.monotonic() + (SECONDS_IN_SLURM if job else SECONDS)
        while not lock(file, wait=False):
            if time.monotonic() > end:
                owner = holder(folder) or NOBODY
                who = f"process {owner['pid']} on {owner['host']}" + (f", job {owner['job']}" if owner["job"] else "")
                who = f"a process that {path} does not name" if owner["pid"] is None else who
                raise UserError(f"{folder}: {what} is writing here: {who}; wait for it, or end it")
            time.sleep(0.1)
        try:
            file.truncate(0)  # it must stay the same file, since another one would not be locked
            file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "job": job}))
            file.flush()
            yield
        finally:
            with contextlib.suppress(OSError):
                file.truncate(0)


def holder(folder: Path) -> dict[str, Any] | None:
    """Return the host, the process and the SLURM job that hold a folder; None if it is free.

    They are None each if the file is damaged.
    """
    if not is_locked(path := folder / "lock.json"):
        return None
    try:
        return NOBODY | json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return NOBODY
