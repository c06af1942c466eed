"""Scores of items: points, shares with intervals, samples, the headline, and what is kept of a job that was killed."""

import numpy as np
import pyarrow as pa
import pytest

from babelmill.evaluation.suite_scores import chance, headline, headline_method, most_pairs, sample_of
from babelmill.stages import ScoreStage
from babelmill.suites.items import texts_of
from babelmill.suites.kinds import OfSentences
from babelmill.suites.results import mean_of_groups, sample, share, summary, wilson
from helpers.suite_files import pairs_of

CHOICES = OfSentences()


def settings(**values) -> ScoreStage:
    return ScoreStage(**{"languages": ["eng"], "methods": ["causal"], "kind": "choices"} | values)


def table_of(right, paradigms=None, **more) -> pa.Table:
    paradigms = paradigms or ["p"] * len(right)
    options = [["x", "y", "z"]] * len(right)
    columns = {"options": options, "right": right, "phenomenon": [name[0] for name in paradigms], "paradigm": paradigms}
    return pa.table(columns | more)


def test_intervals():
    """Of Wilson: at 85 %, 50 pairs give 73 to 92, 201 give 79 to 89; at the ends it does not leave 0 and 1."""
    assert np.round(wilson(0.85, 50), 2).tolist() == [0.73, 0.92]
    assert np.round(wilson(0.85, 201), 2).tolist() == [0.79, 0.89]
    assert wilson(1.0, 10)[1] == pytest.approx(1) and wilson(1.0, 10)[0] == pytest.approx(0.7225, abs=1e-4)
    assert share(np.array([1, 0.5, 0]))["score"] == 0.5


def test_the_mean_of_groups_weighs_them_alike():
    found = mean_of_groups([np.ones(1000), np.zeros(10)])
    assert found["score"] == 0.5 and found["groups"] == 2 and found["n"] == 1010
    generator = np.random.default_rng(0)
    truth, inside = [0.6, 0.8, 0.95], 0
    for _ in range(400):
        low, high = mean_of_groups([(generator.random(60) < p).astype(float) for p in truth])["interval"]
        inside += low <= np.mean(truth) <= high
    assert 0.92 < inside / 400 < 0.99


def test_a_summary_by_phenomenon_and_paradigm():
    table = table_of([0] * 4, ["ap", "aq", "br", "br"])
    found = summary(table, np.array([1.0, 0, 1, np.nan]))
    assert found["pairs"]["score"] == pytest.approx(2 / 3) and found["pairs"]["n"] == 3, "what has no score is left out"
    assert {name: each["score"] for name, each in found["by_phenomenon"].items()} == {"a": 0.5, "b": 1}
    assert {name: each["n"] for name, each in found["by_paradigm"].items()} == {"ap": 1, "aq": 1, "br": 1}


def test_paradigms_of_a_sample_count_as_they_do_among_all_pairs():
    """900 pairs of which 90 % are right, 100 of which 10 % are: 82 %, and not the 50 % of as many of both."""
    table = table_of([0] * 1000, ["1large"] * 900 + ["1small"] * 100)
    points = np.full(1000, np.nan)
    points[:10], points[900:910] = [1] * 9 + [0], [1] + [0] * 9
    found = summary(table, points, sampled=True)
    assert found["pairs"]["score"] == pytest.approx(0.82) == found["by_phenomenon"]["1"]["score"]
    assert found["pairs"]["n"] == 20 and found["paradigms"]["score"] == pytest.approx(0.5)
    assert found["pairs"]["interval"][0] < 0.7 < 0.9 < found["pairs"]["interval"][1]
    assert summary(table, points)["pairs"]["score"] == 0.5, "what is too long is left out"


def test_the_mean_of_phenomena_is_the_mean_of_the_means_of_their_paradigms():
    table = table_of([0] * 6, ["a1", "a1", "a2", "b1", "b1", "b1"], causal_points=[1.0, 1, 0, 0, 0, 1])
    entry = CHOICES.summary(table, "causal", settings(headline="phenomena"))
    assert entry["phenomena"]["score"] == pytest.approx((0.5 * (1 + 0) + 1 / 3) / 2)
    assert entry["pairs"]["score"] == pytest.approx(0.5) and entry["by_paradigm"]["b1"]["n"] == 3
    assert "phenomena" not in CHOICES.summary(table, "causal", settings(headline="paradigms"))


