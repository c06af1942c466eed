"""Open a file for reading its unpacked content, which must be what the name of the file says.

Arrow unpacks: it notices a .gz or .zst that ends early (the `zstandard` package returns a prefix without an error). But
a read that fails returns nothing, so the readable part of a damaged file is read again in small steps.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError, not_found
from babelmill.text_files import kinds
from babelmill.text_files.encodings import MARK

BLOCK = 1 << 20  # bytes
STEPS = (1 << 14, 1 << 7, 1)  # bytes per read of the readable part of a damaged file
# A file may unpack to so many bytes, or to so many times its size. (Text packs to a tenth, tables of text to less.)
UNPACKED, TIMES = 1 << 30, 200


class Unreadable(Exception):
    """A file, or the rest of it, cannot be read. The message says why and what to do, without the file's name."""

    def __init__(self, problem: str, whole: bool = False):
        super().__init__(problem)
        self.whole = whole  # whether nothing of the file can be used


class Stream:
    """The unpacked content of a file, which must be what is `wanted`.

    Its compression, `gzip`, `zstd` or None, follows from its name. `Unreadable` says that the content is something
    else, or that the file is a folder.
    """

    def __init__(self, path: Path, compression: str | None, wanted: Literal["text", "parquet"] = "text"):
        if path.is_dir():
            raise Unreadable("this is a folder; name a file in it", whole=True)
        self._path, self._compression = path, compression
        self._given, self._error = 0, ""
        self._limit = max(UNPACKED, TIMES * path.stat().st_size)
        self._stream: pa.NativeFile | None = None
        if compression:
            with open(path, "rb") as file:
                self._refuse(file.read(kinds.HEAD), compression)
        # Arrow allocates a buffer of the requested size at each call, and most files are small.
        self._ahead = self._read(kinds.HEAD if compression else min(kinds.HEAD, path.stat().st_size + 1))
        self._refuse(self._ahead, wanted)

    def _refuse(self, head: bytes, wanted: str) -> None:
        if problem := kinds.other_than(head, wanted):
            self.close()
            raise Unreadable(problem, whole=True)

    def read(self, size: int = BLOCK) -> bytes:
        """Return the next bytes: `size` of them, or fewer at the end of the file.

        `Unreadable` says that the file is damaged or ends early, and all that can be read was returned before, or that
        it unpacks to more than is plausible.
        """
        ahead, self._ahead = self._ahead[:size], self._ahead[size:]
        found = ahead + self._read(size - len(ahead)) if len(ahead) < size else ahead
        if self._compression and self._given > self._limit:
            raise Unreadable(
                f"it unpacks to more than {self._limit / 1e6:,.0f} MB ({TIMES} times its size); if this is right,"
                " unpack it yourself"
            )
        if self._error and not found:
            raise Unreadable(self._error, whole=not self._given)
        return found

    def _read(self, size: int) -> bytes:
        if self._error:
            return b""
        try:
            stream = self._stream = self._stream or self._opened(0)
            found = stream.read(size)
        except (pa.ArrowInvalid, OSError) as error:
            if getattr(error, "errno", None):  # a disk fails; Arrow reports damage without an errno
                raise
            self._error, found = damage(error), b""
            if "Truncated" in str(error):  # all before the end is sound
                found = self._last_bytes()
        self._given += len(found)
        return found

    def _opened(self, skip: int) -> pa.NativeFile:
        """Return a new stream, `skip` bytes after the beginning of the content."""
        file = pa.OSFile(str(self._path))
        stream = pa.CompressedInputStream(file, self._compression) if self._compression else file
        while skip and (passed := len(stream.read(min(skip, BLOCK)))):
            skip -= passed
        return stream

    def _last_bytes(self) -> bytes:
        """Return what can still be read of a file that ends early."""
        found = b""
        for step in STEPS:
            with contextlib.closing(self._opened(self._given + len(found))) as stream, contextlib.suppress(OSError):
                while part := stream.read(step):
                    found += part
        return found

    def close(self) -> None:
        if self._stream:
            self._stream.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def open_file(path: Path, suffix: str, compression: str | None) -> Stream | pa.NativeFile:
    """Open a file for reading its unpacked content; a plain .parquet can also be read from its end.

    `suffix`, `compression`: what its content must be, as `formats.split_name` says it; else an Unreadable is raised.
    """
    wanted = "parquet" if suffix == ".parquet" else "text"
    stream = Stream(path, compression, wanted)
    if wanted == "text" or compression:
        return stream
    stream.close()
    return pa.OSFile(str(path))


def lines(stream: Stream) -> Iterator[bytes]:
    """Yield the lines of a text file with their ends, without a mark of UTF-8 at the beginning."""
    rest, first = [b""], True
    while block := stream.read(BLOCK):
        if first:
            block, first = block.removeprefix(MARK), False
        *whole, end = block.split(b"\n")
        for line in whole:
            yield b"".join([*rest, line, b"\n"])
            rest = []
        rest.append(end)
    if last := b"".join(rest):
        yield last


@contextlib.contextmanager
def damage_as_unreadable(path: Path) -> Iterator[None]:
    """Turn errors in reading a file into an Unreadable; a UserError if there is no such file, or it may not be read."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{escape.line(path)}: {not_found(path)}") from None
    except (PermissionError, IsADirectoryError) as error:
        raise UserError(f"{escape.line(path)}: cannot be read: {error.strerror}") from None
    except (pa.ArrowInvalid, OSError) as error:
        # Arrow reports damage as OSError without an errno; with one, a disk fails or the scratch folder is full.
        if getattr(error, "errno", None):
            raise
        raise Unreadable(damage(error)) from None


def damage(error: Exception) -> str:
    """Return what Arrow's error says about a file, in a line."""
    text = str(error).split("\n")[0].rstrip(".")
    if "Truncated compressed stream" in text:
        return "truncated: the compressed data ends too early"
    if "requires too much memory" in text:  # Arrow reads no .zst that needs a larger window
        return (
            "it was compressed with a long window, and 128 MB are the most that can be read; compress it again:"
            " zstd -d --long=31 OLD.zst -c | zstd -o NEW.zst"
        )
    return f"damaged: {text}"
