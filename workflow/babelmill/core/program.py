"""Prepare a process that runs a stage or a command: where it imports from, and how it ends after an error.

A `random.py` in the working folder, or on a `PYTHONPATH` that was set for another project, would be imported instead of
the library. So nothing is imported from either, here and in the processes that this one starts.
"""

import os
import resource
import site
import sys
import threading

# Not from `places.py`: it imports `pathlib`, and the working folder may have another one.
IMPORTED_FROM = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def prepare() -> None:
    """Import only from the package and the environment; show an error that nothing catches in one line.

    Bytecode is written, also where the machine says that none is: else each process would compile PyTorch again. Where
    memory is limited (`ulimit -v`), OpenBLAS gets one thread, since it takes 32 MB for each when it is loaded.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    set_by_user = ["", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]  # "" is the working folder
    library = os.path.dirname(os.__file__)
    environment = {*site.getsitepackages(), library, os.path.join(library, "lib-dynload")}
    foreign = {os.path.abspath(path) for path in set_by_user} - environment | {IMPORTED_FROM}
    sys.path[:] = [IMPORTED_FROM, *(path for path in sys.path if os.path.abspath(path) not in foreign)]
    os.environ |= {"PYTHONPATH": IMPORTED_FROM, "PYTHONSAFEPATH": "1"}
    from babelmill.core import trouble

    sys.excepthook, sys.unraisablehook, threading.excepthook = trouble.report, trouble.ignored, trouble.ended_thread
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        sys.meta_path.insert(0, RoomForOpenBLAS())


class RoomForOpenBLAS:
    """Refuses to load OpenBLAS where it does not get its memory: it would end the process, or try again forever."""

    MODULES = ("numpy._core._multiarray_umath", "scipy.linalg._fblas")  # each loads one
    NEEDED = 100 << 20  # bytes for a library and its 32 MB

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Raise a MemoryError if there is too little memory for a module; leave it to others to find the module."""
        if name in self.MODULES and os.path.exists("/proc/self/statm"):
            with open("/proc/self/statm") as file:
                taken = int(file.read().split()[0]) * resource.getpagesize()
            if resource.getrlimit(resource.RLIMIT_AS)[0] - taken < self.NEEDED:
                raise MemoryError
