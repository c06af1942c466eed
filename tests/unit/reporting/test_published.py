"""Published scores: what the file holds, and how a mistake in it is refused."""

import copy

import pytest
import yaml

from babelmill.config.languages import read_table
from babelmill.config.resolve import ROOT, Configuration
from babelmill.core.files import UserError
from babelmill.core.yaml_file import read_yaml
from babelmill.reporting.published import FILE, published, read

SMALL = {
    "sources": {"paper": "a paper"},
    "models": {"gpt": {"title": "GPT", "preset": "gpt2_30m"}, "bert": {"title": "BERT"}},
    "tables": [
        {
            "suite": "blimp",
            "language": "eng",
            "protocol": "harness",
            "source": "paper",
            "scores": {"gpt": 70, "bert": 61.5},
        }
    ],
}


def test_scores_are_those_of_the_readme_of_the_challenge():
    """Some of each source, as they stand there."""
    multiblimp = {(row.model, row.protocol): row.score for row in published("multiblimp", "nld")}
    assert multiblimp["BabyLM 2026 GPT-2 98M, Dutch", "lm-evaluation-harness"] == 94.72
    filtered = {(row.model, row.protocol): row.score for row in published("blimp_filtered", "eng")}
    assert filtered["BabyLM 2026 GPT-2 98M, 10M words", "BabyLM 2026"] == 65.08
    assert filtered["GPT-BERT mixed, 10M words", "BabyLM 2025 mntp"] == 71.29
    assert filtered["GPT-BERT masked-focus, 100M words", "BabyLM 2025 causal"] == 74.56
    assert published("blimp", "nld") == [] == published("no_suite", "eng")


def test_every_score_has_a_source_and_a_preset_that_exists():
    presets = {path.stem for path in (ROOT / "config/presets").glob("*.yaml")}
    languages = read_table(ROOT / "config/languages.tsv")
    for row in read(FILE):
        assert row.source and row.language in languages and row.preset in presets | {None}, row
    assert {row.preset for row in read(FILE)} >= {f"gptbert_2025_{kind}" for kind in ("masked", "mixed", "causal")}


def test_the_baselines_of_suites_are_among_the_published_scores():
    """Both are data about the same models: neither may say what the other does not."""
    configuration = Configuration([])
    for path in (ROOT / "config/suites").glob("*.yaml"):
        for baseline in configuration.suite(path.stem).baselines:
            found = {(row.protocol, row.score) for row in published(path.stem, baseline.language)}
            assert (baseline.pipeline, baseline.score) in found, f"{path.name}: {baseline}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v["tables"][0].pop("source"), "tables.0.source: this key is missing"),
        (lambda v: v["tables"][0].update(score=3), "unknown key tables.0.score; did you mean scores"),
        (lambda v: v["tables"][0]["scores"].update(gpt=170), "tables.0.scores.gpt = 170: input should be less than"),
        (lambda v: v["tables"][0]["scores"].update(gpt="high"), "tables.0.scores.gpt = 'high': "),
        (
            lambda v: v["tables"][0].update(source="papper"),
            "tables.0.source = 'papper' is not known; did you mean paper",
        ),
        (lambda v: v["tables"][0].update(language="enk"), "tables.0.language = 'enk' is not known; did you mean eng"),
        (lambda v: v["tables"][0]["scores"].update(ber=1), "tables.0.scores.ber: `models` has no .*did you mean bert"),
        (lambda v: v["tables"].append(v["tables"][0]), "tables.1.scores.gpt: an earlier table has this score, too"),
        (lambda v: v.pop("models"), "wrong.yaml: models: this key is missing"),
    ],
)
def test_a_mistake_is_refused_in_one_line(tmp_path, change, message):
    values, path = copy.deepcopy(SMALL), tmp_path / "published.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    assert [row.score for row in published("blimp", "eng", path)] == [70, 61.5]
    change(values)
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    with pytest.raises(UserError, match=message) as refused:
        published("blimp", "eng", path)
    assert str(refused.value).startswith(f"{path}: ") and "\n" not in str(refused.value)


def test_a_model_that_appears_twice_in_a_table_is_refused(tmp_path):
    path = tmp_path / "published.yaml"
    path.write_text("sources: {}\nmodels: {}\ntables: [{scores: {gpt: 1, gpt: 2}}]\n")
    with pytest.raises(UserError, match=r"the key gpt appears twice"):
        read(path)
    assert read_yaml(FILE)
