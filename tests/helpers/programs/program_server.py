"""Fork Python programs from a process that has already imported large libraries. Tests use it through `prepared.py`.

    python program_server.py FOLDER FILE_DESCRIPTOR   the server, which waits for requests until its input ends

A request (`program_client.py`) is one message: what to run, and the file descriptors of standard input, output and error.
The answer is the number of the process, and its exit code when it has ended. Whoever ends the one that asks ends the
program. In a SLURM job, a program belongs to the job, and is on its node, as the one that asks is. All forks have
the same hashes of texts, so tests for which the order of a set may matter start a fresh Python.
"""

import contextlib
import functools
import gc
import marshal
import os
import select
import shutil
import signal
import socket
import sys
import weakref

import held

# All that take long, but for those that read the environment when they are imported (huggingface_hub, transformers,
# wandb), and those that some tests use in other versions (`environments.py`). No test sets a variable of matplotlib.
LIBRARIES = ["snakemake.cli", "snakemake.report.html_reporter", "snakemake_executor_plugin_slurm_jobstep", "smart_open"]
LIBRARIES += ["pydantic", "pyarrow.parquet", "tokenizers", "torch", "torch._dynamo", "torch.distributed.tensor"]
LIBRARIES += ["safetensors.torch", "matplotlib.figure", "httpx2", "rensa"]
# What transformers imports.
LIBRARIES += ["torch.distributed.checkpoint", "torch.distributed.fsdp"]
LIBRARIES += [f"scipy.{part}" for part in ("optimize", "sparse", "spatial")]
LIBRARIES += ["filelock", "jinja2.sandbox", "truststore", "anyio", "h11", "httpcore2", "PIL.Image", "regex"]
MOST_BYTES = 200_000  # of a request; mostly environment variables
HERE = os.path.dirname(os.path.abspath(__file__))


def join(asker: int) -> None:
    """Belong to the SLURM job of a process, be on its node (a UTS namespace), and bear its number as a name."""
    import ctypes
    import platform

    from program_client import freezer_of

    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/sys/fs/cgroup/freezer{freezer_of(asker)}/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
    with open(f"/proc/{asker}/ns/uts") as node:
        if libc.setns(node.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")
    platform._uname_cache = None  # pyright: ignore[reportAttributeAccessIssue]
    libc.prctl(15, f"for {asker}".encode())  # PR_SET_NAME


def serve(folder: str, listener: socket.socket) -> dict:
    """Serve until standard input ends. This returns in the programs alone, each with the request that it is for."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the guards
    while True:
        ready, _, _ = select.select([0, listener], [], [])
        if 0 in ready:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        prepare()
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            return guard(connection) | {"python": f"{folder}/python"}
        connection.close()


def guard(connection: socket.socket) -> dict:
    """Fork, and return the request in the fork. This process guards it: it ends with who asked, and with the server."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
    if not message:  # who asked was ended before
        os._exit(0)
    program = os.fork()
    if not program:
        connection.close()
        return marshal.loads(message) | {"descriptors": descriptors}
    for descriptor in descriptors:
        os.close(descriptor)
    ended = os.pidfd_open(program)
    with contextlib.suppress(OSError):  # who asked has been ended
        connection.send(str(program).encode())
    ready, _, _ = select.select([0, connection, ended], [], [])
    if ended not in ready:
        os.kill(program, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with contextlib.suppress(OSError):
        connection.send(str(code).encode())
    os._exit(0)


@functools.cache
def prepare() -> None:
    """Do once what programs would do when they import."""
    for library in LIBRARIES:
        __import__(library)
    for finalizer in weakref.finalize._registry:  # pyright: ignore[reportAttributeAccessIssue]
        finalizer.atexit = False  # no program takes the libraries apart at its end
    gc.freeze()


def become(request: dict) -> None:
    """Be the program that was asked for."""
    import random
    import runpy
    import tempfile
    import types

    import numpy

    for number, descriptor in enumerate(request["descriptors"]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    environment, cwd = request["environment"], request["cwd"]
    if request.get("session"):
        os.setsid()
    if "asker" in request:
        join(request["asker"])
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    tempfile.tempdir = None  # it is found anew, from this program's TMPDIR
    random.seed()
    numpy.random.seed()
    kind, *command = request["command"]
    folders = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    first = cwd if kind in ("-m", "-c") else os.path.dirname(os.path.abspath(kind))
    sys.path[:] = [first, *folders, *(path for path in sys.path if path and path != HERE)]
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.executable = request["python"]
    sys.argv[:] = command if kind == "-m" else [kind, *command[kind == "-c" :]]
    if held.VARIABLE in environment and sys.argv[0] == "babelmill.train":
        held.hold()
    try:
        if kind == "-m":
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        elif kind == "-c":
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(command[0], main.__dict__)
        else:
            runpy.run_path(kind, run_name="__main__")
    except BaseException as error:
        end(error)
    end(None)


def end(error: BaseException | None) -> None:
    """End as Python does, but leave the libraries as they are: to take them apart costs a third of a second."""
    import atexit
    import threading

    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if code is not error.code and error.code is not None:
            print(error.code, file=sys.stderr)
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
            stream.flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


if __name__ == "__main__":
    become(serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))))
