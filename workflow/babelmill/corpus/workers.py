"""Works on the pieces of a corpus in several processes, and gives what comes out in the order of the documents.

Parsing holds Python's lock, so these are processes. They are forked from a server that has imported what they need and
never started a thread (`forkserver`): to fork this process, in which Arrow has threads, is not safe. Few pieces are
under way at once, and a large one waits until those before it are done, so memory does not depend on the size of the
corpus, and of files that cannot be cut, on the largest alone. With one thread, or little text, all is done here, by
the same functions.
"""

import contextlib
import ctypes
import dataclasses
import multiprocessing
import os
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import numpy as np
import pyarrow as pa

from babelmill.core.bars import Bar
from babelmill.core.files import UserError
from babelmill.corpus.digests import without_digests
from babelmill.corpus.pieces import EXPANDS, LARGEST, Documents, Lines, Piece, Reading, pieces, text_size, work
from babelmill.corpus.tally import Tally

WORTH_IT = 128 << 20  # bytes of text; less is read before the workers have started
KILLED = (
    "a worker process was killed, perhaps because memory ran out: run it again with more (--set-resources"
    " corpus:mem_mb=...) or with fewer processes (--set-threads corpus=1)"
)
LONGEST = 70  # bytes of the name of the folder for temporary files; a socket in it has a name of 107 at most
SLOT = 4 << 20  # bytes of shared memory of each piece under way: pipes take twice the time
Memory = ctypes.Array[ctypes.c_char]
_reading: Reading  # of a worker process
_memory: Memory


def read_all(
    paths: list[Path], reading: Reading, tally: Tally, threads: int
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Yield the clean documents of all files and their digests [rows, 2], in order, counting in `tally`."""
    found, size = pieces(paths, reading), 0
    total = sum(text_size(path) * (EXPANDS if path.suffix == ".parquet" else 1) for path in paths)
    alone = threads < 2 or total < WORTH_IT
    done = ((piece, work(piece, reading)) for piece in found) if alone else _in_processes(found, reading, threads)
    with contextlib.closing(done), contextlib.closing(Bar(total)) as bar:
        for piece, documents in done:
            # Of a damaged file, what follows the damage is left out. (Other pieces are not made after it.)
            if str(getattr(piece, "path", "")) in tally.damaged_files:
                continue
            tally.merge(documents.tally)
            size += sum(batch.nbytes for batch in documents.batches)  # about: what is dropped is not among it
            bar.show(min(size, 0.99 * total), said(tally, size))  # the total is a guess, and there may be more
            yield from map(without_digests, documents.batches)
        if total:
            bar.show(total, said(tally, size))


def said(tally: Tally, size: int) -> str:
    """Return what is done in words; `size`: bytes of text."""
    return f"reading: {tally.read:,} documents, {size / 1e6:,.0f} MB"


def _in_processes(found: Iterator[Piece], reading: Reading, threads: int) -> Generator[tuple[Piece, Documents]]:
    """Yield the pieces and what `work` makes of them, in order; so do errors come, wherever they are met."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["babelmill.corpus.__main__"])
    _start_server()
    most = 2 * threads + 2
    memory = context.RawArray("c", most * SLOT)
    slots = deque(range(most))
    pool = ProcessPoolExecutor(threads, context, _begin, (reading, memory))
    waiting: deque[tuple[Piece, int, Future[tuple[Documents, int]]]] = deque()

    def first() -> tuple[Piece, Documents]:
        piece, slot, future = waiting.popleft()
        documents, size = future.result()
        if size:
            documents.read_from(bytes(_slot(memory, slot)[:size]))
        slots.append(slot)
        return piece, documents

    try:
        error = None
        while True:
            try:
                piece = next(found, None)
            except Exception as problem:
                piece, error = None, problem
            if piece is None:
                break
            while waiting and (not slots or sum(each.size for each, *_ in waiting) + piece.size > most * LARGEST):
                yield first()
            slot = slots.popleft()
            waiting.append((piece, slot, pool.submit(_work, _sent(piece, _slot(memory, slot)), slot)))
        while waiting:
            yield first()
        if error:
            raise error
    except BrokenProcessPool:
        raise UserError(KILLED) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_server() -> None:
    """Start what forks the workers. It and they do not get SIGINT: Ctrl-C is for this process, with which they end."""
    resource_tracker.ensure_running()  # which unblocks the signal, too
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
    """Return a piece as it is sent to a worker, and how many bytes of it are in its slot instead."""
    if not isinstance(piece, Lines) or len(piece.block.raw) > SLOT:
        return piece, 0
    size = len(piece.block.raw)
    room[:size] = piece.block.raw
    return dataclasses.replace(piece, block=dataclasses.replace(piece.block, raw=b"")), size


def _begin(reading: Reading, memory: Memory) -> None:
    """Prepare a worker: it ends with its parent, however that one ends."""
    global _reading, _memory
    _reading, _memory = reading, memory
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _work(sent: tuple[Piece, int], slot: int) -> tuple[Documents, int]:
    """Do `work`. Returns what came out, and how many bytes of it are in the slot: the batches, if they fit."""
    piece, size = sent
    room = _slot(_memory, slot)
    if size and isinstance(piece, Lines):
        piece = dataclasses.replace(piece, block=dataclasses.replace(piece.block, raw=bytes(room[:size])))
    documents = work(piece, _reading)
    sink = pa.FixedSizeBufferWriter(pa.py_buffer(room))
    try:
        documents.write(sink)
    except (pa.ArrowException, OSError):  # more than fits
        return documents, 0
    return Documents([], documents.tally), sink.tell()
