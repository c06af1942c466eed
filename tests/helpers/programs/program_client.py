"""Have the server of `program_server.py` run Python programs.

    python program_client.py FOLDER -m MODULE ...   have the server of a folder run `python -m MODULE ...`

Each program that another one starts waits until this file is imported. So it imports only what Python has at hand when
it starts: the modules `socket`, `signal` and `json` take 25 ms.
"""

import _signal
import _socket
import marshal
import os
import sys

FORWARDED = [_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2]


def ask(folder: str, command: list[str], cwd: str, environment: dict[str, str], descriptors: list[int], **more):
    """Have the server of a folder run a program.

    Args:
        folder: of the server.
        command: the words after `python`: `-m` and a module, `-c` and code, or a file; and arguments.
        cwd: the folder that the program runs in.
        environment: all its environment variables.
        descriptors: of its standard input, output and error.
        more: `session`: whether it begins a session, as `start_new_session` of subprocess does; `asker`: the process
            whose SLURM job and node it shares.

    Returns:
        a connection that has the program's exit code when it has ended, negative if a signal ended it; and the number of
        its process.
    """
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    connection.connect(f"{folder}/socket")
    request = marshal.dumps({"command": command, "cwd": cwd, "environment": environment} | more)
    numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
    connection.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    return connection, int(connection.recv(100))


def stand_for(folder: str, arguments: list[str]) -> None:
    """Be `python arguments` for whoever started this process: forward its signals, end as the program does."""
    command = arguments[1:] if arguments[:1] == ["-u"] else arguments
    option = command[0].startswith("-") and command[0] not in ("-m", "-c")
    job = {"asker": os.getpid()} if "SLURM_JOB_ID" in os.environ else {}
    # In a job whose processes SLURM follows by their parents, not by a control group, they cannot be the server's.
    if option or (job and "slurm" not in freezer_of(os.getpid())):
        os.execv(sys.executable, [sys.executable, *arguments])
    if "TORCHELASTIC_RUN_ID" in os.environ:  # a training dies with its launcher (`runtime/processes.py`)
        import ctypes

        ctypes.CDLL(None).prctl(1, _signal.SIGKILL)
    _signal.pthread_sigmask(_signal.SIG_BLOCK, FORWARDED)  # until there is a process to forward them to
    connection, process = ask(folder, command, os.getcwd(), dict(os.environ), [0, 1, 2], **job)
    for number in FORWARDED:
        _signal.signal(number, lambda number, _: os.kill(process, number))
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, FORWARDED)
    code = int(connection.recv(100))
    if code < 0:
        if -code != _signal.SIGKILL:
            _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def freezer_of(process: int) -> str:
    """Return the control group by which SLURM follows the processes of a job; empty if it has none of that kind."""
    with open(f"/proc/{process}/cgroup") as file:
        return next((line.split(":", 2)[2].strip() for line in file if ":freezer:" in line), "")


if __name__ == "__main__":
    stand_for(sys.argv[1], sys.argv[2:])
