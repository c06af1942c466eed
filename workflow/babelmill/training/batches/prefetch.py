"""Prepare the next step on the host while the device computes the present one."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Prepares each step in a thread, one step ahead.

    Args:
        make: returns what a step needs. The thread calls it, once per step if `take` is called for steps in order.
        steps: number of steps of the run. Nothing is prepared after the last one.
    """

    def __init__(self, make: Callable[[int], T], steps: int):
        self._make, self._steps = make, steps
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._coming: tuple[int, Future[T]] | None = None

    def take(self, step: int) -> T:
        """Return the result of `make` for a step, and start to prepare the next step. Errors of `make` appear here."""
        coming = self._coming
        future = coming[1] if coming and coming[0] == step else self._thread.submit(self._make, step)
        result = future.result()
        self._coming = (step + 1, self._thread.submit(self._make, step + 1)) if step + 1 < self._steps else None
        return result
