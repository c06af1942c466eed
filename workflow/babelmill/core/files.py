"""Write files and folders atomically, and define the one error type that users see.

A reader never sees a partial file: everything is written under a temporary name in the same folder, flushed to disk and
renamed. `safetensors` and `torch.save` do not guarantee all of this (they leave mode 0600, or a partial file under the
final name on a full disk), so their bytes are written with these functions, too.
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

from babelmill.core import escape, writers
from babelmill.core.trouble import FULL, REFUSALS, located, number_of


class UserError(Exception):
    """An error that the user can fix. The message is one line: what, where (file, key, value), what to do."""


UNREADABLE = (UserError, OSError, LookupError, TypeError, ValueError)  # from damaged or old results


def not_found(path: str | Path, what: str = "file") -> str:
    """Return `no such file` (or `folder`), with the folder in which a relative path begins."""
    where = "" if os.path.isabs(path) else f" (relative to {escape.line(os.getcwd())})"
    return f"no such {what}{where}"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


SMALL = 1 << 14  # bytes
UMASK = _umask()  # read once: os.umask is process-wide, and changing it briefly would race with other threads


def flush(descriptor: int) -> None:
    """Write a file or folder to the disk, if its file system can do that: some cannot, for folders."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(path: Path, written: Path | None = None) -> Iterator[None]:
    """Turn an error of the file system into a UserError with the path; on a full disk also with the bytes written."""
    try:
        yield
    except Exception as error:
        number = number_of(error)
        name = error.filename if isinstance(error, OSError) else None
        elsewhere = written is not None and not os.path.abspath(name or path).startswith(os.path.abspath(path.parent))
        if number not in REFUSALS or number in (errno.ENOENT, errno.ENOMEM, errno.EAGAIN) or elsewhere:
            raise
        size = ""
        if number in FULL and written is not None:
            files = [written] if written.is_file() else list(written.rglob("*"))
            size = f" (after {sum(file.stat().st_size for file in files if file.is_file()):,} bytes)"
        raise UserError(located(REFUSALS[number], f" while writing {path}{size}")) from error


@contextlib.contextmanager
def atomic_write(path: str | Path, mode: str = "wb", durable: bool = True) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; rename it to `path` when the block succeeds, remove it when it fails.

    An error of the file system that the user can fix becomes a UserError that names the path. With `durable=False`
    nothing is flushed to disk. This is much faster, and right for files that are made again after a crash.
    """
    path = Path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=writers.prefix(path), dir=path.parent)
    try:
        with writing(path, Path(name)):
            with open(descriptor, mode, encoding=None if "b" in mode else "utf-8") as file:
                yield file
                file.flush()
                if durable:
                    flush(file.fileno())
            os.chmod(name, 0o666 & ~UMASK)
            os.replace(name, path)
            if durable:
                _flush_folder(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Build a folder beside `path`; put it in the place of `path` when the block succeeds, remove it when it fails.

    The caller must flush the files inside to disk: use `atomic_write`, `write_json` and `copy_file`.
    """
    path = Path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=writers.prefix(path), dir=path.parent))
    try:
        with writing(path, folder):
            yield folder
            os.chmod(folder, 0o777 & ~UMASK)
            _flush_folder(folder)
            if path.exists():
                shutil.rmtree(path)
            os.rename(folder, path)
            _flush_folder(path.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


def read_json(path: str | Path, where: object = None) -> Any:
    """Read a JSON file; raise a UserError, which begins with `where` or the path, if it is missing or damaged."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # also an integer of thousands of digits, and thousands of brackets
        raise UserError(
            f"{where or path}: not valid JSON ({error}); if the workflow made it, delete it and run again"
        ) from None


def read_object(path: str | Path, where: object = None) -> dict[str, Any]:
    """Read a JSON file that must hold keys and values; see `read_json`."""
    found = read_json(path, where)
    if not isinstance(found, dict):
        raise UserError(f"{where or path}: keys and values are expected, {{...}}")
    return found


def sha256(path: str | Path) -> str:
    """Return the sha256 of a file's content, in hexadecimal."""
    with open(path, "rb") as file:
        start = file.read(SMALL)  # `file_digest` first clears a buffer of 256 KB, even for a small file
        if len(start) < SMALL:
            return hashlib.sha256(start).hexdigest()
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()
