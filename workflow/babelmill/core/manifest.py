"""Write and check `manifest.json`: a stage's settings, the files that it wrote, and the results that it read.

The manifest is written last, so its presence means that the folder is complete. All code that reads files of a stage
verifies them first. So a half-copied file, a flipped bit or results of two runs in one folder give an error of one line
that names the file, never a silently wrong model. (Neither safetensors nor Parquet notices a flipped bit in its data.)
"""

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from babelmill import __version__
from babelmill.core import local_sources, modules
from babelmill.core.files import UserError, read_json, read_object, sha256, write_json

log = logging.getLogger("babelmill")

NAME = "manifest.json"
HASHES = "known_hashes.json"  # in a folder whose large files are read repeatedly, see `local_sources.py`


def write(
    folder: str | Path,
    asked: Any,
    files: Iterable[str | Path],
    upstream: Iterable[str | Path] = (),
    figures: dict[str, Any] | None = None,
    remember: bool = False,
    name: str = NAME,
    also: dict[str, str] | None = None,
) -> None:
    """Write `folder/manifest.json`, or `name` if several results share the folder.

    `asked` is the object of a settings file (`stages.Stage`). `files`, absolute or relative to the folder, were written
    by this stage, and `upstream` are the results that it read: a digest of each is recorded. `figures`: numbers that
    later stages or readers need. `remember`: see `verify`. `also`: modules beside those that this process has loaded,
    of other processes of the stage (see `modules.py`).
    """
    folder, upstream = Path(folder), [Path(source) for source in upstream]
    content = _content(folder, [folder / file for file in files], remember)
    write_sealed(
        folder / name,
        {
            "stage": asked.stage,
            "version": __version__,
            "settings": asked.raw,
            "modules": modules.loaded() | (also or {}),
            "files": {
                path.relative_to(folder).as_posix(): {"sha256": found, "bytes": path.stat().st_size}
                for path, found in content.items()
            },
            "upstream": {source.as_posix(): digest(source) for source in upstream},
            "figures": figures or {},
        },
    )


def digest(path: Path) -> str:
    """Return a digest of what a result was made from and of its files; of its figures, such as seconds, it has none."""
    about = read(path)
    return _digest({key: about[key] for key in ("stage", "settings", "files")})


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with a sha256 of its own, so that `read` notices a figure that was changed."""
    as_read = json.loads(json.dumps(content))
    write_json(path, content | {"sha256": _digest(as_read)})


def _digest(content: dict[str, Any]) -> str:
    """Return the sha256 of JSON content, whatever the layout of its file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read(path: str | Path) -> dict[str, Any]:
    """Return the manifest of a folder, or what a single .json file says about itself (`predictions/`, `published/`).

    A UserError says that it is missing, was changed, or is no manifest.
    """
    path = Path(path)
    folder, path = (path.parent, path) if path.suffix == ".json" else (path, path / NAME)
    remedy = f"delete {folder if path.name == NAME else path} and run the workflow again"
    manifest = read_json(path, remedy=remedy)
    seal = manifest.pop("sha256", None) if isinstance(manifest, dict) else None
    if seal is not None and seal != _digest(manifest):  # a manifest.json that another program wrote has none
        raise UserError(f"{path}: was changed after it was written (its own sha256 differs); {remedy}")
    parts = ("settings", "files", "upstream", *(("figures",) if path.name == NAME else ()))
    entries = [manifest.get(part) for part in parts] if isinstance(manifest, dict) else [None]
    if not all(isinstance(entry, dict) for entry in entries) or "stage" not in manifest:
        raise UserError(
            f"{path}: not a manifest of this workflow, which has stage, {', '.join(parts)}; if the workflow made the"
            f" folder, delete {folder} and run it again"
        )
    return manifest


def missing(folder: Path) -> str | None:
    """Say which result file of a stage is missing or has another size; None if all are there.

    This includes the files that are listed in manifests of snapshots below the folder.
    """
    if not (folder / NAME).is_file():
        return "has not run yet"
    for path, entry in ((folder / name, entry) for name, entry in read(folder)["files"].items()):
        if not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != entry["bytes"]:
            return f"{path} is not whole"
        if path.name == NAME and (below := missing(path.parent)):
            return below
    return None


def verify(folder: str | Path, *names: str, remember: bool = False, within: str | Path | None = None) -> dict[str, Any]:
    """Check all files, or those named, against the folder's manifest (`read`), and return the manifest.

    `remember` keeps the hashes of large files in the folder, so that they are read again only after they change:
    reading hundreds of gigabytes at each start of a training would take minutes. `within`: the folder that an error
    tells the user to delete, if `folder` is only a part of a stage's result. A UserError says which file is missing or
    damaged.
    """
    folder = Path(folder)
    manifest = read(folder)
    root = folder.parent if folder.suffix == ".json" else folder
    expected = {root / name: manifest["files"].get(name) for name in names or manifest["files"]}
    remedy = f"delete {within or folder} and run the workflow again"
    for path, entry in expected.items():
        if entry is None:
            raise UserError(f"{path}: not in {folder / NAME}; {remedy}")
        if not path.is_file():
            raise UserError(f"{path}: is missing, though {folder / NAME} lists it; {remedy}")
        if path.stat().st_size != entry["bytes"]:
            raise UserError(
                f"{path}: {path.stat().st_size:,} bytes, but {folder / NAME} says {entry['bytes']:,}; {remedy}"
            )
    for path, digest in _content(root, expected, remember).items():
        if digest != expected[path]["sha256"]:
            raise UserError(f"{path}: damaged, its sha256 is not the one in {folder / NAME}; {remedy}")
    return manifest


def _content(folder: Path, paths: Iterable[Path], remember: bool) -> dict[Path, str]:
    """Return {path: sha256}; `remember`: see `verify`."""
    paths = list(paths)
    if (size := sum(path.stat().st_size for path in paths)) >= local_sources.LARGE:
        log.info("checking %.1f GB of %s", size / 1e9, folder)
    large = [path.as_posix() for path in paths if remember and path.stat().st_size >= local_sources.LARGE]
    known = local_sources.hashes(large, folder / HASHES) if large else {}
    return {path: known.get(path.as_posix()) or sha256(path) for path in paths}


def verify_upstream(folder: str | Path, *sources: str | Path) -> None:
    """Check that `folder` was made from the results that are in `sources` now, not from earlier ones."""
    recorded = read(folder)["upstream"]
    for source in map(Path, sources):
        if recorded.get(source.as_posix()) != digest(source):
            raise UserError(f"{folder}: was not made from the present {source}; delete {folder}, then it is made again")


def refuse_earlier_results() -> None:
    """Raise a UserError if the working folder holds results of Babelmill 0.x, which 1.0 does not take over.

    One manifest of each kind of results is looked at.
    """
    for kind in [*sorted(Path("results").glob("*/")), Path("converted")]:
        version = ""
        with contextlib.suppress(UserError, StopIteration):  # there is none, or a damaged one: said when it is used
            version = str(read_object(next(kind.glob(f"*/{NAME}"))).get("version"))
        if version.startswith("0."):
            raise UserError(EARLIER.format(folder=kind.parts[0]))


EARLIER = (
    "{folder}/ holds results of Babelmill 0.x: keep them with the release that made them, or begin a new folder (models"
    " that are trained continue by model.source)"
)
