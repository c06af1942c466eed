"""Babelmill: raw text to published language models, one per language.

If this is the program that was started (`python -m babelmill.train`, `babelmill why`), and not a part of another one
(Snakemake, a test), it is prepared before anything else is imported. A `random.py` in the working folder, or on a
`PYTHONPATH` that was set for another project, would be imported instead of the library. So nothing is imported from
either, here and in the processes that this one starts.
"""

import os
import site
import sys

__version__ = "1.0.0.dev0"


def prepare() -> None:
    """Import only from the package and the environment.

    Bytecode is written, also where the machine says that none is: else each process would compile PyTorch again. Ctrl-C
    during the imports, which take seconds, ends the program without a traceback.
    """
    shown = sys.excepthook
    sys.excepthook = lambda kind, *rest: None if kind is KeyboardInterrupt else shown(kind, *rest)
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    set_by_user = ["", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]  # "" is the working folder
    foreign = {os.path.abspath(path) for path in set_by_user} - {*site.getsitepackages()} | {ours}
    sys.path[:] = [ours, *(path for path in sys.path if os.path.abspath(path) not in foreign)]
    os.environ |= {"PYTHONPATH": ours, "PYTHONSAFEPATH": "1"}


if sys.argv[:1] == ["-m"] or (sys.argv[:1] and sys.argv[0].endswith(("/babelmill", "babelmill.exe"))):
    prepare()
