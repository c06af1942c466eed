"""Do the same work on many batches in several processes, and yield the results in the order of the batches.

The processes are forked from a server that never started a thread (`forkserver`): to fork this process is not safe,
since Arrow runs threads in it. Only a few batches are worked on at once, so memory does not depend on their number.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver
from typing import Any, Protocol, TypeVar

from babelmill.core.files import UserError

AT_ONCE = 128 << 20  # bytes that wait for their results at most, besides one batch
KILLED = (
    "a worker process was killed, perhaps because memory ran out: give the stage more memory (on SLURM: raise its"
    " mem_mb under set-resources of the profile), or run it in one process (such as --set-threads corpus=1)"
)
# Only worker processes have these.
_work: Callable[[Any, Any], Any]
_state: Any


class Batch(Protocol):
    """What is worked on: batches and arrays of Arrow."""

    @property
    def nbytes(self) -> int: ...


B = TypeVar("B", bound=Batch)
S = TypeVar("S")
R = TypeVar("R")


def in_order(work: Callable[[B, S], R], batches: Iterable[B], state: S, threads: int) -> Generator[R]:
    """Yield what `work`, a function of a module, returns for each batch and `state`, in order.

    With one thread, this process does it. Ctrl-C ends this between two batches: a pool that does not know of a worker
    which it has just started would wait for it forever.
    """
    if threads < 2:
        yield from (work(batch, state) for batch in batches)
        return
    came: list[int] = []
    # The server and the workers are started without Ctrl-C, and so never hear of it.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    forkserver.set_forkserver_preload([work.__module__])
    forkserver.ensure_running()
    signal.signal(signal.SIGINT, lambda *_: came.append(1))
    pool = ProcessPoolExecutor(threads, multiprocessing.get_context("forkserver"), _begin, (work, state))
    waiting: deque[tuple[int, Future[R]]] = deque()
    try:
        for batch in batches:
            waiting.append((batch.nbytes, pool.submit(_do, batch)))
            while len(waiting) > 2 * threads or sum(size for size, _ in waiting) > AT_ONCE:
                yield waiting.popleft()[1].result()
            if came:
                raise KeyboardInterrupt
        while waiting:
            yield waiting.popleft()[1].result()
            if came:
                raise KeyboardInterrupt
    except BrokenProcessPool:
        raise UserError(KILLED) from None
    finally:
        pool.shutdown(cancel_futures=True)
        signal.signal(signal.SIGINT, before)


def _begin(work: Callable[[Any, Any], Any], state: Any) -> None:
    """Prepare a worker. It ends when its parent ends for any reason."""
    global _work, _state
    _work, _state = work, state
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _do(batch: Any) -> Any:
    return _work(batch, _state)
