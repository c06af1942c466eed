"""Read the items of a suite from its files: one class for each kind of suite.

The stage `suite` writes the table that a reader returns. What an item is, is said by the keys of `schema.Suite`.
"""

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.core.templates import OF_FILE, columns_of, fill
from babelmill.core.words import plural
from babelmill.stages import SuiteStage
from babelmill.suites.texts import texts_of
from babelmill.suites.word_files import read_acquisition, read_reading_times
from babelmill.tables.rows import Asked, TextRow, text_rows
from babelmill.tables.text import Form, opened

log = logging.getLogger("babelmill.suite")

GROUPS = ("phenomenon", "paradigm")
THE_FILE = f"{{{OF_FILE}}}"


class Reader:
    """Reads the items of one kind of suite."""

    table = "items.parquet"  # the name of the file for the items
    items = "items"  # what the items are called, in messages

    def read(self, settings: SuiteStage, paths: Sequence[Path]) -> pa.Table:
        """Return the items of files (.csv, .tsv, .jsonl or .parquet, plain or compressed), in order.

        If the files have no phenomenon, it is "all"; if they have no
        paradigm, it is the phenomenon. A UserError says that a column is missing, an item is not as its kind needs it,
        or there is no item.
        """
        raise NotImplementedError

    def figures(self, items: pa.Table) -> dict[str, Any]:
        """Return counts: of items (as `pairs`), of phenomena and paradigms, and of items that may be wrong."""
        groups = {"phenomena": "phenomenon", "paradigms": "paradigm"}
        return {"pairs": len(items)} | {name: len(set(items[key].to_pylist())) for name, key in groups.items()}


class Pairs(Reader):
    """Minimal pairs: a good and a bad sentence."""

    table = "pairs.parquet"
    items = "pairs"
    schema = pa.schema([(name, pa.string()) for name in ("good", "bad", *GROUPS)])

    def read(self, settings: SuiteStage, paths: Sequence[Path]) -> pa.Table:
        """Return the pairs; see `Reader.read`."""
        named = {key: settings.columns[key] for key in self.schema.names if settings.columns.get(key)}
        sentences = ("good", "bad")
        section = f"suites.{settings.suite}"
        of_columns = [(key, name) for key, name in named.items() if name != THE_FILE]
        asked = [Asked(name, f"{section}.{key}", "text" if key in sentences else "value") for key, name in of_columns]
        rows = []
        for row in text_rows(paths, asked, Form.of(section, settings.columns)):
            item = {key: row.file if name == THE_FILE else row.cells[name] for key, name in named.items()}
            for key in sentences:
                if not item[key].strip():
                    raise UserError(f"{row.where}: the {key} sentence ({named[key]!r}) is empty; correct the file")
            rows.append(with_groups(item))
        if not rows:
            raise UserError(f"{escape.some(paths, 3)}: these files contain no pair of sentences")
        return pa.Table.from_pylist(rows, self.schema)

    def figures(self, items: pa.Table) -> dict[str, Any]:
        """Return counts; pairs with different numbers of words, and equal sentences or pairs, may be wrong."""
        sentences = list(zip(items["good"].to_pylist(), items["bad"].to_pylist(), strict=True))
        return super().figures(items) | {
            "identical": sum(good == bad for good, bad in sentences),
            "duplicates": len(sentences) - len(set(sentences)),
            "different_word_counts": sum(len(good.split()) != len(bad.split()) for good, bad in sentences),
        }


