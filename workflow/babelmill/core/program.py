"""Prepare a process that runs a stage or a command: where it imports from, and that it writes bytecode.

A `random.py` in the working folder, or on a `PYTHONPATH` that was set for another project, would be imported instead of
the library. So nothing is imported from either, here and in the processes that this one starts.
"""

import os
import site
import sys

# Not from `places.py`: it imports `pathlib`, and the working folder may have another one.
IMPORTED_FROM = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def prepare() -> None:
    """Import only from the package and the environment.

    Bytecode is written, also where the machine says that none is: else each process would compile PyTorch again.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    set_by_user = ["", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]  # "" is the working folder
    foreign = {os.path.abspath(path) for path in set_by_user} - {*site.getsitepackages()} | {IMPORTED_FROM}
    sys.path[:] = [IMPORTED_FROM, *(path for path in sys.path if os.path.abspath(path) not in foreign)]
    os.environ |= {"PYTHONPATH": IMPORTED_FROM, "PYTHONSAFEPATH": "1"}
