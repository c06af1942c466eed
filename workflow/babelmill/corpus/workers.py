"""Work on the pieces of a corpus in parallel, and yield the results in the order of the documents.

Arrow reads Parquet without Python's lock (GIL), so threads read Parquet, and need not send data to other processes. But
parsing lines and small files needs the lock, so processes do this. They are forked from a server that has imported the
modules that they need and never started a thread (`forkserver`). Forking this process itself is not safe, since Arrow
runs threads in it. Only a few pieces are worked on at once, and a large piece waits until the earlier ones are done. So
memory does not depend on the size of the corpus, only on the largest file that cannot be cut. With one thread, or
little text, the same functions do all work in this process.
"""

import contextlib
import ctypes
import dataclasses
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import numpy as np
import pyarrow as pa

from babelmill.core.bars import Bar
from babelmill.core.files import UserError
from babelmill.corpus.digests import without_digests
from babelmill.corpus.pieces import (
    EXPANDS,
    LARGEST,
    Documents,
    Lines,
    Piece,
    Reading,
    SmallFiles,
    pieces,
    text_size,
    work,
)
from babelmill.corpus.tally import Tally

WORTH_IT = 128 << 20  # bytes of text; to read less is faster than to start workers
KILLED = (
    "a worker process was killed, perhaps because memory ran out: give the stage more memory (on SLURM: raise mem_mb of"
    " corpus, under set-resources of the profile), or run it in one process (--set-threads corpus=1, after the target)"
)
LONGEST = 70  # bytes of the path of the folder for temporary files; the path of a socket in it may have 107
SLOT = 4 << 20  # bytes of shared memory per piece that is being worked on: pipes take twice the time
SWITCH = 0.0005  # seconds that a thread keeps Python's lock while others wait; with 0.005, a sixth of the time is lost
Memory = ctypes.Array[ctypes.c_char]
_reading: Reading  # only a worker process has it
_memory: Memory


def read_all(
    paths: list[Path], reading: Reading, tally: Tally, threads: int
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Yield the clean documents of all files and their digests [rows, 2], in order, counting in `tally`."""
    found, size = pieces(paths, reading), 0
    total = sum(text_size(path) * (EXPANDS if path.suffix == ".parquet" else 1) for path in paths)
    alone = threads < 2 or total < WORTH_IT
    done = ((piece, work(piece, reading)) for piece in found) if alone else _in_parallel(found, reading, threads)
    with contextlib.closing(done), contextlib.closing(Bar(total)) as bar:
        for piece, documents in done:
            # Drop the pieces after the damage in a damaged file. (Only pieces of this kind can exist after it.)
            if str(getattr(piece, "path", "")) in tally.damaged_files:
                continue
            tally.merge(documents.tally)
            size += sum(batch.nbytes for batch in documents.batches)  # approximate: without dropped documents
            bar.show(min(size, 0.99 * total), said(tally, size))  # the total is a guess, and there may be more
            yield from map(without_digests, documents.batches)
        if total:
            bar.show(total, said(tally, size))


def said(tally: Tally, size: int) -> str:
    """Return the progress in words. `size` is the bytes of text so far."""
    return f"reading: {tally.read:,} documents, {size / 1e6:,.0f} MB"


def _in_parallel(found: Iterator[Piece], reading: Reading, threads: int) -> Generator[tuple[Piece, Documents]]:
    """Yield the pieces and the results of `work` in order. Errors are raised in this order, too."""
    most = 2 * threads + 2
    waiting: deque[tuple[Piece, Callable[[], Documents]]] = deque()
    pool, processes = ThreadPoolExecutor(threads), _Processes(reading, threads, most)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)

    def first() -> tuple[Piece, Documents]:
        piece, result = waiting.popleft()
        return piece, result()

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
            parsed = isinstance(piece, Lines | SmallFiles)
            waiting.append((piece, processes.begin(piece) if parsed else pool.submit(work, piece, reading).result))
        while waiting:
            yield first()
        if error:
            raise error
    except BrokenProcessPool:
        raise UserError(KILLED) from None
    finally:
        pool.shutdown(cancel_futures=True)
        processes.close()
        sys.setswitchinterval(before)


class _Processes:
    """Runs worker processes, which start with the first piece. At most `most` pieces are worked on at once."""

    def __init__(self, reading: Reading, threads: int, most: int) -> None:
        self._reading, self._threads, self._free = reading, threads, deque(range(most))
        self._pool: ProcessPoolExecutor | None = None
        self._memory: Memory

    def begin(self, piece: Piece) -> Callable[[], Documents]:
        """Give a piece to a process. Return a function that waits for the result."""
        if not self._pool:
            self._pool = self._start()
        slot = self._free.popleft()
        future = self._pool.submit(_work, _sent(piece, _slot(self._memory, slot)), slot)

        def result() -> Documents:
            documents, size = future.result()
            if size:
                documents.read_from(bytes(_slot(self._memory, slot)[:size]))
            self._free.append(slot)
            return documents

        return result

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["babelmill.corpus.__main__"])
        _start_server()
        self._memory = context.RawArray("c", len(self._free) * SLOT)
        return ProcessPoolExecutor(self._threads, context, _begin, (self._reading, self._memory))

    def close(self) -> None:
        """End the processes."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)


def _start_server() -> None:
    """Start the server that forks the workers. Only this process gets SIGINT (Ctrl-C), the server and workers do not.

    The server and the workers end when this process ends.
    """
    resource_tracker.ensure_running()  # first, since it unblocks the signal
    before, folder = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}), tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST:
        tempfile.tempdir = "/tmp"
    try:
        forkserver.ensure_running()
    finally:
        tempfile.tempdir = folder
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _slot(memory: Memory, slot: int) -> memoryview:
    return memoryview(memory).cast("B")[slot * SLOT : (slot + 1) * SLOT]


def _sent(piece: Piece, room: memoryview) -> tuple[Piece, int]:
    """Return the piece to send to a worker, and how many of its bytes are in the shared memory instead."""
    if not isinstance(piece, Lines) or len(piece.block.raw) > SLOT:
        return piece, 0
    size = len(piece.block.raw)
    room[:size] = piece.block.raw
    return dataclasses.replace(piece, block=dataclasses.replace(piece.block, raw=b"")), size


def _begin(reading: Reading, memory: Memory) -> None:
    """Prepare a worker. It ends when its parent ends for any reason."""
    global _reading, _memory
    _reading, _memory = reading, memory
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _work(sent: tuple[Piece, int], slot: int) -> tuple[Documents, int]:
    """Do `work`. Return the result, and the bytes of its batches in the slot (0 if they do not fit: see the result)."""
    piece, size = sent
    room = _slot(_memory, slot)
    if size and isinstance(piece, Lines):
        piece = dataclasses.replace(piece, block=dataclasses.replace(piece.block, raw=bytes(room[:size])))
    documents = work(piece, _reading)
    sink = pa.FixedSizeBufferWriter(pa.py_buffer(room))
    try:
        documents.write(sink)
    except (pa.ArrowException, OSError):  # the batches do not fit into the slot
        return documents, 0
    return Documents([], documents.tally), sink.tell()
