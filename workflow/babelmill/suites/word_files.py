"""Read the challenge's files of reading times, and of the age at which children know words (kinds of suites).

They are read as the challenge reads them, with pandas: there, an empty cell and "None" are the same.
"""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.tables.rows import Asked, columns_of
from babelmill.tables.text import read_text

if TYPE_CHECKING:  # suites of sentences do without pandas, whose import takes a second
    import pandas as pd

TEXTS = ("item", "word", "prev_item", "prev_word")
PREDICTORS = ("Subtlex_log10", "length", "context_length")
OF_WORD_BEFORE = "prev_length"
EYE_TRACKING = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound")
SELF_PACED = "self_paced_reading_time"
NUMBERS = (*PREDICTORS, OF_WORD_BEFORE, *EYE_TRACKING, SELF_PACED)
NO_TEXT = "None"  # what the challenge's rule reads if there is no text before a word
READING = pa.schema(
    [("item_id", pa.int64()), *((name, pa.string()) for name in TEXTS), *((name, pa.float64()) for name in NUMBERS)]
)

MONTHS = range(16, 31)
ACQUISITION = pa.schema(
    [
        ("target_word", pa.string()),
        ("context_id", pa.int64()),
        ("context", pa.string()),
        ("children", pa.list_(pa.float64())),
    ]
)


def _table(path: Path, what: str, needed: tuple[str, ...], texts: tuple[str, ...]) -> "pd.DataFrame":
    """Return a CSV file; raise a UserError if a column is missing, or one without texts holds no numbers."""
    import pandas as pd

    columns_of(path, [Asked(name, f"the suite's `files` to the challenge's {what}") for name in needed])
    try:
        table = pd.read_csv(io.StringIO(read_text(path)), dtype=dict.fromkeys(texts, str))
    except ValueError as error:
        raise UserError(f"{path}: it cannot be read as {what}: {escape.line(str(error), 200)}") from None
    if table.empty:
        raise UserError(f"{path}: it has no rows")
    for name in table:
        if name in (*NUMBERS, *map(str, MONTHS)) and not pd.api.types.is_numeric_dtype(table[name]):
            raise UserError(f"{path}: the column {name} holds other things than numbers; correct the file")
    return table


def read_reading_times(path: Path) -> pa.Table:
    """Return the rows of a file such as reading_data.csv, with the columns of READING.

    `item` is the text before the word; `prev_item` and `prev_word` are those of the word before, or null. A UserError
    says that a column or a word is missing, a column holds something other than numbers, or there are no rows.
    """
    table = _table(path, "table of reading times (reading_data.csv)", (*TEXTS, *NUMBERS), TEXTS)
    without = table["word"].isna().to_numpy()
    if without.any():
        raise UserError(f"{path}: row {int(without.argmax()) + 1} has no word; correct the file")
    table["item"] = table["item"].fillna(NO_TEXT)
    table["item_id"] = range(len(table))
    return pa.Table.from_pandas(table[READING.names], READING, preserve_index=False).replace_schema_metadata(None)


def read_acquisition(contexts: Path, human: Path) -> tuple[pa.Table, list[str]]:
    """Return the contexts of words with what children know of these words, and the words that `human` lacks.

    `contexts` is a file such as cdi_childes.json: {word: [{"context": text}, ...]}; words of one letter are left out.
    `human` is one such as cdi_human.csv: the column `word`, and the share of children who say the word at 16, 17, ...
    30 months of age. The table has the columns of ACQUISITION and a row per context, in the order of the file;
    `children` has a number for each of MONTHS, or is null for a word that `human` lacks. A UserError says that a file
    has another form, or that `human` has none of the words.
    """
    found = _contexts(contexts)
    table = _table(human, "table of what children say (cdi_human.csv)", ("word",), ("word",))
    months = [str(month) for month in MONTHS]
    if not any(month in table for month in months):
        raise UserError(
            f"{human}: no column {months[0]}, ... {months[-1]}: the share of children at each age in months"
        )
    shares = table.drop_duplicates("word").set_index("word").reindex(columns=months)  # the first row of a word counts
    children = dict(zip(shares.index, shares.to_numpy(float).tolist(), strict=True))
    missing = [word for word in found if word not in children]
    if len(missing) == len(found):
        raise UserError(f"{human}: it has none of the {len(found)} words of {contexts} ({escape.some(missing, 3)})")
    rows = [
        {"target_word": word, "context_id": number, "context": context, "children": children.get(word)}
        for word, texts in found.items()
        for number, context in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, ACQUISITION), missing


def _contexts(path: Path) -> dict[str, list[str]]:
    """Return {word: its contexts} of a file; raise a UserError if it has another form."""
    try:
        content: Any = json.loads(read_text(path))
        found = {word: [str(each["context"]) for each in texts] for word, texts in content.items() if len(word) > 1}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(
            f'{path}: expected words with their contexts, as the challenge\'s cdi_childes.json: {{"word": [{{"context":'
            ' "text before the word"}]}'
        ) from None
    if not any(found.values()):
        raise UserError(f"{path}: it has no word with a context")
    return found
