"""Make once what several models share: a stage first looks whether another model has the same result.

Two models that differ in their seed or their learning rate have the same tokenizer and the same shards, and a model
that was renamed has all its results. Results are the same if they were asked for with the same settings and code, and
made from the same files; their names do not count (`manifest.key_of`). What is found gets a manifest of its own.

* A folder that is an output as a whole gets hard links to the files.
* Elsewhere, small files are copied. Large ones move to `results/store/{stage}/{sha256}`, and both models have symbolic
  links to them: Snakemake compares the times of the links, so each model has its own. `babelmill clean` lists the files
  there that no model uses.

Where the file system has no links, files are copied.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from babelmill.core import manifest
from babelmill.core.files import UserError, atomic_folder, copy_file, link_or_copy, lock, sha256
from babelmill.stages import STAGES

STORE = Path("results/store")
LARGE = 1_000_000  # bytes from which a file is shared, and not copied
OLD = 1_000_000_000  # the time of shared files, in seconds: older than any result, so that only the links' times count
TAKEN = "taken_from"  # the figure that names the folder from which a result was taken

log = logging.getLogger("babelmill")


@contextlib.contextmanager
def made_once(
    out: Path,
    asked: manifest.StageSettings,
    upstream: Iterable[Path],
    wait: bool = False,
    fits: Callable[[Path, dict[str, Any]], bool] | None = None,
    own_figures: dict[str, Any] | None = None,
) -> Iterator[Path | None]:
    """Yield the folder from which the result of a stage was taken; None if no model has it, and the block makes it.

    Args:
        out: the folder of the result.
        asked: the settings of the stage.
        upstream: the folders that the stage reads, as it gives them to `manifest.write`.
        wait: whether to wait for another process that makes the same, instead of making it twice.
        fits: whether the result in a folder with a manifest may be taken, besides being the same.
        own_figures: figures of the manifest that are not those of the other model.
    """
    upstream = [*upstream]
    if not _is_in_tree(out, asked.stage):
        yield None
        return
    key = manifest.key_of(asked.stage, asked.raw, upstream)
    with contextlib.ExitStack() as stack:
        if wait:
            stack.enter_context(_alone(asked.stage, key))
        for folder in _others(out, asked.stage):
            # A damaged manifest, for instance; or a job of the other model is just removing it.
            with contextlib.suppress(UserError, OSError):
                about = manifest.read(folder)
                if about["key"] != key or manifest.missing(folder) or (fits and not fits(folder, about)):
                    continue
                log.info("%s is the same: linking its files", folder)
                _take(folder, about, out, asked, upstream, own_figures or {})
                break
        else:
            folder = None
        yield folder


@contextlib.contextmanager
def _alone(stage: str, key: str) -> Iterator[None]:
    """Wait until no other process makes the same result. (Few files: what shares two digits of its key waits, too.)"""
    path = STORE / "locks" / f"{stage}.{key[:2]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        if not lock(file, wait=False):
            log.info("waiting for another process, which makes the same for another model")
            lock(file)
        yield


def _is_in_tree(out: Path, stage: str) -> bool:
    """Return whether a folder is that of the workflow for a stage, and not one of a user who runs the stage by hand."""
    form = Path(STAGES[stage].folder).parts
    return len(out.parts) == len(form) and all(a == b or b[0] == "{" for a, b in zip(out.parts, form, strict=True))


def _others(out: Path, stage: str) -> list[Path]:
    """Return the folders of all other results of a stage."""
    levels = len(STAGES[stage].wildcards)
    root = out.parents[levels - 1]
    found = [path.parent for path in root.glob("/".join(["*"] * levels + [manifest.NAME]))]
    return sorted(path for path in found if path != out)


def _take(
    folder: Path,
    about: dict[str, Any],
    out: Path,
    asked: manifest.StageSettings,
    upstream: list[Path],
    own_figures: dict[str, Any],
) -> None:
    """Give `out` the files of another result, and a manifest of its own, which is written last.

    Raises:
        UserError: a job has changed the other result meanwhile.
    """
    figures = about["figures"] | own_figures | {TAKEN: folder.as_posix()}
    as_a_whole = STAGES[asked.stage].gives_folder
    with atomic_folder(out) if as_a_whole else contextlib.nullcontext(out) as target:
        _link(folder, target, about, None if as_a_whole else STORE / asked.stage)
        if manifest.read(folder) != about or manifest.missing(folder):
            raise UserError(f"{folder}: changed while its files were linked")
        manifest.write(target, asked, about["files"], upstream, figures, entries=about["files"], also=about["modules"])


def _link(folder: Path, out: Path, about: dict[str, Any], store: Path | None) -> None:
    """Give `out` the files of a result, and of manifests below it; `store`: the place for large files."""
    for name, entry in about["files"].items():
        source, target = folder / name, out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if store is None:
            link_or_copy(source, target)
        elif entry["bytes"] < LARGE or not _share(source, target, store / entry["sha256"]):
            copy_file(source, target)
        if target.stat().st_size != entry["bytes"]:
            raise UserError(f"{source}: changed while it was linked")
        if target.name == manifest.NAME:
            _link(source.parent, target.parent, manifest.read(source.parent), store)


def _share(source: Path, target: Path, stored: Path) -> bool:
    """Move a file to the store and make links to it. Return whether the file system and its owner allow that.

    `stored`: its place in the store, whose name is the sha256 of the file.
    """
    try:
        if not source.is_symlink():
            moment = source.stat().st_mtime_ns
            stored.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.link(source, stored)
            if sha256(stored) != stored.name or (not stored.samefile(source) and sha256(source) != stored.name):
                return False  # one of them is damaged: the next stage finds out which
            _symlink(stored, source)
            os.utime(source, ns=(moment, moment), follow_symlinks=False)
            os.utime(stored, (OLD, OLD))
        _symlink(source.resolve(strict=True), target)
    except OSError:
        return False
    return True


def _symlink(file: Path, link: Path) -> None:
    """Put a relative symbolic link to a file in the place of `link`, atomically."""
    temporary = link.with_name(f".{link.name}.symlink_.tmp")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    temporary.symlink_to(os.path.relpath(file.resolve(), link.parent.resolve()))
    os.replace(temporary, link)


def files() -> Iterator[tuple[Path, list[Path]]]:
    """Yield each file of the store, and the links that lead to it."""
    if not STORE.is_dir():
        return
    links: dict[Path, list[Path]] = {}
    for path in Path("results").rglob("*"):
        if path.is_symlink():
            links.setdefault(path.resolve(), []).append(path)
    for path in sorted(STORE.glob("*/*")):
        if path.is_file() and path.parent.name != "locks":
            yield path, links.get(path.resolve(), [])