class Choices(Reader):
    """Prompts with two or more options, of which one is right."""

    schema = pa.schema(
        [
            ("id", pa.string()),
            ("prompts", pa.list_(pa.string())),
            ("options", pa.list_(pa.string())),
            ("right", pa.int64()),
            *((name, pa.string()) for name in GROUPS),
        ]
    )

    def read(self, settings: SuiteStage, paths: Sequence[Path]) -> pa.Table:
        """Return the items; see `Reader.read`. `id` is the paradigm and a number, counted from 0 in each paradigm.

        `harness_id` is what lm-evaluation-harness calls the item, if the suite asks for it.
        """
        how, section = settings.items, f"suites.{settings.suite}"
        named = dict(how) | {key: settings.columns[key] for key in GROUPS if key in settings.columns}
        texts = [*as_list(how.get("prompt", "")), *(how["options"] if isinstance(how["options"], list) else [])]
        templates = [*texts, *(value for key in GROUPS if "{" in (value := named.get(key, "")))]
        columns = {column: "prompt and options" for template in templates for column in columns_of(template)}
        for key in (*GROUPS, "right", "ratio"):
            if isinstance(value := named.get(key), str) and "{" not in value:
                columns[value] = key
        asked = [Asked(column, f"{section}.{key}", "value") for column, key in columns.items()]
        if isinstance(how["options"], str):
            asked.append(Asked(column_of(how["options"]), f"{section}.options", "anything"))
        rows, counts, drop = [], Counter[str](), how.get("drop", "")
        ids = harness_ids(paths) if how.get("harness_ids") else None
        for row in text_rows(paths, asked, Form.of(section, settings.columns)):
            options = options_of(row, how["options"])
            harness_id = next(ids) if ids else ""
            if drop and any(drop in option for option in options):
                continue
            prompts = [row.filled(template) for template in as_list(how.get("prompt", ""))]
            item: dict[str, Any] = {"options": options, "prompts": prompts * (len(options) if len(prompts) == 1 else 1)}
            item["right"] = right_of(row, how.get("right", 0), len(options))
            if "ratio" in how:
                item["ratio"] = number_of(row, how["ratio"])
            if ids:
                item["harness_id"] = harness_id
            item |= {key: of_row(row, named[key]) for key in GROUPS if key in named}
            item = with_groups(item)
            rows.append({"id": f"{item['paradigm']}_{counts[item['paradigm']]}", **item})
            counts[item["paradigm"]] += 1
        if not rows:
            dropped = f" (besides those that drop = {drop!r} leaves out)" if drop else ""
            raise UserError(f"{escape.some(paths, 3)}: these files contain no item{dropped}")
        schema = self.schema.append(pa.field("ratio", pa.float64())) if "ratio" in how else self.schema
        schema = schema.append(pa.field("harness_id", pa.string())) if ids else schema
        return pa.Table.from_pylist(rows, schema)

    def figures(self, items: pa.Table) -> dict[str, Any]:
        """Return counts, and the share that chance gets right.

        Items with two equal texts, and items that are there twice, may be wrong.
        """
        texts = texts_of(items)
        return super().figures(items) | {
            "chance": sum(1 / len(each) for each in texts) / len(texts),
            "identical": sum(len(set(each)) < len(each) for each in texts),
            "duplicates": len(texts) - len(set(map(tuple, texts))),
        }


class ReadingTimes(Reader):
    """Words with the times that people take to read them, as the challenge's reading_data.csv."""

    items = "words"

    def read(self, settings: SuiteStage, paths: Sequence[Path]) -> pa.Table:
        """Return the words; see `Reader.read` and `read_reading_times`."""
        (path,) = files_of_words(settings, paths, [".csv"])
        return read_reading_times(path)

    def figures(self, items: pa.Table) -> dict[str, Any]:
        return {"pairs": len(items), "phenomena": 2, "paradigms": 6}  # those of `reading.summary`


class Acquisition(Reader):
    """Words in contexts, with what children know of them, as the challenge's cdi_childes.json and cdi_human.csv."""

    items = "contexts"

    def read(self, settings: SuiteStage, paths: Sequence[Path]) -> pa.Table:
        """Return the contexts; see `Reader.read` and `read_acquisition`. Say which words are unknown for children."""
        contexts, human = files_of_words(settings, paths, [".json", ".csv"])
        table, missing = read_acquisition(contexts, human)
        if missing:
            log.warning(
                "%s: %s of %s %s missing (%s); no age of acquisition is known for %s",
                human,
                plural(len(missing), "word"),
                contexts.name,
                "is" if len(missing) == 1 else "are",
                escape.some(missing, 3),
                "it" if len(missing) == 1 else "them",
            )
        return table

    def figures(self, items: pa.Table) -> dict[str, Any]:
        """Return counts: of contexts (as `pairs`) and of words."""
        return {
            "pairs": len(items),
            "phenomena": 1,
            "paradigms": 3,
            "words": len(set(items["target_word"].to_pylist())),
        }


def files_of_words(settings: SuiteStage, paths: Sequence[Path], endings: list[str]) -> list[Path]:
    """Return the file with each of the endings; raise a UserError unless there is one of each, and no other."""
    if sorted(path.suffix for path in paths) != sorted(endings):
        raise UserError(
            f"suites.{settings.suite}: a suite of kind {settings.kind} has one file for each of {', '.join(endings)};"
            f" its `files` are {escape.some(paths, 3)}"
        )
    return [next(path for path in paths if path.suffix == end) for end in endings]


