"""Read the items of a suite from its files (stage `suite`). What an item is, is said by the keys of `entries.Suite`.

There are two kinds of items: options after prompts, of which one is right, and words after contexts. A minimal pair is
an item with two options, the good sentence and the bad one, and empty prompts. The challenge's files of words are read
as the challenge reads them, with pandas: there, an empty cell and "None" are the same.
"""

import contextlib
import hashlib
import io
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from babelmill.config.entries import OF_FILE, columns_of, fill
from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.core.words import plural
from babelmill.stages import SuiteStage
from babelmill.tables.rows import Asked, TextRow, text_rows
from babelmill.tables.text import Form, opened, read_text

if TYPE_CHECKING:  # suites of sentences do without pandas, whose import takes a second
    import pandas as pd

log = logging.getLogger("babelmill.suite")

ITEMS = "items.parquet"  # the table of items, in the results of the stages `suite` and `score`
NOUNS = {"pairs": "pair", "choices": "item", "reading": "word", "acquisition": "context"}  # what kinds call an item
GROUPS = ("phenomenon", "paradigm")
COLUMNS = [
    ("prompts", pa.list_(pa.string())),  # what stands before each option
    ("options", pa.list_(pa.string())),
    ("right", pa.int64()),  # the number of the right option
    *((name, pa.string()) for name in GROUPS),
]
HARNESS_ID = ("harness_id", pa.string())  # a column of suites that ask for it


# The columns of words with reading times: texts, what predicts the times, and the times.
TEXTS = ("item", "word", "prev_item", "prev_word")
PREDICTORS = ("Subtlex_log10", "length", "context_length")
OF_WORD_BEFORE = "prev_length"
EYE_TRACKING = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound")
SELF_PACED = "self_paced_reading_time"
NUMBERS = (*PREDICTORS, OF_WORD_BEFORE, *EYE_TRACKING, SELF_PACED)
NO_TEXT = "None"  # what the challenge's rule reads if there is no text before a word
MONTHS = range(16, 31)
ACQUISITION = pa.schema(
    [
        ("target_word", pa.string()),
        ("context_id", pa.int64()),
        ("context", pa.string()),
        ("children", pa.list_(pa.float64())),  # the share who say it at each of MONTHS; null if it is unknown
    ]
)


def read_items(settings: SuiteStage, paths: Sequence[Path]) -> pa.Table:
    """Return the items of files, in order; raise a UserError if one is not as its kind needs it, or there is none."""
    if settings.kind in ("pairs", "choices"):
        return read_options(settings, paths)
    endings = [".csv"] if settings.kind == "reading" else [".json", ".csv"]
    if sorted(path.suffix for path in paths) != sorted(endings):
        raise UserError(
            f"suites.{settings.suite}: a suite of kind {settings.kind} has one file for each of {', '.join(endings)};"
            f" its `files` are {escape.some(paths, 3)}"
        )
    found = [next(path for path in paths if path.suffix == end) for end in endings]
    return read_reading_times(*found) if settings.kind == "reading" else read_acquisition(*found)


def read_options(settings: SuiteStage, paths: Sequence[Path]) -> pa.Table:
    """Return the items of .csv, .tsv, .jsonl or .parquet files, with COLUMNS and, if it is asked for, HARNESS_ID.

    If the files have no phenomenon, it is "all"; if they have no paradigm, it is the phenomenon.
    """
    how, drop, prompts = settings.items, settings.items.get("drop", ""), settings.items.get("prompt", "")
    prompts = [prompts] if isinstance(prompts, str) else prompts
    ids = harness_ids(paths) if how.get("harness_ids") else None
    rows = []
    for row in text_rows(paths, asked_of(settings, prompts), Form.of(f"suites.{settings.suite}", settings.form)):
        item: dict[str, Any] = {"options": options_of(row, how["options"])}
        if ids:
            item["harness_id"] = next(ids)
        if drop and any(drop in option for option in item["options"]):
            continue
        before, count = [row.filled(template) for template in prompts], len(item["options"])
        item["prompts"] = before * count if len(before) == 1 else before
        item["right"] = right_of(row, how.get("right", 0), count)
        item["phenomenon"] = group_of(row, how.get("phenomenon")) or "all"
        item["paradigm"] = group_of(row, how.get("paradigm")) or item["phenomenon"]
        rows.append(item)
    if not rows:
        dropped = f" (besides those that drop = {drop!r} leaves out)" if drop else ""
        raise UserError(f"{escape.some(paths, 3)}: these files contain no {NOUNS[settings.kind]}{dropped}")
    return pa.Table.from_pylist(rows, pa.schema([*COLUMNS, *([HARNESS_ID] if ids else [])]))


