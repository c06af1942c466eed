"""The scores of a model that was fine-tuned with several seeds."""

import itertools

import pytest
from scipy.stats import t as student

from babelmill.evaluation.tuned_scores import summarize

ENTRY = {"n": 50, "interval": [0.4, 0.6], "test_rows_in_train": 0, "test_rows_without_text": 0, "rows": {"test": 50}}
ENTRY |= {"most_frequent": 0.45, "steps": 30}


def of_seeds(metric, *scores, same=(), **more):
    """The summary of a task with one run per score; `same`: the class that each run gives all rows."""
    about = {"task": "rte", "protocol": "sound", "metric": metric}
    entries = ({"score": score, "majority": of} for score, of in itertools.zip_longest(scores, same))
    (found,) = summarize(about | {"languages": {"eng": ENTRY | more | entry}} for entry in entries)
    return found


def test_each_class_that_seeds_give_all_rows_is_named():
    same = [{"class": "no", "share": 0.6}, None, {"class": "yes", "share": 0.4}]
    found = of_seeds("accuracy", 0.5, 0.5, 0.5, same=same, test_rows_in_train=3)
    assert found.warning == 'majority class "no", 60.0 % or "yes", 40.0 % in 2 of 3 seeds'
    assert found.remarks == f"{found.warning}; 3 of 50 test rows also trained on"
    assert of_seeds("accuracy", 0.5).remarks == ""
    assert of_seeds("accuracy", 0.5, 0.4).remarks == "no better than the most frequent class"


def test_the_interval_is_students_and_ends_where_scores_end():
    found = of_seeds("accuracy", 0.5, 0.6, 0.7)
    half = student.ppf(0.975, 2) * 0.1 / 3**0.5
    assert found.interval == pytest.approx((0.6 - half, 0.6 + half))
    high, low = of_seeds("f1", 0.9, 1.0), of_seeds("f1", 0.0, 0.1)
    assert high.interval[1] == 1.0 and low.interval[0] == 0.0, "not 158.5 and -58.5"
    assert high.text.endswith("(31.5 to 100.0), most frequent class 45.0, 2 seeds of 30 steps, n = 50")
    assert -1 < of_seeds("mcc", 0.0, 0.05).interval[0] < 0, "a correlation may be negative"
    assert of_seeds("mcc", -0.5, 0.5).interval == (-1.0, 1.0)