READERS: dict[str, Reader] = {
    "pairs": Pairs(),
    "choices": Choices(),
    "reading": ReadingTimes(),
    "acquisition": Acquisition(),
}


def harness_ids(paths: Sequence[Path]) -> Iterator[str]:
    """Yield what lm-evaluation-harness calls each row of files in its logs: "{doc_id}:{doc_hash}".

    That is the number of the row, counted from 0 over all files, and a digest of all its columns. Their types are those
    that Arrow finds, as in the library `datasets`, through which the harness reads files. So a whole number is written
    as 1.0 if the column has fractions in other rows, and a missing key as null.
    """
    documents = (document for path in paths for document in documents_of(path))
    for number, document in enumerate(documents):
        text = json.dumps(document, indent=2, ensure_ascii=False, default=str)
        yield f"{number}:{hashlib.sha256(text.encode()).hexdigest()}"


def documents_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file with all of their columns."""
    suffix, compression = split_name(path)
    if suffix not in (".jsonl", ".json", ".parquet"):
        raise UserError(
            f"{escape.line(path)}: `harness_ids` needs .jsonl or .parquet files: columns of {suffix} have no types"
        )
    if suffix == ".parquet":
        with opened(path, compression) as stream:
            return pq.ParquetFile(pa.BufferReader(stream.read())).read(use_threads=False).to_pylist()
    try:
        return pj.read_json(path, pj.ReadOptions(use_threads=False)).to_pylist()
    except pa.ArrowInvalid as error:
        raise UserError(f"{escape.line(path)}: {escape.line(error)}; `harness_ids` needs columns of one type") from None


def as_list(templates: str | list[str]) -> list[str]:
    """Return templates as a list."""
    return [templates] if isinstance(templates, str) else templates


def of_row(row: TextRow, named: str) -> str:
    """Return what a template or the name of a column stands for in a row."""
    return row.filled(named) if "{" in named else row.cells[named]


def with_groups(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item with a phenomenon and a paradigm."""
    phenomenon = item.get("phenomenon") or "all"
    return item | {"phenomenon": phenomenon, "paradigm": item.get("paradigm") or phenomenon}


def column_of(named: str) -> str:
    """Return the column that holds a list of options: the only one of a template, or the name itself."""
    return columns_of(named)[0] if "{" in named else named


def options_of(row: TextRow, named: str | list[str]) -> list[str]:
    """Return the options of a row: filled templates, or the list that a column holds (or texts with tabs between)."""
    if isinstance(named, list):
        options = [row.filled(template) for template in named]
    else:
        column = column_of(named)
        options = list_of(row.cells[column])
        if len(options) < 2:
            shown = escape.line(repr(row.cells[column]), 60)
            raise UserError(
                f"{row.where}: column {escape.line(repr(column), 100)} holds {shown}; a list of two or more options is"
                " expected, or texts with tabs between"
            )
    for number, option in enumerate(options):
        if not option.strip():
            raise UserError(f"{row.where}: option {number} is empty; correct the file")
    if isinstance(named, str) and "{" in named:
        options = [fill(named, row.cells | {OF_FILE: row.file, column_of(named): option}) for option in options]
    return options


def list_of(cell: str) -> list[str]:
    """Return the texts of a cell."""
    if cell.startswith("["):
        try:
            value = json.loads(cell)
        except ValueError:
            return cell.split("\t")
        return value if all(isinstance(each, str) for each in value) else []
    return cell.split("\t")


def right_of(row: TextRow, named: str | int, count: int) -> int:
    """Return the number of the right option."""
    value = row.cells[named] if isinstance(named, str) else str(named)
    if value.isdecimal() and int(value) < count:
        return int(value)
    raise UserError(
        f"{row.where}: {escape.line(repr(value), 60)} is not the number of an option (`right`); there are {count}, and"
        " the first has the number 0"
    )


def number_of(row: TextRow, column: str) -> float:
    """Return the number in a column."""
    try:
        value = float(row.cells[column])
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return value
    shown = escape.line(repr(row.cells[column]), 60)
    raise UserError(f"{row.where}: column {escape.line(repr(column), 100)} holds {shown}; a number is expected")
