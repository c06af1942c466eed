"""What the host makes of a step while the device computes the one before it."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Makes a thing for each step, in a thread, one step ahead.

    Args:
        make: returns the thing of a step; called in the thread, and for each step in turn if all goes on.
        steps: of the run; nothing is made for what comes after them.
    """

    def __init__(self, make: Callable[[int], T], steps: int):
        self._make, self._steps = make, steps
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._coming: tuple[int, Future[T]] | None = None

    def take(self, step: int) -> T:
        """Return the thing of a step, and begin with the next one. An error of `make` comes out here."""
        coming = self._coming
        future = coming[1] if coming and coming[0] == step else self._thread.submit(self._make, step)
        result = future.result()
        self._coming = (step + 1, self._thread.submit(self._make, step + 1)) if step + 1 < self._steps else None
        return result
