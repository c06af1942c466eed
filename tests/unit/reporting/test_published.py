"""Published scores: what the file holds."""

from babelmill.config.languages import read_table
from babelmill.config.resolve import ROOT
from babelmill.reporting.published import published, read


def test_scores_are_those_of_the_readme_of_the_challenge():
    """Some of each source, as they stand there."""
    multiblimp = {(row.model, row.protocol): row.score for row in published("multiblimp", "nld")}
    assert multiblimp["BabyLM 2026 GPT-2 98M, Dutch", "lm-evaluation-harness"] == 94.72
    filtered = {(row.model, row.protocol): row.score for row in published("blimp_filtered", "eng")}
    assert filtered["BabyLM 2026 GPT-2 98M, 10M words", "BabyLM 2026"] == 65.08
    assert filtered["GPT-BERT mixed, 10M words", "BabyLM 2025 mntp"] == 71.29
    assert filtered["GPT-BERT masked-focus, 100M words", "BabyLM 2025 causal"] == 74.56
    assert published("blimp", "nld") == [] == published("no_suite", "eng")


def test_every_score_is_given_once_with_its_source():
    scores, languages = read(), read_table(ROOT / "config/languages.tsv")
    assert len({row[:4] for row in scores}) == len(scores) > 100
    for row in scores:
        assert row.language in languages and 0 <= row.score <= 100 and min(map(len, (row.model, row.source))) > 3, row
