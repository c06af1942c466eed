"""Damage files as disks do."""

import os
from pathlib import Path


def flip_a_bit(path: Path) -> None:
    """Change one bit near the end of a file, which keeps its size and time."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
