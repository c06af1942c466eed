"""Know which process writes a temporary file, so that what a killed one left can be deleted, and nothing else.

The name of a temporary file or folder has the machine, the process and the time of its start:
`.train.safetensors.4f1c-1234-567890.k2x9_a0b`. The writer is dead if this process has ended. On another machine this
cannot be known. There, what has not changed for a day is taken for dead.
"""

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

FORM = re.compile(r"\..+\.([0-9a-f]{4})-(\d+)-(\w+)\.[a-z0-9_]{8}")
DEAD_AFTER = 86400  # seconds without a change after which a writer on another machine is dead
LONGEST = 40  # characters of a file's name in that of its temporary file
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)  # Lustre and FUSE, as they are often mounted


def machine() -> str:
    """Return a name for the place where a process number is unique: the host and its process namespace (container)."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def started(pid: int) -> str | None:
    """Return when a process of this machine was started, since a process number may be used again; None if it ended.

    The unit is 1/100 s since the machine's start, so setting the machine's clock does not change it.
    """
    import psutil  # only here: the Snakefile needs no more than the names above

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return str(round(100 * (process.create_time() - psutil.boot_time())))
    return None


@functools.cache
def _writer(pid: int) -> str:
    return f"{_here()}-{pid}-{started(pid)}"


@functools.cache
def _here() -> str:
    return hashlib.sha256(machine().encode()).hexdigest()[:4]


def prefix(path: Path) -> str:
    """Return how the name of a temporary file or folder for `path` begins. Add a dot and eight random characters."""
    return f".{path.name[:LONGEST]}.{_writer(os.getpid())}."


def left_behind(path: Path) -> bool:
    """Return whether a path is a temporary file or folder whose writer is dead."""
    found = FORM.fullmatch(path.name)
    if found and found[1] == _here():
        return started(int(found[2])) != found[3]
    with contextlib.suppress(FileNotFoundError):
        if not found:
            return False
        newest = max(each.stat().st_mtime for each in [path, *path.rglob("*")])
        return time.time() - newest > DEAD_AFTER
    return False


def leftovers(folders: Iterable[Path], deep: bool = False) -> Iterator[Path]:
    """Yield what dead writers left directly in the folders; with `deep`, also in those inside."""
    for folder in folders:
        with contextlib.suppress(OSError):
            found = sorted(filter(left_behind, folder.glob("**/.*" if deep else ".*")))
            yield from (path for path in found if not any(map(FORM.fullmatch, path.parent.parts)))


def remove(path: Path) -> None:
    """Delete a temporary file or folder; it is no error if it cannot be deleted."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def lock(file: IO[Any], wait: bool = True) -> bool:
    """Lock an open file until it is closed. Return whether it is locked; False if another process has locked it.

    On a file system without locks, nobody can have locked it, and this returns True.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True
