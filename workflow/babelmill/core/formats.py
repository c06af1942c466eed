"""Define the file formats that a corpus can be read from, and recognise them by the names of files."""

from pathlib import PurePath

from babelmill.core.files import UserError

FORMATS = (".parquet", ".jsonl", ".json", ".csv", ".tsv", ".txt")  # a .json file is read line by line, like .jsonl
DELIMITERS = {".csv": ",", ".tsv": "\t"}
MAX_FIELD = 1 << 30  # characters between two delimiters
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def split_name(path: str | PurePath) -> tuple[str, str | None]:
    """Return the suffix and the compression of a file from its name, such as (".jsonl", "zstd")."""
    path = PurePath(path)
    compression = COMPRESSIONS.get(path.suffix)
    return (PurePath(path.stem).suffix if compression else path.suffix), compression


def format_of(path: str | PurePath, label: str = "") -> tuple[str, str | None]:
    """Return a file's format and compression; raise a UserError, which begins with `label`, for any other format."""
    suffix, compression = split_name(path)
    if suffix not in FORMATS:
        allowed = ", ".join(FORMATS)
        raise UserError(
            f"{label}{path}: this file format cannot be read; allowed are {allowed}, each also with .gz or .zst"
        )
    return suffix, compression
