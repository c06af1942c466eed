"""Text from outside, as it is written into lines, Markdown and .csv files."""

from babelmill.core import escape


def test_a_terminal_obeys_nothing_in_a_line():
    assert escape.line("a\x1b[2Jb\nc\u202ed\ud800") == "a\\x1b[2Jb\\nc\\u202ed\\ud800"
    assert escape.line("zażółć می\u200cخواهم 漢字") == "zażółć می\u200cخواهم 漢字"
    assert escape.line("x" * 12, 10) == "xxxxxxxxxx... (12 characters)"


def test_a_long_list_ends_with_a_count():
    assert escape.some("abc") == "a, b, c"
    assert escape.some(range(1_000_000)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 999,990 more"


def test_markdown_shows_the_text_and_does_nothing():
    hostile = "mit |\n\n<script>alert(1)</script>\n---\n[x](https://a.b) # *h*"
    shown = escape.markdown(hostile)
    assert "\n" not in shown
    assert "://" not in shown
    assert shown.startswith("mit \\| \\<script\\>")
    assert "\\[x\\](" in shown


def test_a_spreadsheet_runs_no_cell():
    assert escape.csv_cell("=cmd|'/c calc'!A1") == "'=cmd|'/c calc'!A1"
    assert escape.csv_cell(-1.5) == -1.5
    assert escape.csv_cell("plain\x1b[31m") == "plain\\x1b[31m"
