"""Say in one line what the machine refused: no space, no memory, too many files, a file system that went away.

Such errors are nobody's bug, and reach us in many forms: an OSError with a number, Arrow's or safetensors' own errors
with the number in their text, a RuntimeError of PyTorch, a failing import. This file is the one place that knows them.
It imports almost nothing, since it must still work when memory is short.
"""

import contextlib
import errno
import os
import re
import resource
import sys
import threading
import traceback
from types import TracebackType

# What the system refuses, and what the user can do.
REFUSALS = {
    errno.ENOSPC: "no space left on the device; free some space",
    errno.EDQUOT: "the disk quota is used up; delete files, or ask for more",
    errno.EFBIG: "a file got larger than allowed; raise the limit (`ulimit -f`), or use another file system",
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.EROFS: "the file system is read-only",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.EIO: "the disk reports an error",
    errno.ENOMEM: "not enough memory; free some, or give the job more (on SLURM: mem_mb in the profile)",
    errno.EMFILE: "too many open files; raise the limit (`ulimit -n`)",
    errno.ENFILE: "too many open files on this machine; end other programs",
    errno.EAGAIN: "no more threads or processes can start; raise the limits (`ulimit -u`, `-v`), or end other programs",
    errno.ESTALE: "the network file system lost the file; run again",
    errno.ETIMEDOUT: "the file system or the network did not answer; run again",
    errno.ENOTCONN: "the file system is no longer mounted; mount it again",
    errno.ENODEV: "the file system is no longer mounted; mount it again",
    errno.ENXIO: "the file system is no longer mounted; mount it again",
    errno.EREMOTEIO: "the network file system reports an error",
    errno.EHOSTDOWN: "the file server is down",
    errno.EHOSTUNREACH: "the file server cannot be reached",
    errno.ENOLCK: "the file system has no locks",
    errno.EBUSY: "another program uses the file",
    errno.ETXTBSY: "another program uses the file",
    errno.ENOENT: "no such file or folder; if something deleted it during the run, run again",
    errno.ENOTDIR: "a folder is expected, but this is a file",
    errno.EISDIR: "a file is expected, but this is a folder",
    errno.EEXIST: "a file or folder of this name is in the way",
    errno.ENOTEMPTY: "the folder got new files while it was deleted; run again",
    errno.ELOOP: "a symbolic link leads to itself",
    errno.EMLINK: "too many links to one file",
    errno.EOPNOTSUPP: "the file system does not support this operation",
    errno.ENOSYS: "the file system does not support this operation",
}
FULL = (errno.ENOSPC, errno.EDQUOT)
NUMBER = re.compile(r"\b(?:os error|[Ee]rrno|Error code) (\d+)\b")  # Rust, Arrow, PyTorch
NO_MEMORY = re.compile(
    r"bad_alloc|[Cc]annot allocate memory|can't allocate memory|[Nn]ot enough memory|[Oo]ut of memory"
    r"|failed to map segment|[Mm]emory allocation|malloc of size"
)
NO_THREADS = re.compile(r"can't start new thread|[Rr]esource temporarily unavailable")
CUT = re.compile(r"\d+ requested and \d+ written|enforce fail at inline_container")  # NumPy, PyTorch


def number_of(error: BaseException) -> int | None:
    """Return the number (`errno`) of what the system refused, found in an error of any library; None if it has none."""
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)
    if found := NUMBER.search(text):
        return int(found[1])
    forms = ((NO_MEMORY, errno.ENOMEM), (NO_THREADS, errno.EAGAIN), (CUT, errno.ENOSPC))
    return next((number for form, number in forms if form.search(text)), None)


def trouble(error: BaseException) -> str | None:
    """Return one line for an error that the user or the machine caused; None for an error that is our bug."""
    if isinstance(error, ImportError) and number_of(error) is None:
        words, limit = " ".join(str(error).split()), resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY and not isinstance(error, ModuleNotFoundError):  # it went on without a part
            return f"a library cannot be imported, probably for lack of memory: {words}; raise the limit (`ulimit -v`)"
        return f"the environment is incomplete: {words}; install it again (`make setup`)"
    if "No usable temporary directory" in str(error):
        return "no folder for temporary files can be written; free some space in it, or set TMPDIR to another one"
    # PanicException is of a library in Rust; it is no Exception, so `report` gets it.
    if type(error).__name__ == "PanicException" and number_of(error) is None:
        return f"the `tokenizers` library gave up: {' '.join(str(error).split())[:200]}; use another tokenizer"
    if isinstance(error, SystemError):
        return "a library failed and did not say why, probably because memory ran out; free some, and run again"
    what = REFUSALS.get(number_of(error) or 0)
    if not what:
        return None
    if type(error).__name__ == "OutOfMemoryError":  # PyTorch's, of a GPU
        return "the GPU has not enough memory; see docs/troubleshooting.md"
    name = error.filename if isinstance(error, OSError) else None
    if isinstance(error, OSError) and error.filename2 is not None and error.errno in (*FULL, errno.EFBIG):
        name = error.filename2  # of a copy, the first is the source
    return located(what, "" if name is None else f": {name}")


def located(what: str, where: str) -> str:
    """Put where the machine refused something (one of REFUSALS) before the advice."""
    problem, mark, advice = what.partition("; ")
    return f"{problem}{where}{mark}{advice}"


def ignored(unraisable: "sys.UnraisableHookArgs") -> None:
    """Show an error that Python ignores, such as one while the process ends, unless there was no memory for it.

    This replaces `sys.unraisablehook`: after a stage has said that memory ran out, its libraries fail to clean up.
    """
    if not isinstance(unraisable.exc_value, MemoryError):
        sys.__unraisablehook__(unraisable)


def ended_thread(failed: "threading.ExceptHookArgs") -> None:
    """Show an error that ended a thread, unless there was no memory for it: whoever waits for its work says so.

    This replaces `threading.excepthook`. (For a SystemError, see `trouble`.)
    """
    if not isinstance(failed.exc_value, MemoryError | SystemError):
        threading.__excepthook__(failed)


NO_MEMORY_LEFT = f"error: {REFUSALS[errno.ENOMEM]}\n".encode()
BUG = "error: unexpected; this is a bug in Babelmill, please report it with this text"


def report(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """Print an error that nothing caught, and append it to the log of the stage (`--log`): one line if it is no bug.

    This replaces Python's own function (`sys.excepthook`): errors while a stage imports its libraries end here.
    """
    try:
        if issubclass(kind, KeyboardInterrupt):
            message = "interrupted; the same command starts this again\n"
        elif (problem := trouble(error)) is not None:
            message = f"error: {problem}\n"
        else:
            message = f"{BUG}\n{''.join(traceback.format_exception(kind, error, where))}"
        data = message.encode(errors="backslashreplace")
    except MemoryError:
        data = NO_MEMORY_LEFT
    path = sys.argv[sys.argv.index("--log") + 1] if "--log" in sys.argv[:-1] else ""
    with contextlib.suppress(OSError, MemoryError):
        os.write(2, data)  # standard error without its buffer, which needs memory
    with contextlib.suppress(OSError, MemoryError):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(log, data)
