"""Name what a training runs on, and with which code: its processors, the release, and the commit of the checkout.

They stand in the record of the run and in the manifest of the model, for readers of a report. They are no settings: no
digest has them, so another machine or another commit makes nothing again.
"""

import contextlib
import os
import platform
import subprocess
from pathlib import Path

import torch

from babelmill import __version__
from babelmill.core.places import PACKAGE, ROOT
from babelmill.core.words import plural

SECONDS = 20  # the longest that git may take: the file system of a checkout may be slow
DIGITS = 12  # of a commit's hash
PROCESSOR = "model name"  # how /proc/cpuinfo calls the name of a processor


def processors() -> str:
    """Return the processors that train, such as `4 x NVIDIA A100-SXM4-80GB` or `AMD EPYC 7763, 8 threads`."""
    count = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    if torch.cuda.is_available():
        return f"{count} x {torch.cuda.get_device_name()}"
    return f"{_name_of_processor()}, {plural(count * torch.get_num_threads(), 'thread')}"


def _name_of_processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, name = line.partition(":")
            if key.strip() == PROCESSOR and name.strip():
                return name.strip()
    return platform.processor() or platform.machine()


def code() -> str:
    """Return the release and, in a checkout, its commit: `babelmill 0.2.0 at 3a4b5c6d7e8f, edited`."""
    release = f"babelmill {__version__}"
    if not (ROOT / ".git").exists():  # an installed package, perhaps inside of another project's checkout
        return release
    try:
        commit = _git("rev-parse", f"--short={DIGITS}", "HEAD")
        edited = ", edited" if _git("status", "--porcelain", "--", str(PACKAGE)) else ""
    except (OSError, subprocess.SubprocessError):
        return release
    return f"{release} at {commit}{edited}"


def _git(*arguments: str) -> str:
    """Return what git says about the checkout; it takes no lock of it."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-C", str(ROOT), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True, env=environment)
    return answer.stdout.strip()
