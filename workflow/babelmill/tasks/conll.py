"""Read sentences whose words have labels: CoNLL-U files of Universal Dependencies, and CoNLL files of other projects.

Both have a word per line and an empty line after each sentence. The package `conllu` reads the first kind; but its
errors say neither the file nor the line, and it cannot read the second.

What a reader of the file would see at once is refused with its line: a heading, numbers or `_` for words, and a missing
empty line. Otherwise a model would learn from it, and its score would look like any other.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mode

import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.tables.text import read_text
from babelmill.tasks.rows import label_of
from babelmill.tokens.label_text import NO_LABEL

SCHEMA = pa.schema([("words", pa.list_(pa.string())), ("labels", pa.list_(pa.string()))])
NUMBERS = {"upos": 4, "xpos": 5}  # the columns of CoNLL-U, counted from 1
FORM = 2
ABOUT = re.compile(r"#\s*[\w.:]+\s*=")  # a comment such as "# sent_id = 7"
HEADING = {"word", "words", "token", "tokens", "form", "text"}  # what a heading calls the words
NO_WORD = "_"  # stands in CoNLL-U for what is not known, and for words of texts that may not be given out
LONGEST, ALONE = 1000, 100  # words that no sentence has; and that no sentence has which is alone in its file


def read_sentences(path: Path, columns: dict[str, str], task: str) -> pa.Table:
    """Read the sentences of a file, plain or compressed: a table with the columns of SCHEMA.

    Files that end in .conllu have the columns of CoNLL-U. A UserError names the line that is not what it should be.
    """
    of_ud, where = split_name(path)[0] == ".conllu", escape.line(path)
    label = NUMBERS.get(columns["label"], 0) if of_ud else 0
    if not label and not columns["label"].isdecimal():
        allowed = "upos, xpos or the number of a column" if of_ud else "a number of a column; this is no .conllu file"
        raise UserError(f"{where}: tasks.{task}.label = {columns['label']!r}: set {allowed}")
    label = label or int(columns["label"])
    word = int(columns.get("word", FORM if of_ud else 1))
    lines = [*_lines(read_text(path), of_ud)]
    width = 10 if of_ud else mode([len(cells) for _, cells in lines if cells] or [0])
    for key, place in (("word", word), ("label", label)):
        if lines and place > width:
            raise UserError(
                f"{where}: tasks.{task}.{key} = {place}, but the lines have {width} columns; correct the number"
            )
    wide = [cells for _, cells in lines if len(cells) == width]
    unknown = {*NO_LABEL, NO_WORD} if of_ud else NO_LABEL
    labels = Counter(cells[label - 1] for cells in wide if not cells[0].startswith("#"))
    if wide and all(cells[word - 1].isdecimal() for cells in wide):
        raise UserError(f"{where}: column {word} has numbers only; set tasks.{task}.word to the column of the words")
    if wide and not of_ud and wide[0][word - 1].lower() in HEADING and labels[wide[0][label - 1]] == 1 < len(wide):
        raise UserError(f"{where}: its first line with columns is a heading, {escape.some(wide[0])}; remove it")
    sentences: list[list[tuple[int, str, str]]] = [[]]  # of each word: its line, the word and its label
    for number, cells in lines:
        sentence, at = sentences[-1], f"{where}: line {number}"
        if not cells:
            sentences.append([])
            continue
        if cells[0].startswith("#") and (len(cells) != width or not (sentence or labels[cells[label - 1]])):
            continue  # a comment: of another width, or before a sentence with a label that no word has
        if len(cells) != width:
            wanted = "the 10 of CoNLL-U, with tabs between them" if of_ud else f"the {width} that most lines have"
            raise UserError(f"{at} has {len(cells)} columns and not {wanted}; correct the file")
        if of_ud and re.fullmatch(r"\d+[-.]\d+", cells[0]):  # 1-2: several words; 3.1: a word that is not written
            continue
        if of_ud and cells[0] != str(len(sentence) + 1):
            raise UserError(
                f"{at}: the ID {cells[0]!r} is not {len(sentence) + 1}; correct it, or put an empty line between two"
                " sentences"
            )
        if not cells[word - 1].strip():
            raise UserError(f"{at}: column {word}, of the word, is empty; correct the file")
        name = label_of(cells[label - 1], f"{at}: column {label}, of the label,", unknown)
        sentence.append((number, cells[word - 1], name))
    sentences, rows = [each for each in sentences if each], []
    most = LONGEST if len(sentences) > 1 else ALONE
    for each in sentences:
        (first, *_), words, names = zip(*each, strict=True)
        at = f"{where}: line {first}"
        if {*words} == {NO_WORD}:
            raise UserError(f"{at}: all words of this sentence are '_': restore the text, or leave it out")
        if len(words) > most:
            raise UserError(f"{at}: a sentence of {len(words):,} words; put an empty line after each sentence")
        rows.append({"words": words, "labels": names})
    return pa.Table.from_pylist(rows, SCHEMA)


def _lines(text: str, of_ud: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the columns of each line but comments known as such; between sentences, there are none.

    A `#` may also be a word, so not all lines that begin with it are comments.
    """
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if line.startswith("-DOCSTART-") or (line.startswith("#") and (of_ud or ABOUT.match(line))):
            continue
        blanks = line.strip(" \t")  # other spaces, such as the no-break space, may be in a word
        yield number, [] if not blanks else line.split("\t") if of_ud or "\t" in line else re.split(" +", blanks)
