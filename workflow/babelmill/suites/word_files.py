"""Read the challenge's files of reading times, and of the age at which children know words (kinds of suites).

They are read as the challenge reads them, with pandas: there, an empty cell and "None" are the same.
"""

import io
import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.tables.text import read_text

if TYPE_CHECKING:  # suites of sentences do without pandas, whose import takes a second
    import pandas as pd

log = logging.getLogger("babelmill.suite")

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
