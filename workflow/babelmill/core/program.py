"""Prepare a process that runs a stage or a command: where it imports from, and how it ends after an error.

A `random.py` in the working folder, or on a `PYTHONPATH` that was set for another project, would be imported instead of
the library. So nothing is imported from either, here and in the processes that this one starts.
"""

import os
import resource
import site
import sys

# Not from `places.py`: it imports `pathlib`, and the working folder may have another one.
IMPORTED_FROM = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def prepare() -> None:
    """Import only from the package and the environment; show an error that nothing catches in one line.

    Where memory is limited (`ulimit -v`), OpenBLAS gets one thread: it takes 32 MB for each core when it is loaded, and
    ends the process or waits forever if there are not so many.
    """
    set_by_user = ["", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]  # "" is the working folder
    library = os.path.dirname(os.__file__)
    environment = {*site.getsitepackages(), library, os.path.join(library, "lib-dynload")}
    foreign = {os.path.abspath(path) for path in set_by_user} - environment | {IMPORTED_FROM}
    sys.path[:] = [IMPORTED_FROM, *(path for path in sys.path if os.path.abspath(path) not in foreign)]
    os.environ |= {"PYTHONPATH": IMPORTED_FROM, "PYTHONSAFEPATH": "1"}
    from babelmill.core import trouble

    sys.excepthook, sys.unraisablehook = trouble.report, trouble.ignored
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
