"""The launcher: what its processes are told, how they end, and what it makes of that."""

import os
import signal
import sys

import pytest

from babelmill.core.files import UserError
from babelmill.runtime import launch as module
from helpers.programs.prepared import Program

pytestmark = pytest.mark.slow

LAUNCH = """
import sys
from babelmill.runtime import launch
sys.exit(launch.launch(sys.argv[1:], 2, 1, 2))
"""


class Launcher(Program):
    """A launcher of two processes that run this code, in interpreters of their own."""

    code = LAUNCH

    def __init__(self, child: str):
        output, ours = os.pipe()
        command = [sys.executable, "-c", "import os, signal, sys, time\n" + child]
        super().__init__("-c", self.code, *command, outputs=[ours, 2])
        os.close(ours)
        self.stdout = open(output)  # noqa: SIM115

    def outcome(self) -> tuple[int, str]:
        """Its exit code, and what was said until nobody had its output any more."""
        with self.stdout:
            output = self.stdout.read()
        return self.wait(), output


@pytest.mark.parametrize(
    ("end", "code"), [("sys.exit(3)", 3), ("sys.exit(75)", 75), ("os.kill(os.getpid(), signal.SIGKILL)", 1)]
)
def test_the_first_that_fails_ends_the_others_and_gives_the_exit_code(end, code):
    assert Launcher(f"{end} if os.environ['RANK'] == '1' else time.sleep(10_000)").outcome()[0] == code


def test_the_others_have_their_time_to_save_and_no_more(monkeypatch):
    """PyTorch's agent would wait for 30 s: too short for a large checkpoint."""
    assert module.SAVING_SECONDS >= 300
    monkeypatch.setattr(Launcher, "code", LAUNCH.replace("sys.exit(", "launch.SAVING_SECONDS = 3; sys.exit("))
    fails = "if os.environ['RANK'] == '1': sys.exit(3)\n"
    saves = "signal.signal(signal.SIGTERM, lambda *_: [print('saves', flush=True) or time.sleep(1) for _ in range(99)])"
    code, output = Launcher(f"{saves}\n{fails}time.sleep(600)").outcome()
    assert code == 3 and 2 <= output.count("saves") < 10


LISTENS = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\nprint('ready', flush=True); time.sleep(600)"
IS_NOT_READY = "print('ready', flush=True); time.sleep(600)"
DIES_LEAVING = LISTENS.replace("sys.exit(75)", "os.kill(os.getpid(), signal.SIGKILL)")


# Rank 1 is ended before it can handle the signal, and so rank 0 loses contact with it.
LOSES_CONTACT = "if os.environ['RANK'] == '0': signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))\n" + IS_NOT_READY


def both_are_ready(process: Launcher) -> bool:
    """Read what two processes write, perhaps at the same time: each a word and the end of the line."""
    output = process.stdout.readline() + process.stdout.readline()
    return output in ("ready\nready\n", "readyready\n\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize(("child", "code"), [(LISTENS, 75), (IS_NOT_READY, 75), (DIES_LEAVING, 1), (LOSES_CONTACT, 75)])
def test_a_signal_is_handed_on(number, child, code):
    process = Launcher(child)
    assert both_are_ready(process)
    process.send_signal(number)
    assert process.outcome()[0] == code


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not do that")
def test_they_die_with_their_launcher():
    joins = "from babelmill.runtime.processes import Processes; Processes.start(1)\n"
    process = Launcher(joins + IS_NOT_READY)
    assert both_are_ready(process)
    process.kill()
    process.outcome()  # ends when the last of them has closed its output


def test_machines_that_do_not_meet(monkeypatch, free_port):
    monkeypatch.setattr(module, "ask_children_to_leave", list)
    monkeypatch.setattr(module, "MEETING_SECONDS", 5)
    monkeypatch.setattr(module.slurm, "meeting_point", lambda: f"localhost:{free_port}")
    message = rf"^the 2 nodes did not meet at localhost:{free_port} \(.*1/2 clients joined"
    with pytest.raises(UserError, match=message):
        module.launch(["true"], 1, 2, 1)
