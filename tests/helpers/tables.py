"""Write tables of every format that the workflow reads."""

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def compress(data: bytes, suffix: str) -> bytes:
    """Return data as a plain (""), .gz or .zst file holds it."""
    return {"": bytes, ".gz": gzip.compress, ".zst": lambda d: pa.Codec("zstd").compress(d, asbytes=True)}[suffix](data)


def table_bytes(rows: list[dict], suffix: str, delimiter: str | None = None, encoding: str = "utf-8") -> bytes:
    """Return rows as the bytes of a .parquet, .jsonl, .csv or .tsv file; every second line of JSON escapes characters."""
    if suffix == ".parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=2000)
        return sink.getvalue().to_pybytes()
    if suffix == ".jsonl":
        return "".join(json.dumps(row, ensure_ascii=i % 2 == 0) + "\n" for i, row in enumerate(rows)).encode()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter or {".csv": ",", ".tsv": "\t"}[suffix])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode(encoding)


def write_table(path: str | Path, rows: list[dict]) -> Path:
    """Write rows as a file whose name says its format and compression. Return the path."""
    path = Path(path)
    compression = path.suffix if path.suffix in (".gz", ".zst") else ""
    suffix = Path(path.name.removesuffix(compression)).suffix
    path.write_bytes(compress(table_bytes(rows, suffix), compression))
    return path
