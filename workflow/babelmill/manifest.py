"""`manifest.json`: what a stage was asked, what it wrote, and what it wrote it from.

It is written last, so its presence means that the folder is complete. Whoever reads files of a stage verifies them
first: a half-copied file, a flipped bit or results of two runs mixed in one folder end in one line that names the
file, never in a silently wrong model. (Neither safetensors nor Parquet notices a flipped bit in its data.)
"""

from pathlib import Path

from babelmill import __version__
from babelmill.files import UserError, read_json, sha256, write_json

NAME = "manifest.json"


def write(folder: str | Path, settings, files: list[str | Path], upstream=(), figures: dict | None = None) -> None:
    """Write `folder/manifest.json`.

    Args:
        folder: the stage's output folder.
        settings: what `config.read_settings` returned.
        files: the files this stage wrote, absolute or relative to `folder`.
        upstream: folders of the stages that were read; the sha256 of each one's manifest is recorded.
        figures: numbers worth knowing later (documents, tokens, seconds).
    """
    folder = Path(folder)
    entries = {}
    for file in files:
        path = folder / file
        entries[path.relative_to(folder).as_posix()] = {"sha256": sha256(path), "bytes": path.stat().st_size}
    write_json(
        folder / NAME,
        {
            "stage": settings.stage,
            "name": settings.name,
            "version": __version__,
            "settings": settings.raw,
            "files": entries,
            "upstream": {Path(source).as_posix(): sha256(Path(source) / NAME) for source in upstream},
            "figures": figures or {},
        },
    )


def read(folder: str | Path) -> dict:
    """The manifest of a folder; a UserError if there is none."""
    return read_json(Path(folder) / NAME)


def verify(folder: str | Path, *names: str) -> dict:
    """Check the named files (all of them if none is named) against the folder's manifest, which is returned."""
    folder = Path(folder)
    manifest = read(folder)
    for name in names or manifest["files"]:
        path = folder / name
        entry = manifest["files"].get(name)
        remedy = f"delete {folder} and run the workflow again"
        if entry is None:
            raise UserError(f"{path}: not in {folder / NAME}; {remedy}")
        if not path.is_file():
            raise UserError(f"{path}: missing, though {folder / NAME} lists it; {remedy}")
        if path.stat().st_size != entry["bytes"]:
            raise UserError(
                f"{path}: {path.stat().st_size:,} bytes, but {folder / NAME} says {entry['bytes']:,}; {remedy}"
            )
        if sha256(path) != entry["sha256"]:
            raise UserError(f"{path}: damaged, its sha256 is not the one in {folder / NAME}; {remedy}")
    return manifest


def verify_upstream(folder: str | Path, *sources: str | Path) -> None:
    """Check that `folder` was made from the results that stand in `sources` now, not from earlier ones."""
    recorded = read(folder)["upstream"]
    for source in map(Path, sources):
        if recorded.get(source.as_posix()) != sha256(source / NAME):
            raise UserError(f"{folder}: was not made from the present {source}; run the workflow again to rebuild it")