def asked_of(settings: SuiteStage, prompts: list[str]) -> list[Asked]:
    """Return the columns that the items are made of. The two sentences of a pair must be text, and not numbers."""
    how, options, pair = settings.items, settings.items["options"], settings.kind == "pairs"
    named = {key: [how[key]] for key in (*GROUPS, "right") if isinstance(how.get(key), str)}
    named["good and bad" if pair else "prompt and options"] = prompts + ([] if isinstance(options, str) else options)
    holds: Literal["text", "value"] = "text" if pair else "value"
    found = {
        column: Asked(column, f"suites.{settings.suite}.{key}", "value" if key in how else holds)
        for key, templates in named.items()
        for template in templates
        for column in (columns_of(template) if "{" in template or key not in how else [template])
    }
    if isinstance(options, str):
        column = column_of(options)
        found[column] = Asked(column, f"suites.{settings.suite}.options", "anything")
    return list(found.values())


def texts_of(items: pa.Table) -> list[list[str]]:
    """Return the texts of each item: prompt and option together."""
    both = zip(items["prompts"].to_pylist(), items["options"].to_pylist(), strict=True)
    return [[prompt + option for prompt, option in zip(*each, strict=True)] for each in both]


def figures(kind: str, items: pa.Table) -> dict[str, Any]:
    """Return counts: of items (as `pairs`), of phenomena and paradigms, and the share that chance gets right.

    Items with two equal texts (`identical`), and items that are there twice, may be wrong.
    """
    if kind == "reading":
        return {"pairs": len(items), "phenomena": 2, "paradigms": 6}  # those of `reading.summary`
    if kind == "acquisition":
        words = len(set(items["target_word"].to_pylist()))
        return {"pairs": len(items), "phenomena": 1, "paradigms": 1, "words": words}
    texts = texts_of(items)
    return {
        "pairs": len(items),
        "phenomena": len(set(items["phenomenon"].to_pylist())),
        "paradigms": len(set(items["paradigm"].to_pylist())),
        "chance": sum(1 / len(each) for each in texts) / len(texts),
        "identical": sum(len(set(each)) < len(each) for each in texts),
        "duplicates": len(texts) - len(set(map(tuple, texts))),
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
    try:
        if suffix == ".parquet":
            with opened(path, compression) as stream:
                return pq.ParquetFile(pa.BufferReader(stream.read())).read(use_threads=False).to_pylist()
        if suffix in (".jsonl", ".json"):
            return pj.read_json(path, pj.ReadOptions(use_threads=False)).to_pylist()
        why = f"columns of {suffix} have no types"
    except pa.ArrowInvalid as error:
        why = escape.line(error)
    raise UserError(f"{escape.line(path)}: {why}; `harness_ids` needs .jsonl or .parquet, and columns of one type")


def group_of(row: TextRow, named: str | None) -> str:
    """Return what a template or the name of a column stands for in a row; "" without a name."""
    return row.filled(named) if named and "{" in named else row.cells[named] if named else ""


def column_of(named: str) -> str:
    """Return the column that holds a list of options: the only one of a template, or the name itself."""
    return columns_of(named)[0] if "{" in named else named


def options_of(row: TextRow, named: str | list[str]) -> list[str]:
    """Return the options of a row: filled templates, or the list that a column holds (or texts with tabs between)."""
    if isinstance(named, list):
        found = [row.filled(template) for template in named]
    else:
        cell, found = row.cells[column_of(named)], list[Any]()
        if cell.startswith("["):
            with contextlib.suppress(ValueError):
                found = json.loads(cell)
        found = found or cell.split("\t")
        if len(found) < 2 or not all(isinstance(each, str) for each in found):
            raise wrong(row, "options", cell, "a list of two or more texts, or texts with tabs between, is expected")
    for number, option in enumerate(found):
        if not option.strip():
            raise wrong(row, f"options[{number}]", option, "a text is expected")
    if isinstance(named, list) or "{" not in named:
        return found
    return [fill(named, row.cells | {OF_FILE: row.file, column_of(named): option}) for option in found]


def right_of(row: TextRow, named: str | int, count: int) -> int:
    """Return the number of the right option."""
    value = row.cells[named] if isinstance(named, str) else str(named)
    if value.isdecimal() and int(value) < count:
        return int(value)
    raise wrong(row, "right", value, f"the number of an option from 0 to {count - 1} is expected")


def wrong(row: TextRow, key: str, value: str, expected: str) -> UserError:
    """Return the error about what a row holds for a key of the suite."""
    return UserError(f"{row.where}: {key} = {escape.line(repr(value), 60)}: {expected}")


# Words after contexts.


def _table(path: Path, texts: Iterable[str], numbers: Iterable[str]) -> "pd.DataFrame":
    """Return these columns of a CSV file; raise a UserError if one is missing, or holds something else."""
    import pandas as pd

    kinds: Any = {**dict.fromkeys(texts, str), **dict.fromkeys(numbers, float)}
    try:
        table = pd.read_csv(io.StringIO(read_text(path)), dtype=kinds).loc[:, [*kinds]]
    except (ValueError, KeyError) as error:
        raise UserError(f"{path}: it is not the challenge's table: {escape.line(str(error), 300)}") from None
    if table.empty:
        raise UserError(f"{path}: it has no rows")
    return table


def read_reading_times(path: Path) -> pa.Table:
    """Return the rows of a file such as reading_data.csv: `item_id` and the columns TEXTS and NUMBERS.

    `item` is the text before the word; `prev_item` and `prev_word` are those of the word before, or null.
    """
    table = _table(path, TEXTS, NUMBERS)
    without = table["word"].isna().to_numpy()
    if without.any():
        raise UserError(f"{path}: row {int(without.argmax()) + 1} has no word; correct the file")
    table["item"] = table["item"].fillna(NO_TEXT)
    found = pa.Table.from_pandas(table[[*TEXTS, *NUMBERS]], preserve_index=False).replace_schema_metadata(None)
    return found.add_column(0, "item_id", pa.array(range(len(table))))


def read_acquisition(contexts: Path, human: Path) -> pa.Table:
    """Return the contexts of words with what children know of these words: the columns of ACQUISITION.

    `contexts` is a file such as cdi_childes.json: {word: [{"context": text}, ...]}; words of one letter are left out.
    `human` is one such as cdi_human.csv: the column `word`, and the share of children who say the word at each of
    MONTHS. Words that it lacks are said.
    """
    found, months = _contexts(contexts), [str(month) for month in MONTHS]
    table = _table(human, ["word"], months).drop_duplicates("word").set_index("word")  # the first row of a word counts
    children = dict(zip(table.index, table[months].to_numpy().tolist(), strict=True))
    missing = [word for word in found if word not in children]
    if len(missing) == len(found):
        raise UserError(f"{human}: it has none of the {len(found)} words of {contexts} ({escape.some(missing, 3)})")
    if missing:
        said = "%s: %s of %s without a row (%s): no age of acquisition is known"
        log.warning(said, human, plural(len(missing), "word"), contexts.name, escape.some(missing, 3))
    rows = [
        {"target_word": word, "context_id": number, "context": context, "children": children.get(word)}
        for word, texts in found.items()
        for number, context in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, ACQUISITION)


def _contexts(path: Path) -> dict[str, list[str]]:
    """Return {word: its contexts} of a file; raise a UserError if it has another form."""
    try:
        content = json.loads(read_text(path))
        found = {word: [str(each["context"]) for each in texts] for word, texts in content.items() if len(word) > 1}
    except (ValueError, TypeError, KeyError, AttributeError):
        found = {}
    if any(found.values()):
        return found
    raise UserError(
        f"{path}: expected words with their contexts, as the challenge's cdi_childes.json:"
        ' {"word": [{"context": "text before the word"}]}'
    )
