"""Copy what the next attempt needs to the place of `run.checkpoints`, and fetch it where the job's disk is a new one.

A thread of the main process copies, so training does not wait. The weights of a checkpoint are copied before the small
file with their sha256, and the record, the logs and the snapshots before both. So half a copy does not count, and a
checkpoint that counts has all that belongs to it. The name of the weights there has their sha256, too: a process that
has lost the place without knowing it cannot overwrite those of its successor. If the place stops answering, training
continues with its local checkpoints; a line says so, and another one when the place answers again.
"""

import contextlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from babelmill.core.files import UserError, sha256
from babelmill.core.words import first_line
from babelmill.runtime.checkpoint import NAME, Checkpoints
from babelmill.runtime.record import ATTEMPT
from babelmill.runtime.remote.claim import Claim, TakenOver
from babelmill.runtime.remote.places import place_of

log = logging.getLogger(__name__)

POLL = 1.0  # seconds between two looks at the run's folder
AGAIN = 10.0  # seconds until a place that does not answer is asked again
PATIENCE = 15.0  # seconds for which the end of a training waits for a place that does not answer (< slurm.RESERVE)
WEIGHTS = re.compile(r"(step-\d{8}|snapshots/chck_[\w.]+)\.(json|safetensors)")
OTHERS = re.compile(r"(metrics\.jsonl|(attempt|identity|words)\.json|logs/[\w.-]+\.log)")


