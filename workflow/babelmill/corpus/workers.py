"""Work on the pieces of a corpus in parallel, and yield the results in the order of the documents.

Arrow reads Parquet without Python's lock (GIL), so threads read Parquet, and need not send data to other processes. But
parsing lines and small files needs the lock, as do some steps and views of documents (`Reading.holds_the_lock`), so
processes do this. They are forked from a server that has imported the modules that they need and never started a thread
(`forkserver`). Forking this process itself is not safe, since Arrow runs threads in it. Only a few pieces are worked on
at once, and a large piece waits until the earlier ones are done. So memory does not depend on the size of the corpus,
only on the largest file that cannot be cut. With one thread, or little text, the same functions do all work in this
process.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import pyarrow as pa

from babelmill.core.bars import Bar
from babelmill.core.files import UserError
from babelmill.corpus.pieces import (
    EXPANDS,
    LARGEST,
    LineBlock,
    Piece,
    SmallFiles,
    TalliedBatches,
    pieces,
    text_size,
    work,
)
from babelmill.corpus.reading import Reading
from babelmill.corpus.tally import Tally

WORTH_IT = 128 << 20  # bytes of text; to read less is faster than to start workers
WORTH_A_VIEW = 16 << 20  # the same where workers do more than parse and clean
KILLED = (
    "a worker process was killed, perhaps because memory ran out: give the stage more memory (on SLURM: raise mem_mb of"
    " corpus, under set-resources of the profile), or run it in one process (--set-threads corpus=1, after the target)"
)
LONGEST = 70  # bytes of the path of the folder for temporary files; the path of a socket in it may have 107
SWITCH = 0.0005  # seconds that a thread keeps Python's lock while others wait; with 0.005, a sixth of the time is lost
_reading: Reading  # only a worker process has it


def read_all(paths: list[Path], reading: Reading, tally: Tally, threads: int) -> Iterator[pa.RecordBatch]:
    """Yield the clean documents of all files with their digests, in order, counting in `tally`."""
    found, size = pieces(paths, reading), 0
    total = sum(text_size(path) * (EXPANDS if path.suffix == ".parquet" else 1) for path in paths)
    alone = threads < 2 or total < (WORTH_IT if reading.view is None else WORTH_A_VIEW)
    done = ((piece, work(piece, reading)) for piece in found) if alone else _in_parallel(found, reading, threads)
    with contextlib.closing(done), contextlib.closing(Bar(total)) as bar:
        for piece, documents in done:
            # Drop the pieces after the damage in a damaged file. (Only pieces of this kind can exist after it.)
            if str(getattr(piece, "path", "")) in tally.damaged_files:
                continue
            tally.merge(documents.tally)
            # Approximate: without dropped documents; a view may be smaller than the text.
            size += sum(batch.nbytes for batch in documents.batches) if reading.view is None else piece.size
            bar.show(min(size, 0.99 * total), _progress(tally, size))  # the total is a guess, and there may be more
            yield from documents.batches
        if total:
            bar.show(total, _progress(tally, size))


def _progress(tally: Tally, size: int) -> str:
    """Return the progress in words. `size` is the bytes of text so far."""
    return f"reading: {tally.read:,} documents, {size / 1e6:,.0f} MB"


def _in_parallel(found: Iterator[Piece], reading: Reading, threads: int) -> Generator[tuple[Piece, TalliedBatches]]:
    """Yield the pieces and the results of `work` in order. Errors are raised in this order, too."""
    most = 2 * threads + 2
    waiting: deque[tuple[Piece, Future[TalliedBatches]]] = deque()
    context = multiprocessing.get_context("forkserver")
    pool, processes = ThreadPoolExecutor(threads), ProcessPoolExecutor(threads, context, _begin, (reading,))
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)

    def begin(piece: Piece) -> Future[TalliedBatches]:
        if not reading.holds_the_lock and not isinstance(piece, LineBlock | SmallFiles):
            return pool.submit(work, piece, reading)
        _start_server()
        with _uninterrupted():
            return processes.submit(_work, piece)

    def first() -> tuple[Piece, TalliedBatches]:
        piece, future = waiting.popleft()
        return piece, future.result()

    try:
        error = None
        while True:
            try:
                piece = next(found, None)
            except Exception as problem:
                piece, error = None, problem
            if piece is None:
                break
            size = piece.size + sum(each.size for each, _ in waiting)
            while waiting and (len(waiting) == most or size > most * LARGEST):
                size -= waiting[0][0].size
                yield first()
            waiting.append((piece, begin(piece)))
        while waiting:
            yield first()
        if error:
            raise error
    except BrokenProcessPool:
        raise UserError(KILLED) from None
    finally:
        pool.shutdown(cancel_futures=True)
        processes.shutdown(cancel_futures=True)
        sys.setswitchinterval(before)


@contextlib.contextmanager
def _uninterrupted() -> Generator[None]:
    """Let SIGINT (Ctrl-C) wait: a pool that does not know of a worker it has started waits for its end forever."""
    came = []
    before = signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def _start_server() -> None:
    """Start the server that forks the workers, if it does not run. SIGINT (Ctrl-C) reaches only this process.

    The server and the workers end when this process ends.
    """
    forkserver.set_forkserver_preload(["babelmill.corpus.__main__", "babelmill.corpus.server"])
    resource_tracker.ensure_running()  # first, since it unblocks the signal
    before, folder = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}), tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST:
        tempfile.tempdir = "/tmp"
    try:
        forkserver.ensure_running()
    finally:
        tempfile.tempdir = folder
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(reading: Reading) -> None:
    """Prepare a worker. It ends when its parent ends for any reason."""
    global _reading
    _reading = reading
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _work(piece: Piece) -> TalliedBatches:
    return work(piece, _reading)
