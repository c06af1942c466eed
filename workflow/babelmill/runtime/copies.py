"""Copy what the next attempt needs to the place of `run.checkpoints`, and fetch it where the job's disk is a new one.

A thread of the main process copies, so training does not wait. The weights of a checkpoint are copied before the small
file with their sha256, and the record, the logs and the snapshots before both. So half a copy does not count, and a
checkpoint that counts has all that belongs to it. If the place stops answering, training continues with its local
checkpoints; a line says so, and another one when the place answers again.

Nothing keeps two machines from training the same run. They compute the same numbers, so only time is lost.
"""

import logging
import math
import os
import re
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from babelmill.core.files import UserError, read_json, sha256
from babelmill.core.words import first_line

if TYPE_CHECKING:  # it imports torch, which Snakemake's process, a user of `check_package`, does without
    from babelmill.runtime.checkpoint import Checkpoints

log = logging.getLogger(__name__)

AGAIN, POLL = 10.0, 1.0  # seconds until a place that does not answer is asked again; at the end of a training
PATIENCE = 15.0  # seconds for which the end of a training waits for a silent place (< slurm.RESERVE)
STEP = re.compile(r"step-(\d{8})\.json")
PART, MOST_PARTS = 5 << 20, 10_000  # bytes that are sent at once, and the number of parts of a file: S3's limits
OTHERS = re.compile(r"(metrics\.jsonl|(attempt|identity)\.json|logs/[\w.-]+\.log)")
# A store that does not answer is asked again later, so one request need not wait for minutes.
TIMES = {"connect_timeout": 10, "read_timeout": 20, "retries": {"max_attempts": 1}}


def check_package(url: str) -> None:
    """Raise a UserError if a place needs a package that is not installed; the package is not imported."""
    if url.startswith("s3://") and find_spec("s3fs") is None:
        raise UserError(
            f"run.checkpoints: {url} needs the package s3fs, in the environment of all jobs:"
            " pip install 'babelmill[s3]'"
        )