class Copies:
    """The copies of a run's folder. As a context manager, it claims their place, and at the end copies what is missing.

    Attributes:
        seconds: how long it took to copy the last checkpoint.
    """

    def __init__(self, url: str, folder: Path, keep: int):
        """Prepare to copy a run's `folder`, results/checkpoints/{label}-{key}, to a place below `url`.

        keep: the number of checkpoints to keep there.
        """
        self.url, self._folder, self._keep = url, folder, keep
        self._checkpoints = Checkpoints(folder, keep)
        self._opened = contextlib.ExitStack()
        self._end, self._given_up = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._copied: dict[str, object] = {}  # {name: what tells this version of the file from others}
        self._damaged: set[str] = set()  # weights there that could not be used
        self._step = -1  # the newest step when files were last copied
        self._error = ""  # what the place says while it does not answer
        self._moved = 0.0  # when something was last copied (time.monotonic)
        self.seconds = 0.0

    def __enter__(self) -> "Copies":
        self._place = place_of(self.url, self._folder.name)
        with self._answering():
            self._claim = self._opened.enter_context(Claim(self._place))
            self._place.remove_parts()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._end.set()
        if self._thread:
            self._move()
            while self._thread.is_alive() and time.monotonic() < self._moved + PATIENCE:
                self._thread.join(0.1)
            self._given_up.set()
            if self._thread.is_alive() or self._error:
                error = self._error or "it does not answer"
                log.warning("%s lacks the newest checkpoint, which is only in %s (%s)", self.url, self._folder, error)
        self._opened.close()

    def _move(self) -> None:
        self._moved = time.monotonic()

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Turn any error of a place that does not answer, or refuses, into one line."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # each library has its own
            self._opened.close()
            raise UserError(f"run.checkpoints: {self._place.url}: {first_line(error, type(error).__name__)}") from error

    def check(self) -> None:
        """Raise a UserError if another process has taken the place over."""
        self._claim.check()

    def fetch(self, done: int) -> int:
        """Fetch the newest intact checkpoint if it is newer than the step `done`, and what belongs to it.

        Returns:
            the step of the newest checkpoint that is in the folder now.

        Raises:
            UserError: the place does not answer.
        """
        with self._answering():
            names = set(self._place.names())
            steps = sorted((int(match[1]) for name in names if (match := NAME.fullmatch(name))), reverse=True)
            newest = next((step for step in steps if step > done and self._fetch_weights(f"step-{step:08d}")), done)
            if newest > done or not (self._folder / ATTEMPT).exists():
                for name in sorted(filter(OTHERS.fullmatch, names)):
                    self._fetch_file(name)
            for name in sorted(filter(WEIGHTS.fullmatch, names)):
                if name.startswith("snapshots/") and name.endswith(".json") and not (self._folder / name).exists():
                    self._fetch_weights(name.removesuffix(".json"))
        if newest > done:
            log.info("fetched the checkpoint after step %s from %s", f"{newest:,}", self._place.url)
        return newest

    def _fetch_file(self, name: str, there: str = "", digest: str = "") -> bool:
        """Fetch a file; return False, and leave it out, if it does not have this sha256. `there`: its other name."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f".{path.name}.fetched")
        try:
            self._place.download(there or name, half)
            if digest and sha256(half) != digest:
                return False
            os.replace(half, path)
        finally:
            half.unlink(missing_ok=True)
        return True

    def _fetch_weights(self, stem: str) -> bool:
        """Fetch weights, and last the file that makes them valid. Return whether they are intact."""
        error = ""
        for _ in range(2):  # a copy that is good may be read badly
            error = "its sha256 differs from the one in its .json file"
            try:
                content, _ = self._place.read(f"{stem}.json") or (b"", "")
                digest = json.loads(content)["sha256"]
                if self._fetch_file(f"{stem}.safetensors", _name_there(stem, content), digest):
                    return self._fetch_file(f"{stem}.json")
            except (FileNotFoundError, ValueError, KeyError, TypeError) as raised:
                error = first_line(raised, type(raised).__name__)
        log.warning("%s/%s cannot be used, also when read again (%s); it stays there", self._place.url, stem, error)
        self._damaged.add(stem)
        return False

    def start(self) -> None:
        """Begin to copy."""
        log.info("checkpoints are also kept in %s", self._place.url)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        """Copy whenever there is a new checkpoint, and all that is new at the end."""
        while not self._end.wait(AGAIN if self._error else POLL):
            self._try()
        last = time.monotonic() + PATIENCE
        while not self._try() and time.monotonic() < last and not self._given_up.wait(POLL):
            pass

    def _try(self) -> bool:
        """Copy, and return whether this is done."""
        try:
            self._copy()
        except TakenOver:
            self._error = ""  # `check` tells the training
            return True
        except Exception as raised:  # each library has its own
            before, self._error = self._error, first_line(raised, type(raised).__name__)
            if not before:
                log.warning(
                    "run.checkpoints: %s: %s; training continues, with its checkpoints in %s, and copies them later",
                    *(self._place.url, self._error, self._folder),
                )
            return False
        if self._error:
            log.info("run.checkpoints: %s answers again", self._place.url)
        self._error = ""
        return True

    def _copy(self) -> None:
        """Copy what is new, if there is a new checkpoint or the training ends."""
        step = max(self._checkpoints.steps(), default=0)  # before the record is read, which then has the step's lines
        if step == self._step and not self._end.is_set():
            return
        self._claim.renew()
        for path in [*self._folder.glob("*"), *self._folder.glob("logs/*")]:
            name = path.relative_to(self._folder).as_posix()
            if OTHERS.fullmatch(name) and self._copied.get(name) != (stamp := _stamp(path)):
                self._place.write(name, path.read_bytes())
                self._copied[name] = stamp
                self._move()
        for seal in sorted(self._folder.glob("snapshots/chck_*.json")):
            self._copy_weights(f"snapshots/{seal.stem}")
        if step:
            if not self._copy_weights(f"step-{step:08d}"):
                return  # there is a newer one already
            self._remove_old()
        self._step = step

    def _copy_weights(self, stem: str) -> bool:
        """Copy weights, and last the file that makes them valid. Return False if training has removed them."""
        seal, data = f"{stem}.json", self._folder / f"{stem}.safetensors"
        try:
            content = (self._folder / seal).read_bytes()
            if self._copied.get(stem) == content:
                return True
            there = self._place.read(seal)
            if there is None or there[0] != content or stem in self._damaged:
                began = time.monotonic()
                self._place.upload(data, _name_there(stem, content), self._move)
                self._claim.renew()
                self._place.write(seal, content)
                self._move()
                self._damaged.discard(stem)
                if stem.startswith("step-"):
                    self.seconds = time.monotonic() - began
        except FileNotFoundError:
            if data.exists():
                raise
            return False
        self._copied[stem] = content
        return True

    def _remove_old(self) -> None:
        """Remove checkpoints beyond the number to keep, and weights that a killed process has copied in part."""
        names = sorted(name for name in self._place.names() if name.startswith("step-"))
        names = [name for name in names if name.partition(".")[0] not in self._damaged]  # another machine may read them
        kept = sorted(name.removesuffix(".json") for name in names if NAME.fullmatch(name))[-self._keep :]
        for name in names:  # of each checkpoint, the .json comes first: it is no longer valid then
            if name.partition(".")[0] not in kept:
                self._place.remove(name)


def _name_there(stem: str, seal: bytes) -> str:
    """Return the name of weights there; `seal`: the content of the small file that belongs to them."""
    return f"{stem}.{json.loads(seal)['sha256'][:16]}.safetensors"


def _stamp(path: Path) -> tuple[int, int]:
    """Return what changes when a file is written."""
    about = path.stat()
    return about.st_mtime_ns, about.st_size
