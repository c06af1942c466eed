"""Define the file formats that a corpus can be read from, and recognise them by the names of files."""

from pathlib import PurePath

from babelmill.core.escape import line
from babelmill.core.files import UserError

FORMATS = (".parquet", ".jsonl", ".json", ".csv", ".tsv", ".txt")  # a .json file is read line by line, like .jsonl
DELIMITERS = {".csv": ",", ".tsv": "\t"}
MAX_FIELD = 1 << 30  # characters between two delimiters
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def split_name(path: str | PurePath, file_format: str | None = None) -> tuple[str, str | None]:
    """Return the suffix and the compression of a file from its name, such as (".jsonl", "zstd").

    `file_format`: that of a file whose name says nothing or something else (`corpus.format`), such as `txt`.
    """
    path = PurePath(path)
    compression = COMPRESSIONS.get(path.suffix)
    if file_format:
        return f".{file_format}", compression
    return (PurePath(path.stem).suffix if compression else path.suffix), compression


def format_of(path: str | PurePath, label: str = "", file_format: str | None = None) -> tuple[str, str | None]:
    """Return a file's format and compression; raise a UserError, which begins with `label`, for any other format."""
    suffix, compression = split_name(path, file_format)
    if suffix not in FORMATS:
        allowed = ", ".join(FORMATS)
        raise UserError(
            f"{label}{line(path)}: this file format cannot be read; allowed are {allowed}, each also with .gz or .zst"
            " (if a corpus is plain text with other names, set corpus.format: txt)"
        )
    return suffix, compression