def test_options_with_equal_scores_share_the_point_or_the_first_or_none_gets_it():
    scores = np.array([[-1.0, -1, -2, 0], [-1, -1, -1, 0], [-3, -1, -1, 0], [-1, -2, -2, 0], [np.nan] * 4])
    table = table_of([0, 1, 0, 0, 0])
    for ties, expected in (("half", [0.5, 1 / 3, 0, 1]), ("first", [1, 0, 0, 1]), ("wrong", [0, 0, 0, 1])):
        found = CHOICES.with_scores(table, "causal", scores, settings(ties=ties))
        points = CHOICES.points(found, "causal")
        assert points[:4] == pytest.approx(expected) and np.isnan(points[4])
        assert found["causal"].to_pylist()[4] is None
    unknown = table.append_column("unknown", pa.array([True, False, False, True, True]))
    points = CHOICES.points(CHOICES.with_scores(unknown, "causal", scores, settings()), "causal")
    assert points[:4] == pytest.approx([0, 1 / 3, 0, 0]) and np.isnan(points[4])


def test_a_sample_is_of_each_paradigm_and_the_same_in_any_order():
    goods, bads = ([f"{side}{i}" for i in range(60)] for side in "gb")
    table = pairs_of(goods, bads, [f"p{i % 3}" for i in range(60)])

    def taken_of(table, most, codes=("eng",) * 60):
        return sample(table.append_column("language", pa.array(codes[: len(table)])), texts_of(table), most)

    taken = taken_of(table, 7)
    assert np.bincount(np.arange(60)[taken] % 3).tolist() == [7, 7, 7]
    assert taken_of(table[::-1], 7)[::-1].tolist() == taken.tolist()
    assert taken_of(table, 100).all() and taken_of(table, None).all()
    each = [*taken_of(table[:30], 7), *taken_of(table[30:], 7)]
    assert taken_of(table, 7, ["eng"] * 30 + ["deu"] * 30).tolist() == each, "each language has its own"


def test_the_headline_is_the_most_precise_score():
    """Fused where all is scored; where masked scores are a sample, causal; also in files that say otherwise."""

    def scores(fused: int, causal: int, named: str = "fused"):
        methods = {name: {"pairs": {"n": n, "score": n / 100}} for name, n in (("causal", causal), ("fused", fused))}
        return {"headline": {"method": named, "of": "pairs"}, "languages": {"eng": {"methods": methods}}}

    assert headline_method(scores(50, 50)) == "fused" and headline_method(scores(50, 50, "causal")) == "causal"
    assert headline_method(scores(10, 50)) == "causal" and headline(scores(10, 50), "eng") == {"n": 50, "score": 0.5}
    one = scores(10, 50)
    one["languages"]["deu"] = {"methods": {"causal": {"pairs": None}, "fused": {"pairs": {"n": 90}}}}
    assert headline_method(one) == "fused", "one method for all languages"


def test_how_many_pairs_a_method_scores_and_when_they_are_a_sample():
    assert most_pairs({"max_masked_items": "all"}, "masked") is None is most_pairs({"max_masked_items": 5}, "causal")
    assert (
        most_pairs({"max_items": 9, "max_masked_items": "all"}, "causal") == 9 == most_pairs({"max_items": 9}, "masked")
    )
    assert [most_pairs({"max_items": 9, "max_masked_items": n}, "fused") for n in (5, 20)] == [5, 9]

    def scores(n):
        methods = {"causal": {"pairs": {"n": 30}}, "masked": {"pairs": {"n": n}}}
        return {"max_masked_items": 5, "languages": {"eng": {"pairs": {"pairs": 30}, "methods": methods}}}

    assert sample_of(scores(30), "masked") == "" == sample_of(scores(10), "causal"), "paradigms may be smaller"
    assert sample_of(scores(10), "masked") == "sample of 5 pairs of each paradigm"


def test_chance():
    scores = {"kind": "choices", "languages": {"eng": {"pairs": {"chance": 0.4}}}}
    assert chance(scores) == 0.4
    assert chance(scores | {"measure": "partial R²"}) == 0
