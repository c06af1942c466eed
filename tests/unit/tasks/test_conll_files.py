"""What is read of CoNLL-U and CoNLL files, and what ends in a line: broken files, and what is no sentence of words."""

import gzip

import pytest

from babelmill.core.files import UserError
from babelmill.tasks.conll import read_sentences

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
UD = {"name": "es.conllu", "label": "upos"}


def read(folder, text: str, name: str = "a.conll", **columns: str) -> list[tuple[list[str], list[str]]]:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    table = read_sentences(path, {"label": "4"} | columns, "mine")
    return [(row["words"], row["labels"]) for row in table.to_pylist()]


def test_universal_dependencies(tmp_path):
    first, second = read(tmp_path, SPANISH, **UD)
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
    assert read(tmp_path, NAMES.replace("Peter", "# of four words\nPeter")) == names, "as wide as the words"
    assert read(tmp_path, "B-PER\tAda\nO\tis 7\n", label="1", word="2") == [(["Ada", "is 7"], ["B-PER", "O"])]


@pytest.mark.parametrize(
    ("text", "columns", "line"),
    [
        (NAMES.replace(" B-ORG", ""), {}, "line 3 has 3 columns and not the 4 that most lines have; correct"),
        (NAMES, {"label": "7"}, r"tasks\.mine\.label = 7, but the lines have 4 columns; correct the number"),
        (NAMES, {"label": "upos"}, r"tasks\.mine\.label = 'upos': set a number of a column; this is no \.conl"),
        ("a O\nb NA\n", {"label": "2"}, "line 2: column 2, of the label, is 'NA', which stands for no label; leave"),
        ("a O\n" * 5 + "\0 O\n", {"label": "2"}, "line 6: has a NUL; remove it"),
        ("Token Tag\na O\nb B-X\n", {"label": "2"}, "its first line with columns is a heading, Token, Tag; remove it"),
        ("1 a O\n2 b X\n\n1 c O\n", {"label": "3"}, r"column 1 has numbers only; set tasks\.mine\.word to the column"),
        ("a O\n" * 101, {"label": "2"}, "line 1: a sentence of 101 words; put an empty line after each sentence"),
        ("a O\n\n" + "b O\n" * 1001, {"label": "2"}, "line 3: a sentence of 1,001 words; put an empty line"),
        (
            SPANISH.replace("\tVERB\tv", " VERB v"),
            UD,
            "line 4 has 8 columns and not the 10 of CoNLL-U, with tabs between",
        ),
        (SPANISH.replace("\n\n1\t#", "\n1\t#"), UD, "line 11: the ID '1' is not 6; correct it, or put an empty line"),
        (SPANISH.replace("2\tnos", "2\t"), UD, "line 5: column 2, of the word, is empty"),
        (SPANISH.replace("\tSYM", "\t_"), UD, "line 12: column 4, of the label, is '_', which stands for no label"),
        ("1\t_\t_\tX\t_\t_\t0\troot\t_\t_\n", UD, "line 1: all words of this sentence are '_'"),
    ],
)
def test_broken_files(tmp_path, text, columns, line):
    with pytest.raises(UserError, match=rf"(a\.conll|es\.conllu): {line}"):
        read(tmp_path, text, **columns)