class Copies:
    """The copies of a run's folder below `url`, the place of `run.checkpoints`.

    Attributes:
        seconds: how long it took to copy the last checkpoint.
    """

    def __init__(self, url: str, folder: Path, checkpoints: "Checkpoints"):
        """Prepare to copy the files of a run's folder, whose checkpoints are `checkpoints`; nothing is sent yet."""
        check_package(url)
        from fsspec.core import url_to_fs

        self._url, self._folder, self._checkpoints = f"{url}/{folder.name}", folder, checkpoints
        self._in_folder = url.startswith("file://")
        store: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True, "config_kwargs": TIMES}
        store["max_concurrency"] = 4  # parts at once: the end of a training sees whether some arrive
        for name in ("aiobotocore", "botocore"):  # they log where the keys were found
            logging.getLogger(name).setLevel(logging.WARNING)
        self._files, self._top = url_to_fs(url, **({"auto_mkdir": True} if self._in_folder else store))
        self._files.retries = 1  # of s3fs, which repeats what botocore has already repeated
        self._root = f"{self._top}/{folder.name}"
        self._copied: dict[str, tuple[int, int]] = {}  # {name: what tells this version of a file from others}
        self._due, self._last_try, self._error = threading.Event(), math.inf, ""
        self._moved = 0.0  # when the place last took something (time.monotonic)
        self.seconds = 0.0

    def fetch(self, done: int) -> int:
        """Fetch the newest intact checkpoint if it is newer than the step `done`, and what belongs to it.

        Returns:
            the step of the newest checkpoint that is in the folder now.

        Raises:
            UserError: the place does not answer.
        """
        try:
            if self._in_folder and not self._files.isdir(self._top):
                raise NotADirectoryError(f"there is no folder {self._top}; mount its file system, or create it")
            names = set(self._names())
            newer = sorted((step for step in self._steps(names) if step > done), reverse=True)
            newest = next((step for step in newer if self._fetch_checkpoint(step, names)), done)
            if newest > done or not (self._folder / "attempt.json").exists():
                for name in filter(OTHERS.fullmatch, names):
                    self._fetch(name)
            for name in names:
                if re.fullmatch(r"snapshots/.+\.json", name) and not (self._folder / name).exists():
                    self._fetch_snapshot(name)
        except Exception as error:  # each library has its own
            raise UserError(f"run.checkpoints: {self._url}: {first_line(error, type(error).__name__)}") from error
        if newest > done:
            log.info("fetched the checkpoint after step %s from %s", f"{newest:,}", self._url)
        return newest

    def start(self) -> None:
        """Begin to copy."""
        log.info("checkpoints are also kept in %s", self._url)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        self.update()

    def update(self) -> None:
        """Copy what is new, in the background."""
        self._due.set()

    def close(self) -> None:
        """Copy what is missing; wait as long as the place takes something."""
        self._move()
        self._last_try = self._moved + PATIENCE
        self.update()
        # A folder does not tell of parts, and one that does not answer stops this process anyway.
        while self._thread.is_alive() and (self._in_folder or time.monotonic() < self._moved + PATIENCE):
            self._thread.join(0.1)
        if self._error or self._thread.is_alive():
            only_here = self._url, self._folder, self._error or "it does not answer"
            log.warning("%s lacks the newest checkpoint, which is only in %s (%s)", *only_here)

    def _move(self, *_: object, **__: object) -> None:
        """Note that the place has taken a part of a file."""
        self._moved = time.monotonic()

    def _names(self) -> list[str]:
        """Return the names of all files there, such as `logs/1.log`."""
        return [path.removeprefix(f"{self._root}/") for path in self._files.find(self._root)]

    def _steps(self, names: set[str]) -> set[int]:
        return {int(match[1]) for name in names if (match := STEP.fullmatch(name))}

    def _fetch(self, name: str) -> Path:
        path = self._folder / name
        half = path.with_name(f".{path.name}.fetched")
        half.parent.mkdir(parents=True, exist_ok=True)
        self._files.get_file(f"{self._root}/{name}", str(half))
        os.replace(half, path)
        self._copied[name] = _stamp(path)
        return path

    def _fetch_checkpoint(self, step: int, names: set[str]) -> bool:
        """Fetch a checkpoint, and return whether it is intact. If it is not, a warning says so."""
        data = f"step-{step:08d}.safetensors"
        if data in names:
            self._fetch(data)
        self._fetch(f"step-{step:08d}.json")
        return self._checkpoints.newest() == step

    def _fetch_snapshot(self, name: str) -> None:
        """Fetch a snapshot, unless half of it was replaced there when a machine died."""
        data = self._fetch(name.replace(".json", ".safetensors"))
        seal = self._fetch(name)
        if read_json(seal).get("sha256") != sha256(data):
            log.warning("%s/%s is damaged: the snapshot is left out", self._url, name)
            seal.unlink()

    def _work(self) -> None:
        """Copy whenever something is due, and at last what is missing."""
        ended = False
        while not ended or (self._error and time.monotonic() < self._last_try):
            self._due.wait(None if not self._error else POLL if ended else AGAIN)
            self._due.clear()
            ended = self._last_try < math.inf
            before, self._error = self._error, ""
            try:
                self._copy()
            except Exception as error:  # each library has its own
                self._error = first_line(error, type(error).__name__)
                if not before:
                    log.warning(
                        "run.checkpoints: %s: %s; training continues with its checkpoints in %s, and copies them later",
                        *(self._url, self._error, self._folder),
                    )
            else:
                if before:
                    log.info("%s answers again", self._url)

    def _copy(self) -> None:
        began, steps = time.monotonic(), self._checkpoints.steps()
        here = sorted(path.relative_to(self._folder).as_posix() for path in self._folder.rglob("*"))
        snapshots = [name for name in here if re.fullmatch(r"snapshots/chck_.+\.json", name)]
        newest = [f"step-{step:08d}.json" for step in steps[-1:]]
        for name in filter(OTHERS.fullmatch, here):
            self._put(name)
        for seal in snapshots + newest:
            try:
                copied = self._put(seal.replace(".json", ".safetensors")) | self._put(seal)
            except FileNotFoundError:
                if (self._folder / seal).exists():
                    raise
                return  # training has replaced it, and asks for another copy
            if copied and seal in newest:
                self.seconds = time.monotonic() - began
                self._remove_old(steps)

    def _put(self, name: str) -> bool:
        """Copy a file, and return True, unless it was copied before. It appears as a whole or not at all."""
        path, there = self._folder / name, f"{self._root}/{name}"
        if self._copied.get(name) == (stamp := _stamp(path)):
            return False
        from fsspec.callbacks import Callback

        if self._in_folder:
            self._files.put_file(str(path), f"{there}.half")
            self._files.mv(f"{there}.half", there)
        else:
            part = max(PART, path.stat().st_size // MOST_PARTS + 1)
            self._files.put_file(str(path), there, chunksize=part, callback=Callback(hooks={"moved": self._move}))
        self._move()
        self._copied[name] = stamp
        return True

    def _remove_old(self, steps: list[int]) -> None:
        """Remove older checkpoints than the newest one that are not kept here either."""
        for step in self._steps(set(self._names())):
            if step < steps[-1] and step not in steps:
                for end in ("json", "safetensors"):  # without the .json, the checkpoint does not count
                    self._files.rm(f"{self._root}/step-{step:08d}.{end}")


def _stamp(path: Path) -> tuple[int, int]:
    """Return what changes when a file is written."""
    about = path.stat()
    return about.st_mtime_ns, about.st_size
