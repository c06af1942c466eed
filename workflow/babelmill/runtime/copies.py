"""Copy what the next attempt needs to the place of `run.checkpoint_mirror`, and fetch it on a new disk.

One thread of the main process copies, so training does not wait. The record, the logs and the snapshots are copied
first, then the weights of the newest checkpoint, and last the small file with their sha256. So half a copy does not
count, and a checkpoint that counts has all that belongs to it. If the place stops answering, training continues with
its local checkpoints; a line says so. It is tried again with each checkpoint and at the end.

Nothing keeps two machines from training the same run. They compute the same numbers, so only time is lost.
"""

import logging
import os
import queue
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fsspec.callbacks import Callback
from fsspec.core import url_to_fs

from babelmill.core.files import UserError, copy_file, remove_leftovers
from babelmill.core.words import first_line
from babelmill.runtime.checkpoint import Checkpoints, is_intact, steps_of

log = logging.getLogger(__name__)

BESIDES = re.compile(
    r"metrics\.jsonl|(attempt|identity)\.json|logs/[\w.-]+\.log|snapshots/chck_[^/]+\.(json|safetensors)"
)
# A store that does not answer is tried again later, so one request need not wait for minutes.
TIMES = {"connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 1}}
PATIENCE = 60.0  # seconds for which the end of a training waits for a store that takes nothing
PART, MOST_PARTS = 5 << 20, 10_000  # bytes that are sent in one request, and the number of parts of a file: S3's limits


class Copies:
    """The copies of a run's folder below `url`, the place of `run.checkpoint_mirror`.

    Attributes:
        seconds: the longest that it took to copy what was due.
    """

    _files: Any  # a file system of fsspec

    def __init__(self, url: str, checkpoints: Checkpoints):
        """Prepare to copy the files of the run that has these checkpoints; nothing is fetched or sent yet."""
        self._place, self._checkpoints, self._folder = url, checkpoints, checkpoints.folder
        self._url = f"{url}/{self._folder.name}"
        self._in_folder = url.startswith("file://")
        self._sent = Callback()  # counts the bytes that a store has taken
        self._copied: dict[str, tuple[int, int]] = {}  # {name: time and size of the version that is there}
        self._error, self.seconds = "", 0.0  # `_error`: of the last try
        self._due: queue.SimpleQueue[bool] = queue.SimpleQueue()  # whether to copy, or to end
        self._thread = threading.Thread(target=self._work, daemon=True)

    def fetch(self, done: int) -> int:
        """Fetch the newest intact checkpoint if it is newer than the step `done`, and what belongs to it.

        Returns:
            the step of the newest checkpoint that is in the folder now.

        Raises:
            UserError: the place does not answer.
        """
        for name in ("aiobotocore", "botocore"):  # they log where the keys were found
            logging.getLogger(name).setLevel(logging.WARNING)
        options = {} if self._in_folder else {"config_kwargs": TIMES, "max_concurrency": 4}
        try:
            self._files, top = url_to_fs(self._place, skip_instance_cache=True, use_listings_cache=False, **options)
            self._files.retries = 1  # of s3fs, which repeats what botocore has already repeated
            self._root = f"{top}/{self._folder.name}"
            if self._in_folder and not self._files.isdir(top):
                raise NotADirectoryError(f"there is no folder {top}; mount its file system, or create it")
            if self._in_folder:
                remove_leftovers([Path(self._root)], deep=True)
            there = {path.removeprefix(f"{self._root}/") for path in self._files.find(self._root)}
            newer = [step for step in reversed(steps_of(there)) if step > done]
            begins = newer or not (self._folder / "attempt.json").exists()
            for name in besides(there):  # before the checkpoint, so that all is fetched again if this is killed
                data, seal = ((self._folder / name).with_suffix(end) for end in (".safetensors", ".json"))
                if not name.startswith("snapshots/"):
                    if begins:
                        self._fetch(name)
                elif not seal.exists():  # a snapshot that is here stays
                    self._fetch(name)
                    if seal.exists() and not is_intact(data):
                        log.warning("%s/%s is damaged: the snapshot is left out", self._url, name)
                        seal.unlink()
            for step in newer:
                for path in self._checkpoints.paths(step):
                    if path.name in there:
                        self._fetch(path.name)
                if (done := self._checkpoints.newest()) == step:  # if it is damaged, a warning says so
                    log.info("fetched the checkpoint after step %s from %s", f"{step:,}", self._url)
                    break
        except Exception as error:  # each library has its own
            raise UserError(f"run.checkpoint_mirror: {self._url}: {first_line(error, type(error).__name__)}") from error
        self._thread.start()
        return done

    def update(self) -> None:
        """Copy what is new, in the background."""
        self._due.put(True)

    def close(self) -> None:
        """Copy what is missing, and wait as long as the place takes something."""
        self.update()
        self._due.put(False)
        sent = -1
        # A folder does not tell of parts, and one that does not answer stops this process anyway.
        while self._thread.is_alive() and (self._in_folder or sent < self._sent.value):
            sent = self._sent.value
            self._thread.join(PATIENCE)
        if self._error or self._thread.is_alive():
            only_here = self._url, self._folder, self._error or "it does not answer"
            log.warning("%s lacks the newest checkpoint, which is only in %s (%s)", *only_here)

    def _fetch(self, name: str) -> None:
        path = self._folder / name
        half = path.with_name(f".{path.name}.fetched")
        half.parent.mkdir(parents=True, exist_ok=True)
        self._files.get_file(f"{self._root}/{name}", str(half))
        os.replace(half, path)
        self._copied[name] = stamp(path)

    def _work(self) -> None:
        while self._due.get():
            began = time.monotonic()
            try:
                self._copy()
                self._error, self.seconds = "", max(self.seconds, time.monotonic() - began)
            except Exception as error:  # each library has its own
                before, self._error = self._error, first_line(error, type(error).__name__)
                text = "run.checkpoint_mirror: %s: %s; training continues with its checkpoints in %s, and copies later"
                if not before:
                    log.warning(text, self._url, self._error, self._folder)

    def _copy(self) -> None:
        """Copy each file that is new, as a whole or not at all; then remove checkpoints that are too old there."""
        steps = self._checkpoints.steps()
        here = (path.relative_to(self._folder).as_posix() for path in self._folder.rglob("*"))
        newest = [path.name for step in steps[-1:] for path in self._checkpoints.paths(step)]
        for name in [*besides(here), *newest]:
            path, there = self._folder / name, f"{self._root}/{name}"
            if not path.exists():
                return  # training has replaced this checkpoint, and asks for another copy
            if self._copied.get(name) == (now := stamp(path)):
                continue
            if self._in_folder:
                copy_file(path, there)
            else:
                chunk = max(PART, now[1] // MOST_PARTS + 1)
                self._files.put_file(str(path), there, callback=self._sent, chunksize=chunk)
            self._copied[name] = now
        for step in steps_of(Path(path).name for path in self._files.ls(self._root, detail=False)):
            if step < max(steps, default=0) and step not in steps:
                for path in reversed(self._checkpoints.paths(step)):  # without its seal, the checkpoint does not count
                    self._files.rm(f"{self._root}/{path.name}")


def besides(names: Iterable[str]) -> list[str]:
    """Return the files among these that are kept besides checkpoints: seals after all weights, `attempt.json` last."""
    last = "attempt.json"
    return sorted(filter(BESIDES.fullmatch, names), key=lambda name: (name.endswith(".json"), name == last))


def stamp(path: Path) -> tuple[int, int]:
    """Return what changes when a file is written: its time, and its size."""
    about = path.stat()
    return about.st_mtime_ns, about.st_size
