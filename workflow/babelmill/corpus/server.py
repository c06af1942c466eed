"""Keep the server that forks the workers of a corpus quiet at its end. Only this server imports this module.

If the stage is killed while a worker starts, the worker waits for data that never comes. Python would print an error
with its place in the code (a traceback) for this, below the message that says what happened.
"""

import sys
from types import TracebackType


def quiet_at_end(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """Print an error as Python does, but not one that says that the stage has ended."""
    if not issubclass(kind, EOFError):
        sys.__excepthook__(kind, error, where)


sys.excepthook = quiet_at_end
