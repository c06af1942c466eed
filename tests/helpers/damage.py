"""Damage files as disks do, and be somebody who may not read or write them."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil  # noqa: F401  (our code imports it later, when who has no rights may not read it)


def flip_a_bit(path: Path) -> None:
    """Change one bit near the end of a file, which keeps its size and time."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@contextlib.contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """Be somebody for whom permissions count, since root may do anything; who gets into a temporary folder."""
    for parent in (folder, *folder.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
