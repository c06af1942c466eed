"""Published scores: what the file holds."""

from babelmill.config.languages import read_table
from babelmill.config.resolve import ROOT
from babelmill.reporting.published import published, read


def test_every_score_is_given_once_with_its_source_and_as_it_stands_there():
    scores, languages = {row[:4]: row.score for row in read()}, read_table(ROOT / "config/languages.tsv")
    assert len(scores) == len(read()) > 100
    for row in read():
        assert row.language in languages and 0 <= row.score <= 100 and min(map(len, (row.model, row.source))) > 3, row
    assert scores["BabyLM 2026 GPT-2 98M, Dutch", "nld", "multiblimp", "lm-evaluation-harness"] == 94.72
    for model, protocol, score in (
        ("BabyLM 2026 GPT-2 98M, 10M words", "BabyLM 2026", 65.08),
        ("GPT-BERT mixed, 10M words", "BabyLM 2025 mntp", 71.29),
        ("GPT-BERT masked-focus, 100M words", "BabyLM 2025 causal", 74.56),
    ):
        assert scores[model, "eng", "blimp_filtered", protocol] == score
    assert published("blimp", "nld") == [] == published("no_suite", "eng")
