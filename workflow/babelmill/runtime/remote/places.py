"""Read and write the copies of a run's files in an object store (`s3://bucket/prefix`) or a folder (`file:///path`).

Both kinds of places offer the same few operations. A file appears there as a whole or not at all, and `swap` writes a
file only if it still is what the caller has read: object stores have no locks and cannot rename, but they have this
(`If-None-Match`, `If-Match`). Each method raises what its library raises if the place does not answer.
"""

import contextlib
import hashlib
import logging
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from babelmill.core.files import UserError, atomic_write, copy_file, lock, remove_leftovers

PART, MOST_PARTS = 5 << 20, 10_000  # bytes that are sent at once, and the number of parts of a file: S3's limits
FLUSHED = 64 << 20  # bytes of a file after which it is flushed to the disk
NOT_SWAPPED = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")
# A store that does not answer is asked again later, so one request need not wait for minutes.
PATIENCE = {"connect_timeout": 10, "read_timeout": 20, "retries": {"max_attempts": 1}}


class Bucket:
    """The copies of a run in an object store. Keys and the address of the store are in the environment (`AWS_*`)."""

    def __init__(self, url: str):
        """Prepare to use the objects below `s3://bucket/prefix`; nothing is sent yet."""
        check_package(url)
        import s3fs

        for name in ("aiobotocore", "botocore"):  # they log where the keys were found
            logging.getLogger(name).setLevel(logging.WARNING)
        self.url = url
        self._root = url.removeprefix("s3://")
        self._store: Any = s3fs.S3FileSystem(
            use_listings_cache=False, skip_instance_cache=True, config_kwargs=PATIENCE, max_concurrency=4
        )
        self._store.retries = 1  # of s3fs, which repeats what botocore has already repeated

    def _key(self, name: str) -> str:
        return f"{self._root}/{name}"

    def names(self) -> list[str]:
        """Return the names of all files, such as `logs/1.log`."""
        return [path.removeprefix(f"{self._root}/") for path in self._store.find(self._root)]

    def read(self, name: str) -> tuple[bytes, str] | None:
        """Return the content and the version of a file; None if there is none.

        Someone may write the file in between. Then the version is the older one, so that a `swap` from it fails.
        """
        try:
            version = self._store.info(self._key(name))["ETag"]
            return self._store.cat_file(self._key(name)), version
        except FileNotFoundError:
            return None

    def swap(self, name: str, content: bytes, version: str | None) -> str | None:
        """Write a file if it still has this version (None: if it does not exist). Return the new version, else None."""
        bucket, _, key = self._key(name).partition("/")
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        try:
            return self._store.call_s3("put_object", Bucket=bucket, Key=key, Body=content, **condition)["ETag"]
        except OSError as error:
            if getattr(error.__cause__, "response", {}).get("Error", {}).get("Code") in NOT_SWAPPED:
                return None
            raise

    def write(self, name: str, content: bytes) -> None:
        """Write a small file."""
        self._store.pipe_file(self._key(name), content)

    def upload(self, path: Path, name: str, moved: Callable[[], None]) -> None:
        """Write a large file from the local file at `path`; call `moved` again and again while it goes on."""
        from fsspec.callbacks import Callback

        callback = Callback(hooks={"moved": lambda *_, **__: moved()})
        part = max(PART, path.stat().st_size // MOST_PARTS + 1)
        self._store.put_file(str(path), self._key(name), chunksize=part, callback=callback)

    def remove_parts(self) -> None:
        """Remove the parts of uploads that killed processes have left: they cost money, and no listing shows them.

        Some stores do not tell of them, or do not allow it: then the bucket's own rule has to remove them.
        """
        bucket, _, prefix = self._key("").partition("/")
        with contextlib.suppress(Exception):
            found = self._store.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix)
            for upload in found.get("Uploads", []):
                which = {"Key": upload["Key"], "UploadId": upload["UploadId"]}
                self._store.call_s3("abort_multipart_upload", Bucket=bucket, **which)

    def download(self, name: str, path: Path) -> None:
        """Write a file to `path`."""
        self._store.get_file(self._key(name), str(path))

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        bucket, _, key = self._key(name).partition("/")
        self._store.call_s3("delete_object", Bucket=bucket, Key=key)


class Folder:
    """The copies of a run in a folder, such as one of a file system that outlives the machine; see `Bucket`."""

    def __init__(self, url: str, below: str):
        """Prepare to use the files in `below`, a path in the folder of `url`, which must exist."""
        self.url = f"{url}/{below}"
        self._top = Path(url.removeprefix("file://"))
        self._root = self._top / below

    def _path(self, name: str) -> Path:
        if not self._top.is_dir():
            raise NotADirectoryError(f"there is no folder {self._top}; mount its file system, or create it")
        return self._root / name

    def names(self) -> list[str]:
        """Return the names of all files."""
        files = (path for path in self._path("").rglob("[!.]*") if path.is_file())
        return [path.relative_to(self._root).as_posix() for path in files]

    def read(self, name: str) -> tuple[bytes, str] | None:
        """Return the content and the version of a file; None if there is none."""
        try:
            content = self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        return content, hashlib.sha256(content).hexdigest()

    def swap(self, name: str, content: bytes, version: str | None) -> str | None:
        """Write a file if it still has this version (None: if it does not exist). Return the new version, else None."""
        guard = self._path(f".{name}.guard")
        guard.parent.mkdir(parents=True, exist_ok=True)
        with open(guard, "a") as file:
            lock(file)
            found = self.read(name)
            if (found and found[1]) != version:
                return None
            self.write(name, content)
        return hashlib.sha256(content).hexdigest()

    def write(self, name: str, content: bytes) -> None:
        """Write a small file."""
        with atomic_write(self._path(name)) as file:
            file.write(content)

    def upload(self, path: Path, name: str, moved: Callable[[], None]) -> None:
        """Write a large file from the local file at `path`; call `moved` again and again while it goes on."""
        with open(path, "rb") as read, atomic_write(self._path(name)) as write:
            while block := read.read(FLUSHED):
                write.write(block)
                write.flush()
                os.fsync(write.fileno())  # else all of the time passes at the end
                moved()

    def remove_parts(self) -> None:
        """Remove what killed processes have left half-written."""
        remove_leftovers([self._root], deep=True)

    def download(self, name: str, path: Path) -> None:
        """Write a file to `path`."""
        copy_file(self._path(name), path)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        self._path(name).unlink(missing_ok=True)


Place = Bucket | Folder


def check_package(url: str) -> None:
    """Raise a UserError if a place needs a package that is not installed; the package is not imported."""
    if url.startswith("s3://") and find_spec("s3fs") is None:
        raise UserError(
            f"run.checkpoints: {url} needs the package s3fs, in the environment of all jobs:"
            " pip install 'babelmill[s3]'"
        )


def place_of(url: str, below: str) -> Place:
    """Return the place for a run's copies: `below`, such as `eng/2f61c0de8a91b7d3`, in the place of `run.checkpoints`.

    Raises:
        UserError: a package is missing.
    """
    url = url.rstrip("/")
    return Bucket(f"{url}/{below}") if url.startswith("s3://") else Folder(url, below)
