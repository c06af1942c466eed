"""Write files and folders atomically, and define the one error type that users see.

A reader never sees a partial file: everything is written under a temporary name in the same folder, flushed to disk and
renamed. `safetensors` and `torch.save` do not guarantee all of this (they leave mode 0600, or a partial file under the
final name on a full disk), so their bytes are written with these functions, too.

A process holds a lock on what it writes. So a temporary file or folder without a lock was left by a killed one.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from babelmill.core import escape
from babelmill.core.words import first_line

log = logging.getLogger("babelmill")

TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp")
LONGEST = 40  # characters of a file's name in that of its temporary file
LOCK = ".lock"  # in a temporary folder

UMASK = os.umask(0)  # read once: os.umask is process-wide, and changing it briefly would race with other threads
os.umask(UMASK)


class UserError(Exception):
    """An error that the user can fix. The message is one line: what, where (file, key, value), what to do."""


UNREADABLE = (UserError, OSError, LookupError, TypeError, ValueError)  # from damaged or old results


def trouble(error: BaseException) -> str | None:
    """Return one line for an error of the user or the machine (files, memory, GPU); None for one that is our bug."""
    if isinstance(error, UserError):
        return str(error)
    if type(error).__name__ == "OutOfMemoryError":  # PyTorch's, of a GPU
        return "the GPU has not enough memory; see docs/troubleshooting.md"
    if isinstance(error, MemoryError):
        return "not enough memory; free some, or give the job more (on SLURM: mem_mb in the profile)"
    if isinstance(error, OSError) and error.strerror:
        path = error.filename2 or error.filename  # of a copy, the first is the source
        return error.strerror if path is None else f"{path}: {error.strerror}"
    return first_line(error) if "(os error " in str(error) else None  # of a library in Rust


def not_found(path: str | Path, what: str = "file") -> str:
    """Return `no such file` (or `folder`), with the folder in which a relative path begins."""
    where = "" if os.path.isabs(path) else f" (relative to {escape.line(os.getcwd())})"
    return f"no such {what}{where}"


def lock(file: IO[Any], wait: bool = True, shared: bool = False) -> bool:
    """Lock an open file until it is closed. Return whether it is locked; False if another process has locked it.

    `shared`: several processes may hold such a lock at once, but none beside another lock. On a file system without
    locks, nobody can have locked it, and this returns True.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def is_locked(path: Path) -> bool:
    """Return whether another process has locked a file, as far as this machine sees locks."""
    mode = "r+b" if os.access(path, os.W_OK) else "rb"  # NFS locks no file that may not be written
    with contextlib.suppress(OSError), open(path, mode) as file:
        for _ in range(3):  # another process may be looking, too
            if lock(file, wait=False):
                return False
            time.sleep(0.01)
        return True
    return False


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name what is written in an error that names only its temporary file, or nothing, as that of a full disk."""
    try:
        yield
    except OSError as error:
        if type(error) is OSError and error.filename is None:  # others are of a network
            raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
        if TEMPORARY.fullmatch(os.path.basename(str(error.filename))):
            error.filename = str(path)
        raise


@contextlib.contextmanager
def atomic_write(path: str | Path, mode: str = "wb", durable: bool = True) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; rename it to `path` when the block succeeds, remove it when it fails.

    With `durable=False` nothing is flushed to disk. This is much faster, and right for files that are made again after
    a crash.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:LONGEST]}.", suffix=".tmp", dir=path.parent)
    try:
        with writing(path), open(descriptor, mode, encoding=None if "b" in mode else "utf-8") as file:
            lock(file, wait=False)
            yield file
            file.flush()
            if durable:
                os.fsync(descriptor)
            os.chmod(name, 0o666 & ~UMASK)
            os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


@contextlib.contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside `path`, and remove it at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name[:LONGEST]}.", suffix=".tmp", dir=path.parent))
    try:
        with open(folder / LOCK, "w") as file:
            lock(file, wait=False)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Build a folder beside `path`; put it in the place of `path` when the block succeeds, remove it when it fails.

    The caller must flush the files inside to disk: use `atomic_write`, `write_json` and `copy_file`.
    """
    path = Path(path)
    with temporary_folder(path) as around:
        folder = around / path.name
        folder.mkdir()
        yield folder
        if path.exists():
            shutil.rmtree(path)
        os.rename(folder, path)


def remove_leftovers(folders: Iterable[Path], deep: bool = False) -> None:
    """Delete what killed processes left directly in the folders; with `deep`, also in those inside."""
    for path in sorted(path for folder in folders for path in folder.glob("**/.*.tmp" if deep else ".*.tmp")):
        if TEMPORARY.fullmatch(path.name):
            with contextlib.suppress(OSError), open(path / LOCK if path.is_dir() else path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # an OSError: another process writes it
                log.info("deleting %s, which a process that was killed left", path)
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copy a file's content, atomically."""
    with open(source, "rb") as read, atomic_write(target) as write:
        shutil.copyfileobj(read, write, 1 << 20)


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` a hard link to `source`, or a copy if the file system has no hard links."""
    target.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), target)  # not to a symbolic link
    except OSError:
        copy_file(source, target)


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys, so that equal values give equal texts."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, atomically."""
    with atomic_write(path, "w") as file:
        file.write(text)


def write_json(path: str | Path, value: object) -> None:
    """Write canonical JSON: equal values give equal files."""
    write_text(path, canonical_json(value))


def read_text(path: str | Path) -> str:
    """Read a text file; raise a UserError that names it if it is missing, not readable or not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: {not_found(path)}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}: line {line} is not UTF-8 (byte 0x{error.object[error.start]:02x}); save the file as UTF-8"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


MAKE_AGAIN = "if the workflow made it, delete it and run again"


def read_json(path: str | Path, where: object = None, remedy: str = MAKE_AGAIN) -> Any:
    """Read a JSON file; raise a UserError, which begins with `where` or the path, if it is missing or damaged.

    `remedy`: what the user should do about a damaged one.
    """
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # also an integer of thousands of digits, and thousands of brackets
        raise UserError(f"{where or path}: not valid JSON ({error}); {remedy}") from None


def read_object(path: str | Path, where: object = None) -> dict[str, Any]:
    """Read a JSON file that must hold keys and values; see `read_json`."""
    found = read_json(path, where)
    if not isinstance(found, dict):
        raise UserError(f"{where or path}: keys and values are expected, {{...}}")
    return found


def sha256(path: str | Path) -> str:
    """Return the sha256 of a file's content, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
