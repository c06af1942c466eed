"""Have a training wait at a known moment, so that it does not end before a test on a busy machine does something to it.

The environment variable of this module says when:

    vote 13     at the end of step 13, which is not in the record yet, before it decides whether to leave
    vote +13    the same in the 13th step that the process trains
    save +2     in the middle of the second checkpoint that the process writes

It goes on when a signal asks it to leave, or where there is the file `go` in its folder, or one beside its settings file,
with its name and `.go`. All forks of the server of programs obey the variable; for a Python of its own, `START` does that.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

VARIABLE = "BABELMILL_TEST_HOLD"
START = "import sys; sys.argv[0] = '-m'; from helpers.programs import held; held.hold(); "  # of such code


def hold() -> None:
    """Have the training that this process will run wait where the variable says so."""
    what, when = os.environ[VARIABLE].split()
    {"vote": hold_votes, "save": hold_save}[what](waiter(when))


def waiter(when: str) -> Callable[[int], None]:
    """Return a function to be called with each step; it waits in the right one."""
    from babelmill.runtime.slurm import Stop

    settings = [Path(f"{word}.go") for word in sys.argv if word.endswith(".json")]
    go, signals, steps = [path.absolute() for path in (Path("go"), *settings)], [], itertools.count(1)
    received = Stop._received

    def note(self, number, frame) -> None:
        signals.append(number)
        received(self, number, frame)

    def wait(step: int) -> None:
        mine = next(steps) if when.startswith("+") else step
        while mine == int(when) and not signals and not any(path.exists() for path in go):
            time.sleep(0.01)

    Stop._received = note
    return wait


def hold_votes(wait: Callable[[int], None]) -> None:
    """Wait before a vote at the end of a step."""
    from babelmill.training.loop import Loop

    decide = Loop._decide

    def held(self, done):
        wait(done)
        decide(self, done)

    Loop._decide = held


def hold_save(wait: Callable[[int], None]) -> None:
    """Wait while a checkpoint is written."""
    from babelmill.runtime.checkpoint import Checkpoints

    save = Checkpoints.save

    def held(self, step, tensors, state, load) -> None:
        middle = list(tensors)[len(tensors) // 2]

        def slowly(name):
            if name == middle:
                wait(step)
            return load(name)

        save(self, step, tensors, state, slowly)

    Checkpoints.save = held
