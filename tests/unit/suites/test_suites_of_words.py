"""Suites of words: the files of reading times and of acquisition, the regressions, the ages, and what is refused."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from babelmill.core.files import UserError
from babelmill.suites import reading
from babelmill.suites.acquisition import share
from babelmill.suites.items import MONTHS, NUMBERS, TEXTS, read_acquisition, read_reading_times
from babelmill.suites.kinds import ReadingTimes
from helpers.suite_files import read_items

pytestmark = pytest.mark.usefixtures("folder")


def reading_table(count: int = 200) -> pa.Table:
    random = np.random.default_rng(0)
    return pa.table({name: random.normal(size=count) + 3 for name in NUMBERS})


def write_csv(name: str, heading, *rows) -> Path:
    Path(name).write_text("".join(",".join(map(str, row)) + "\n" for row in (heading, *rows)))
    return Path(name)


# Reading times.


def test_the_word_before_and_the_first_word_are_read_as_the_challenge_does():
    """An empty text before a word is the text "None", and so is a text "None"; but before the word before, both mean
    that there is no such word."""
    rows = [("", "nothing", "", ""), ("None", "of", "", "None"), ("None of", "the", "None", "of")]
    rows.append(("None of the", "men", "None of", "the"))
    path = write_csv("times.csv", [*TEXTS, *NUMBERS], *([*row, *[1] * len(NUMBERS)] for row in rows))
    table = read_items("reading", [path])
    words, own, before = reading.words_of(table)
    assert [words[i] for i in own][:3] == [("None", "nothing"), ("None", "of"), ("None of", "the")]
    assert before.tolist() == [-1, -1, -1, 2] and len(words) == 4, "each word is scored once"


def test_a_surprisal_without_information_explains_nothing_and_few_rows_are_refused():
    table = reading_table()
    found = reading.summary(table, np.ones(200), np.full(200, 2.0) + np.arange(200) % 3)
    assert found["pairs"] == {"score": 0.0, "n": 200, "interval": [0.0, 0.0]}
    with pytest.raises(UserError, match=r"only 10 rows have all numbers, too few for a regression on 16 predictors"):
        reading.summary(table.slice(0, 10), np.arange(10.0), np.arange(10.0) ** 2)


def test_an_interval_is_moved_by_the_bias_of_its_resamples():
    assert reading.interval(np.array([0.5, 0.6, 0.6, 0.6])) == pytest.approx([0.5, 0.5])


def test_two_models_are_compared_on_the_same_resamples():
    table, random = reading_table(), np.random.default_rng(3)
    before, times = random.normal(size=200), table[reading.SELF_PACED].to_numpy()
    table = table.append_column("causal_prev", pa.array(before))
    surprisals = times + random.normal(size=200), random.normal(size=200)
    sides = [table.append_column("causal", pa.array(each)) for each in surprisals]
    assert ReadingTimes().difference(sides[:1] * 2, ["causal"] * 2) == ("200 words", 0.0, [0.0, 0.0])
    over, value, (low, high) = ReadingTimes().difference(sides, ["causal"] * 2) or ("", 0, (0, 0))
    assert over == "200 words" and 0 < low < value < high


# Age of acquisition.


def test_a_correlation_that_may_be_chance_counts_0():
    weak = {"r": 0.2, "p": 0.2, "n": 40}
    assert share(weak)["score"] == 0 and share(weak | {"p": 0.1})["score"] == 0.2
    assert share(weak)["interval"] == pytest.approx((-0.1186, 0.4809), abs=1e-3), "Fisher's"


ROW = ["a", "b", "", "", *[1] * len(NUMBERS)]


@pytest.mark.parametrize(
    ("heading", "rows", "message"),
    [
        ([*TEXTS[:3], *NUMBERS], [ROW[1:]], r"^t\.csv: it is not the challenge's table: .*'prev_word'"),
        ([*TEXTS, *NUMBERS], [[*ROW[:5], "long", *ROW[6:]]], r"^t\.csv: it is not the challenge's table: .*'long'"),
        ([*TEXTS, *NUMBERS], [ROW, ["a", "", *ROW[2:]]], r"^t\.csv: row 2 has no word; correct the file"),
        ([*TEXTS, *NUMBERS], [], r"^t\.csv: it has no rows"),
    ],
)
def test_bad_files_of_reading_times_are_refused_in_one_line(heading, rows, message):
    with pytest.raises(UserError, match=message):
        read_reading_times(write_csv("t.csv", heading, *rows))


def test_bad_files_of_acquisition_are_refused_in_one_line():
    words, human = Path("words.json"), write_csv("human.csv", ["word", *MONTHS], ["cat", *[0.5] * len(MONTHS)])
    words.write_text('{"dog": [{"context": "a"}]}')
    with pytest.raises(UserError, match=r"^human\.csv: it has none of the 1 words of words\.json \(dog\)$"):
        read_acquisition(words, human)
    with pytest.raises(UserError, match=r"^h\.csv: it is not the challenge's table: .*'16', '17'"):
        read_acquisition(words, write_csv("h.csv", ["word", "31"], ["dog", 1]))
    words.write_text('{"dog": ["no context"]}')
    with pytest.raises(UserError, match=r"^words\.json: expected words with their contexts"):
        read_acquisition(words, human)
    with pytest.raises(UserError, match=r"suites\.mine: a suite of kind acquisition has one file for each of \.json, "):
        read_items("acquisition", [words])
