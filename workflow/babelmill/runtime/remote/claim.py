"""Allow only one writer of a run's copies elsewhere, by an object `owner.json` that only its owner can write again.

Each write names the version that it replaces, so of several processes that want the object only one gets it. The owner
writes it again every few seconds. Another process takes it over if the owner has given it back, or has died: its
process on the same machine has ended, or its heartbeat has stopped, which takes a minute to see. (A job that SLURM has
suspended has no heartbeat, and lives.) An owner whose claim was taken over, for instance while its machine slept,
notices that at its next write, and ends.
"""

import contextlib
import json
import logging
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from babelmill.core.files import UserError
from babelmill.runtime import run_lock
from babelmill.runtime.remote.places import Place

log = logging.getLogger(__name__)

OWNER = "owner.json"
OF_NO_OBJECT = f'"{32 * "0"}"'  # a version that no object has
TO_GIVE_BACK = 5.0  # seconds for which the end of a training waits for this


class TakenOver(UserError):
    """Another process owns the copies now."""


def boot() -> str:
    """Return the number of this machine's start: other machines may have the same name and the same processes."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


class Claim:
    """Claims a place for this process; a context manager. If another process owns it, a UserError names that one."""

    def __init__(self, place: Place):
        self._place, self._version = place, ""
        me = run_lock.this_process()
        self._owner: dict[str, Any] = me | {"claim": uuid.uuid4().hex}
        # Where the number of the start is not known (macOS), each process counts as one of another machine.
        self._owner["machine"] += f" {boot() or self._owner['claim']}"
        self._beats = 0
        self._writing = threading.Lock()
        self._end = threading.Event()
        self._lost: TakenOver | None = None
        self._given_back = False

    def __enter__(self) -> "Claim":
        while not self._write(self._replaced()):
            pass  # another process was faster
        for version, condition in ((None, "If-None-Match"), (OF_NO_OBJECT, "If-Match")):
            if self._place.swap(OWNER, self._content(ended=True), version) is not None:
                raise UserError(
                    f"{self._place.url}: this store ignores conditional writes ({condition}), so two trainings could"
                    " write there at once; use another store for run.checkpoints"
                )
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._end.set()
        giving_back = threading.Thread(target=self._give_back, daemon=True)
        giving_back.start()
        giving_back.join(TO_GIVE_BACK)

    def _give_back(self) -> None:
        with contextlib.suppress(Exception):  # the store does not answer: the next owner waits a minute
            self.renew(ended=True)

    def _lives(self, owner: dict[str, Any]) -> bool | None:
        """Return whether an owner lives; None: only its heartbeat can tell."""
        if owner["ended"]:
            return False
        lives = run_lock.lives(owner, self._owner)
        # SLURM may mean another job: other clusters may have the same name, or none, and the same numbers of jobs.
        return lives if lives or owner["machine"] == self._owner["machine"] else None

    def _replaced(self) -> str | None:
        """Return the version of the object that this process may replace; None if there is none.

        Raises:
            UserError: its owner lives.
        """
        watched, end = "", 0.0
        while True:
            found = self._place.read(OWNER)
            if found is None:
                return None
            owner, version = json.loads(found[0]), found[1]
            lives = self._lives(owner)
            if lives is None and not watched:
                watched, end = version, time.monotonic() + run_lock.DEAD_AFTER
                log.info(
                    "%s belongs to %s: waiting up to %d s to see whether that one still runs",
                    *(self._place.url, run_lock.describe(owner), run_lock.DEAD_AFTER),
                )
            if lives or (lives is None and version != watched):
                who = run_lock.describe(owner)
                raise UserError(
                    f"{self._place.url}: another training run is writing here: {who}; wait for it, or end it"
                )
            if lives is False or time.monotonic() > end:
                return version
            time.sleep(run_lock.BEAT / 4)

    def _content(self, ended: bool = False) -> bytes:
        return json.dumps(self._owner | {"beats": self._beats, "ended": ended}).encode()

    def _write(self, version: str | None, ended: bool = False) -> bool:
        """Write the object if it has this version. Return whether it is ours now."""
        self._beats += 1
        content = self._content(ended)
        written = self._place.swap(OWNER, content, version)
        # If the answer to a write is lost, the library writes again, and the second write fails.
        if written is None and (found := self._place.read(OWNER)) and found[0] == content:
            written = found[1]
        self._version = written or self._version
        return written is not None

    def renew(self, ended: bool = False) -> None:
        """Make sure that the place is still ours, by writing the object again; `ended`: give the place back.

        Raises:
            TakenOver: it is not.
        """
        with self._writing:
            self.check()
            if self._given_back or self._write(self._version, ended):
                self._given_back = self._given_back or ended
                return
            found = self._place.read(OWNER)
            who = run_lock.describe(json.loads(found[0]) if found else None)
            self._lost = TakenOver(f"{self._place.url}: taken over by {who}; this process ends")
            raise self._lost

    def check(self) -> None:
        """Raise a TakenOver error if the place is known to belong to another process."""
        if self._lost:
            raise self._lost

    def _beat(self) -> None:
        while not self._end.wait(run_lock.BEAT):
            with contextlib.suppress(Exception):  # `check` tells of a lost claim; a store may answer again
                self.renew()
