"""What is read of CoNLL-U and CoNLL files, how rows are divided anew, and broken files: one line each."""

import gzip

import pyarrow as pa
import pytest
from babelmill.tasks.resplit import resplit

from babelmill.core.files import UserError
from babelmill.stages import TaskStage
from babelmill.task import figures_of_sentences
from babelmill.tasks.conll import SCHEMA, read_sentences

# A sentence of the guidelines of Universal Dependencies: "vámonos" is two words; 5.1 is a word that is not written.
SPANISH = """# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\tv\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tp\t_\t1\tobj\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\ts\t_\t5\tcase\t_\t_
4\tel\tel\tDET\td\t_\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\tn\t_\t1\tobl\t_\t_
5.1\tir\tir\tVERB\tv\t_\t_\t_\t_\t_

1\t#\t#\tSYM\tx\t_\t0\troot\t_\t_
2\t10 000\t10000\tNUM\tm\t_\t1\tnummod\t_\t_
"""
# As CoNLL-2003: the label is the last of four columns, with one space between them.
NAMES = """-DOCSTART- -X- O O

EU NNP I-NP B-ORG
rejects VBZ I-VP O
# NN I-NP O

Peter NNP I-NP B-PER
Blackburn NNP I-NP I-PER
"""


def read(folder, text: str, name: str = "a.conll", **columns: str) -> list[tuple[list[str], list[str]]]:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    table = read_sentences([path], {"label": "4"} | columns, "mine")
    return [(row["words"], row["labels"]) for row in table.to_pylist()]


def test_universal_dependencies(tmp_path):
    first, second = read(tmp_path, SPANISH, "es.conllu", label="upos")
    assert first == (["vamos", "nos", "a", "el", "mar"], ["VERB", "PRON", "ADP", "DET", "NOUN"])
    assert second == (["#", "10 000"], ["SYM", "NUM"])
    found = read(tmp_path, SPANISH.replace("\n", "\r\n"), "es.conllu.gz", label="xpos")
    assert found == [(first[0], ["v", "p", "s", "d", "n"]), (second[0], ["x", "m"])]


def test_columns_of_other_files(tmp_path):
    """Spaces or tabs; `#` may be a word or a comment, of which some say what they are; the last line may have no end."""
    names = [(["EU", "rejects", "#"], ["B-ORG", "O", "O"]), (["Peter", "Blackburn"], ["B-PER", "I-PER"])]
    assert read(tmp_path, NAMES) == read(tmp_path, NAMES.rstrip("\n").replace(" ", "\t"), "eng.testa") == names
    spaces = NAMES.replace("Peter", "10\u00a0000\u2009000")
    assert read(tmp_path, spaces)[1][0] == ["10\u00a0000\u2009000", "Blackburn"], "only blanks and tabs separate"
    comments = NAMES.replace("EU", "# id = 7 O\n# a comment\n# a longer comment of seven words\n\n\nEU")
    assert read(tmp_path, comments) == names
    assert read(tmp_path, "B-PER\tAda\nO\tis 7\n", label="1", word="2") == [(["Ada", "is 7"], ["B-PER", "O"])]


@pytest.mark.parametrize(
    ("text", "columns", "line"),
    [
        (
            NAMES.replace(" B-ORG", ""),
            {},
            r"a\.conll: line 3 has 3 columns and not the 4 that most lines have; correct",
        ),
        (NAMES, {"label": "7"}, r"a\.conll: tasks\.mine\.label = 7, but the lines have 4 columns; correct the number"),
        (
            NAMES,
            {"label": "upos"},
            r"a\.conll: tasks\.mine\.label = 'upos': set a number of a column; this is no \.conl",
        ),
        ("a\t\nb\tO\n", {"label": "2"}, r"a\.conll: line 1: column 2, of the label, is empty; correct the file"),
        ("\n\n", {}, r"a\.conll: tasks\.mine: these files have no sentence"),
        ("a O\n" * 5 + "\0 O\n", {"label": "2"}, r"a\.conll: line 6: has a NUL; remove it"),
    ],
)
def test_broken_files(tmp_path, text, columns, line):
    with pytest.raises(UserError, match=line):
        read(tmp_path, text, **columns)


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("\tVERB\tv", " VERB v", r"es\.conllu: line 4 has 8 columns and not the 10 of CoNLL-U, with tabs between them"),
        ("2\tnos", "two\tnos", r"es\.conllu: line 5: the ID 'two' is no number; correct the file"),
        ("2\tnos", "2\t", r"es\.conllu: line 5: column 2, of the word, is empty"),
    ],
)
def test_broken_treebanks(tmp_path, before, after, line):
    with pytest.raises(UserError, match=line):
        read(tmp_path, SPANISH.replace(before, after, 1), "es.conllu", label="upos")


def test_labels_that_only_the_test_words_have(caplog):
    """A rare one is a class that counts as wrong; many are a mistake. Names need labels that mark them."""

    def figures(labels: list[str], **settings) -> dict:
        train = [{"words": ["a", "b"], "labels": ["A", "B"]}]
        test = [{"words": ["a"] * len(labels), "labels": labels}]
        tables = {"train": pa.Table.from_pylist(train, SCHEMA), "test": pa.Table.from_pylist(test, SCHEMA)}
        asked = TaskStage(languages=["eng"], task="mine", **settings)
        return figures_of_sentences(tables, asked)

    assert figures(["A"] * 99 + ["C"])["classes"] == ["A", "B", "C"]
    assert "labels that no training word has: C; 1 such word count" in caplog.text
    with pytest.raises(UserError, match="mine, eng: the test words have labels that no training word has: C; the clas"):
        figures(["A"] * 98 + ["C"] * 2)
    with pytest.raises(
        UserError, match=r"metric = span_f1 needs labels such as B-PER, I-PER and O; these files have A, B; set"
    ):
        figures(["A"], spans=True)


def test_rows_are_divided_as_in_the_multilingual_track():
    """The numbers are those of its `make_pos_split` with 50 rows, of which 40 are kept, and the seed 42."""
    parts = resplit(pa.table({"row": [*range(50)]}), 40, 42)
    found = {name: table["row"].to_pylist() for name, table in parts.items()}
    assert found["train"][:8] == [41, 32, 9, 34, 6, 26, 37, 42] and len(found["train"]) == 32
    assert found["test"] == [4, 45, 22, 30] and found["predicted"] == [29, 39, 35, 27]
