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
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from babelmill.core.files import UserError
from babelmill.core.words import first_line

if TYPE_CHECKING:  # it imports torch, which Snakemake's process, a user of `check_package`, does without
    from babelmill.runtime.checkpoint import Checkpoints

log = logging.getLogger(__name__)

STEP = re.compile(r"step-(\d{8})\.json")
BESIDES = re.compile(
    r"metrics\.jsonl|(attempt|identity)\.json|logs/[\w.-]+\.log|snapshots/chck_[^/]+\.(json|safetensors)"
)
# A store that does not answer is tried again later, so one request need not wait for minutes.
TIMES = {"connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 1}}
PATIENCE = 60.0  # seconds for which the end of a training waits for a place that takes nothing
PART, MOST_PARTS = 5 << 20, 10_000  # bytes that are sent in one request, and the number of parts of a file: S3's limits


def check_package(url: str) -> None:
    """Raise a UserError if a place needs a package that is not installed; the package is not imported."""
    if url.startswith("s3://") and find_spec("s3fs") is None:
        raise UserError(
            f"run.checkpoint_mirror: {url} needs the package s3fs, in the environment of all jobs:"
            " pip install 'babelmill[s3]'"
        )


class Copies:
    """The copies of a run's folder below `url`, the place of `run.checkpoint_mirror`.

    Attributes:
        seconds: the longest that it took to copy what was due.
    """

    def __init__(self, url: str, folder: Path, checkpoints: "Checkpoints"):
        """Prepare to copy the files of a run's folder, whose checkpoints are `checkpoints`; nothing is sent yet."""
        check_package(url)
        from fsspec.callbacks import Callback
        from fsspec.core import url_to_fs

        self._url, self._folder, self._checkpoints = f"{url}/{folder.name}", folder, checkpoints
        self._in_folder = url.startswith("file://")
        options: dict[str, Any] = {"auto_mkdir": True}
        if not self._in_folder:
            options = {"use_listings_cache": False, "config_kwargs": TIMES, "max_concurrency": 4}
        for name in ("aiobotocore", "botocore"):  # they log where the keys were found
            logging.getLogger(name).setLevel(logging.WARNING)
        self._files, self._top = url_to_fs(url, skip_instance_cache=True, **options)
        self._files.retries = 1  # of s3fs, which repeats what botocore has already repeated
        self._root = f"{self._top}/{folder.name}"
        self._moved = time.monotonic()  # when the place last took a part of a file
        self._parts = Callback(hooks={"moved": self._move})
        self._copied: dict[str, tuple[int, int]] = {}  # {name: what tells this version of a file from others}
        self._error, self.seconds = "", 0.0  # `_error`: of the last try
        self._due: queue.SimpleQueue[bool] = queue.SimpleQueue()  # whether to copy, or to end
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def fetch(self, done: int) -> int:
        """Fetch the newest intact checkpoint if it is newer than the step `done`, and what belongs to it.

        Returns:
            the step of the newest checkpoint that is in the folder now.

        Raises:
            UserError: the place does not answer.
        """
        from babelmill.runtime.checkpoint import is_intact  # imports torch

        try:
            if self._in_folder and not self._files.isdir(self._top):
                raise NotADirectoryError(f"there is no folder {self._top}; mount its file system, or create it")
            there = {path.removeprefix(f"{self._root}/") for path in self._files.find(self._root)}
            newer = sorted((step for step in steps_of(there) if step > done), reverse=True)
            begins = newer or not (self._folder / "attempt.json").exists()
            for name in besides(there):  # before the checkpoint, so that all is fetched again if this is killed
                seal = (self._folder / name).with_suffix(".json")
                is_snapshot = name.startswith("snapshots/")
                if (is_snapshot and not seal.exists()) or (begins and not is_snapshot):  # a snapshot that is here stays
                    self._fetch(name)
                    if is_snapshot and name.endswith(".json") and not is_intact(seal.with_suffix(".safetensors")):
                        log.warning("%s/%s is damaged: the snapshot is left out", self._url, name)
                        seal.unlink()
            for step in newer:
                for name in filter(there.__contains__, pair(step)):
                    self._fetch(name)
                if (done := self._checkpoints.newest()) == step:  # if it is damaged, a warning says so
                    log.info("fetched the checkpoint after step %s from %s", f"{step:,}", self._url)
                    break
        except Exception as error:  # each library has its own
            raise UserError(f"run.checkpoint_mirror: {self._url}: {first_line(error, type(error).__name__)}") from error
        return done

    def update(self) -> None:
        """Copy what is new, in the background."""
        self._due.put(True)

    def close(self) -> None:
        """Copy what is missing, and wait as long as the place takes something."""
        self._move()
        self.update()
        self._due.put(False)
        # A folder does not tell of parts, and one that does not answer stops this process anyway.
        while self._thread.is_alive() and (self._in_folder or time.monotonic() < self._moved + PATIENCE):
            self._thread.join(0.1)
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

    def _move(self, *_: object, **__: object) -> None:
        self._moved = time.monotonic()

    def _work(self) -> None:
        while self._due.get():
            began = time.monotonic()
            try:
                self._copy()
                self._error, self.seconds = "", max(self.seconds, time.monotonic() - began)
            except Exception as error:  # each library has its own
                before, self._error = self._error, first_line(error, type(error).__name__)
                if not before:
                    text = (
                        "run.checkpoint_mirror: %s: %s; training continues with its checkpoints in %s, and copies later"
                    )
                    log.warning(text, self._url, self._error, self._folder)

    def _copy(self) -> None:
        steps = self._checkpoints.steps()
        here = (path.relative_to(self._folder).as_posix() for path in self._folder.rglob("*"))
        for name in [*besides(here), *(name for step in steps[-1:] for name in pair(step))]:
            if not (self._folder / name).exists():
                return  # training has replaced this checkpoint, and asks for another copy
            self._put(name)
        for step in steps_of({Path(path).name for path in self._files.ls(self._root, detail=False)}) - {*steps}:
            if step < max(steps, default=0):
                for name in reversed(pair(step)):  # without its seal, the checkpoint does not count
                    self._files.rm(f"{self._root}/{name}")

    def _put(self, name: str) -> None:
        """Copy a file, unless it was copied before. It appears as a whole or not at all."""
        path, there = self._folder / name, f"{self._root}/{name}"
        now = stamp(path)
        if self._copied.get(name) == now:
            return
        if self._in_folder:
            self._files.put_file(str(path), f"{there}.half")
            self._files.mv(f"{there}.half", there)
        else:
            chunk = max(PART, path.stat().st_size // MOST_PARTS + 1)
            self._files.put_file(str(path), there, callback=self._parts, chunksize=chunk)
        self._copied[name] = now
        self._move()


def besides(names: Iterable[str]) -> list[str]:
    """Return the files among these that are kept besides checkpoints: seals after all weights, `attempt.json` last."""
    last = "attempt.json"
    return sorted(filter(BESIDES.fullmatch, names), key=lambda name: (name.endswith(".json"), name == last))


def pair(step: int) -> tuple[str, str]:
    """Return the names of a checkpoint's weights and of its seal."""
    return f"step-{step:08d}.safetensors", f"step-{step:08d}.json"


def steps_of(names: set[str]) -> set[int]:
    """Return the steps of the checkpoints among the names of files."""
    return {int(match[1]) for name in names if (match := STEP.fullmatch(name))}


def stamp(path: Path) -> tuple[int, int]:
    """Return what changes when a file is written."""
    about = path.stat()
    return about.st_mtime_ns, about.st_size
