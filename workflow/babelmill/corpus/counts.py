"""Count how often each digest occurs, exactly, in memory that does not grow with the text.

64 bits of each digest go to files, one for each part of all possible digests, and one part is in memory at a time. This
takes 8 bytes on disk per digest.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

BITS = 6  # 64 open files; with 10^10 digests, a part takes 1.3 GB


class Counts:
    """Counts digests. Use it in a `with`; `scratch` is the folder for temporary files, None stands for the system's."""

    def __init__(self, scratch: Path | None) -> None:
        self._files = [tempfile.TemporaryFile(dir=scratch) for _ in range(2**BITS)]  # noqa: SIM115 (closed at exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _error: type[BaseException] | None, _value: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()

    def add(self, digests: np.ndarray) -> None:
        digests = np.sort(digests)
        ends = np.searchsorted(digests >> np.uint64(64 - BITS), np.arange(1, 2**BITS, dtype=np.uint64))
        for file, part in zip(self._files, np.split(digests, ends), strict=True):
            file.write(part.data)

    def parts(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the different digests of each part, sorted, uint64 [n], and how often each was added, int64 [n]."""
        for file in self._files:
            file.seek(0)
            yield np.unique(np.frombuffer(file.read(), np.uint64), return_counts=True)
