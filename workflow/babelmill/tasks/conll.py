"""Read sentences whose words have labels: CoNLL-U files of Universal Dependencies, and CoNLL files of other projects.

Both have a word per line and an empty line after each sentence. The package `conllu` reads the first kind; but its
errors say neither the file nor the line, and it cannot read the second.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.tables.text import read_text

SCHEMA = pa.schema([("words", pa.list_(pa.string())), ("labels", pa.list_(pa.string()))])
NUMBERS = {"upos": 4, "xpos": 5}  # the columns of CoNLL-U, counted from 1
FORM = 2
ABOUT = re.compile(r"#\s*[\w.:]+\s*=")  # a comment such as "# sent_id = 7"

Line = tuple[int, list[str]]  # the number of a line, and its columns


def read_sentences(paths: Sequence[Path], columns: dict[str, str], task: str) -> pa.Table:
    """Read the sentences of files, plain or compressed, in order: a table with the columns of SCHEMA.

    Files that end in .conllu have the columns of CoNLL-U. A UserError says that a line lacks a column, or that there is
    no sentence.
    """
    found = [sentence for path in paths for sentence in _sentences(path, columns, task)]
    if not found:
        raise UserError(f"{escape.some(paths, 3)}: tasks.{task}: these files have no sentence")
    return pa.Table.from_pylist(found, SCHEMA)


def _sentences(path: Path, columns: dict[str, str], task: str) -> Iterator[dict[str, list[str]]]:
    """Yield the sentences of a file as rows of SCHEMA."""
    of_ud, where = split_name(path)[0] == ".conllu", escape.line(path)
    label = NUMBERS.get(columns["label"], 0) if of_ud else 0
    if not label and not columns["label"].isdecimal():
        allowed = "upos, xpos or the number of a column" if of_ud else "a number of a column; this is no .conllu file"
        raise UserError(f"{where}: tasks.{task}.label = {columns['label']!r}: set {allowed}")
    label = label or int(columns["label"])
    word = int(columns.get("word", FORM if of_ud else 1))
    lines = [*_lines(read_text(path), of_ud)]
    widths = Counter(len(cells) for _, cells in lines if cells)
    width = 10 if of_ud else max(widths, key=lambda each: widths[each], default=0)
    words: list[str] = []
    labels: list[str] = []
    for number, cells in [*lines, (0, [])]:
        if not cells:
            if words:
                yield {"words": words, "labels": labels}
            words, labels = [], []
            continue
        if len(cells) != width:
            if cells[0].startswith("#"):
                continue
            wanted = "the 10 of CoNLL-U, with tabs between them" if of_ud else f"the {width} that most lines have"
            raise UserError(f"{where}: line {number} has {len(cells)} columns and not {wanted}; correct the file")
        if of_ud and not cells[0].isdecimal():  # 1-2: a token that is several words; 3.1: a word that is not written
            if re.fullmatch(r"\d+[-.]\d+", cells[0]):
                continue
            raise UserError(f"{where}: line {number}: the ID {cells[0]!r} is no number; correct the file")
        for key, place in (("word", word), ("label", label)):
            if place > width:
                raise UserError(
                    f"{where}: tasks.{task}.{key} = {place}, but the lines have {width} columns; correct the number"
                )
            if not cells[place - 1].strip():
                raise UserError(f"{where}: line {number}: column {place}, of the {key}, is empty; correct the file")
        words.append(cells[word - 1])
        labels.append(cells[label - 1])


def _lines(text: str, of_ud: bool) -> Iterator[Line]:
    """Yield the lines of a file without comments that are known as such; between sentences, lines without columns.

    A `#` may also be a word: so a line that has as many columns as the others is read, if it is not "# name = value".
    """
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if line.startswith("-DOCSTART-") or (line.startswith("#") and (of_ud or ABOUT.match(line))):
            continue
        blanks = line.strip(" \t")  # other spaces, such as the no-break space, may be in a word
        yield number, [] if not blanks else line.split("\t") if of_ud or "\t" in line else re.split(" +", blanks)
