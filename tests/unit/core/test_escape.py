"""Text from outside, as it is written into lines, Markdown and .csv files."""

import ast
import html
import random
import re

import pytest
from markdown_it import MarkdownIt

from babelmill.core import escape

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])  # it keeps HTML
# What Markdown, HTML, tables, links, formulas and front matter are made of.
PIECES = [*"\\`*_{}[]<>#|~&!$^=+-.():;/@\"' \n\t", "a", "b1", "1.", "2)", "---", "***", "~~", "``", "```", "\\(", "$$"]
PIECES += ["http://x.y", "https://a.b/c|d", "<http://z.w>", "ftp://q.r", "www.a.bc", "a@b.cd", "mailto:", "xmpp:a@b.c"]
PIECES += ["<script>", "</td>", "<!--", "-->", "&lt;", "&#33;", "&amp", "[x](y)", "![i](j)", "[^1]", "漢字", "é"]
HOSTILE = "mit |\n\n<script>alert(1)</script>\n---\n[x](https://a.b) # *h*"


def page(text: str) -> tuple[list[str], str]:
    """Return the tags and the text of the HTML that Markdown gives."""
    made = RENDERER.render(text)
    return re.findall(r"<([^/\s>][^\s>]*)", made), " ".join(html.unescape(re.sub("<[^>]*>", "", made)).split())


def texts(count: int) -> list[str]:
    draw = random.Random(7)
    made = ("".join(draw.choices(PIECES, k=draw.randint(1, 9))) for _ in range(count))
    return [HOSTILE, *(text for text in made if text.strip())]


def test_a_terminal_obeys_nothing_in_a_line():
    assert escape.line("a\x1b[2Jb\nc\u202ed\ud800") == "a\\x1b[2Jb\\nc\\u202ed\\ud800"
    assert escape.line("zażółć می\u200cخواهم 漢字") == "zażółć می\u200cخواهم 漢字"
    assert escape.line("x" * 12, 10) == "xxxxxxxxxx... (12 characters)"
    assert escape.terminal("a\tb\x1b]0;title\x07\n\r\n") == "a\tb\\x1b]0;title\\x07\n\\r\n", "tables stay"
    assert escape.plain({"license": "mit\n---\n# x", "n": ["\x1b"]}) == {"license": "mit --- # x", "n": ["\\x1b"]}


def test_a_message_shows_no_key_of_an_address_and_no_line_of_it_looks_like_another():
    forged = "first\n  second\\x1b[2J\n  12:00:00 forged\\rx"
    assert escape.lines("first\n  second\x1b[2J\n12:00:00 forged\rx") == forged
    text = (
        "GET 'https://host/a?X-Amz-Signature=1f&b=2' of s3://somebody:se/cret@bucket, https://me:pw@h/x\nhttp://h?t=1."
    )
    shown = escape.lines(text)
    assert shown.startswith("GET 'https://host/a?***' of s3://"), shown
    assert "https://***@h/x\n  http://h?***." in shown
    shown = escape.lines("https://hf_token@host/x: see https://host/b#access_token=1f with url: /p?sig=1f (and")
    assert shown == "https://***@host/x: see https://host/b#*** with url: /p?*** (and"
    for plain in ("is it s3://bucket/a? no: see https://host/b#c", "file:///data/part-??.jsonl", "(?i:a=b) #n=3"):
        assert escape.lines(plain) == plain
    assert escape.lines("(https://h/p?sig=a), and") == "(https://h/p?***), and", "the text's own punctuation stays"


@pytest.mark.parametrize("write", [escape.markdown, escape.code])
def test_a_renderer_shows_exactly_the_text(write):
    """In front of, behind and between other text, and in a table: no tag, link, entity, formula or row is added."""
    for text in texts(1500):
        written, shown = write(text), escape.line(" ".join(text.split()))
        if write is escape.code or written.startswith("`"):
            shown = shown.replace("\\|", "\\x5c|")
        assert "\n" not in written
        for around in ("{}", "x {} y"):
            tags, found = page(around.format(written))
            assert {*tags} <= {"p", "code"} and found == around.format(shown), (text, written)
        tags, found = page(f"| x | y |\n|---|---|\n| {escape.cell(written)} | z |")
        assert " ".join(tag for tag in tags if tag != "code") == "table thead tr th th tbody tr td td"
        assert found.replace(" ", "") == f"xy{shown}z".replace(" ", ""), (text, written)


def test_plain_text_stays_readable_and_the_hub_makes_no_formula_of_text():
    """It takes `\\\\(` and `$$` for the beginning of a formula, before it reads the Markdown."""
    for text in ("cc-by-4.0", "Zhuang (Guibei)", "GPT-2 98M", "85.3", "a: b", "1.5 MB, 2 files", "Ελληνικά"):
        assert escape.markdown(text) == text
    assert "\\\\(" not in escape.markdown("\\(x\\)") and "$$" not in escape.markdown("$$x$$")


FORMULAS = ["=cmd|'/c calc'!A1", "+cmd|x", "-2+3+cmd|x", "@SUM(1)", "\t=1", "\r\n=1", " =1", "'=1", "''@x"]
HARMLESS = ["-1", "+5", "-1.5e-3", "+46 70 123 45", "-", "+", "E11.0", "a=b", "'quoted'", "", "two\nlines", "0110"]


def test_a_spreadsheet_runs_no_cell_and_different_texts_are_different_cells():
    assert [escape.csv_cell(text) for text in FORMULAS] == [f"'{text}" for text in FORMULAS]
    for value in [*HARMLESS, -1.5, None, 3, "می\u200cخواهم"]:
        assert escape.csv_cell(value) is value
    assert escape.csv_cell("plain\x1b[31m\x9b\ud800") == "plain\\x1b[31m\\x9b\\ud800"
    given = {*FORMULAS, *HARMLESS, *(f"'{text}" for text in FORMULAS)}
    assert len({escape.csv_cell(text) for text in given}) == len(given)


def test_a_literal_of_python_is_the_text():
    for text in [*texts(300), 'say "no"', "it's", "both ' and \"", "a\x1b\n\u202e", "<mask>"]:
        literal = escape.python(text)
        assert ast.literal_eval(literal) == text and literal.isprintable()
    assert escape.python("<mask>") == '"<mask>"'


def test_a_long_list_ends_with_a_count():
    assert escape.some("abc") == "a, b, c"
    assert escape.some(range(1_000_000)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 999,990 more"
