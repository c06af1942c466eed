"""Atomic files and folders, and the one error type that users see.

A reader never meets half a file: everything is written under a temporary name in the same folder, flushed to disk and
renamed. `safetensors` and `torch.save` do not promise all of this (mode 0600, or a partial file under the final name
on a full disk), so their bytes come through here too.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


class UserError(Exception):
    """An error that the user can fix. The message is one line: what, where (file, key, value), what to do."""


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


UMASK = _umask()  # read once: os.umask is process-wide, and changing it briefly would race with other threads


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def space_left(path: Path, written: Path) -> Iterator[None]:
    """Turn a full disk, or a full quota, into one line with the path and how many bytes were already written."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        files = [written] if written.is_file() else list(written.rglob("*"))
        size = sum(file.stat().st_size for file in files if file.is_file())
        what = "no space left on the device" if error.errno == errno.ENOSPC else "the disk quota is used up"
        raise UserError(f"{what} while writing {path} (after {size:,} bytes)") from error


@contextlib.contextmanager
def atomic_write(path: str | Path, mode: str = "wb", durable: bool = True) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; rename it to `path` when the block succeeds, remove it when it fails.

    A full disk ends in a UserError that names the path and how many bytes were already written. Not `durable` is much
    faster, and for files that are made again if the machine stops before they are on its disk.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with space_left(path, Path(name)):
            with open(descriptor, mode, encoding=None if "b" in mode else "utf-8") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~UMASK)
            os.replace(name, path)
            if durable:
                _fsync_folder(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Build a folder beside `path`; put it in the place of `path` when the block succeeds, remove it when it fails.

    The files inside have to be flushed to disk by who writes them: use `atomic_write`, `write_json` and `copy_file`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        with space_left(path, folder):
            yield folder
            os.chmod(folder, 0o777 & ~UMASK)
            _fsync_folder(folder)
            if path.exists():
                shutil.rmtree(path)
            os.rename(folder, path)
            _fsync_folder(path.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copy a file's content, atomically."""
    with open(source, "rb") as read, atomic_write(target) as write:
        shutil.copyfileobj(read, write, 1 << 20)


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys, so that equal values are equal texts."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write_json(path: str | Path, value: object) -> None:
    """Write canonical JSON: equal values are equal files."""
    with atomic_write(path, "w") as file:
        file.write(canonical_json(value))


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a missing or damaged one is a UserError that names it."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path}: not valid JSON ({error}); if the workflow made it, delete it and run again") from None


def sha256(path: str | Path) -> str:
    """Hex digest of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
