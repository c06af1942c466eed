"""What a report reads from results that are odd: of earlier versions, without phenomena, of another model."""

import shutil

import pytest
import yaml

import report_results
from babelmill.config import loading
from babelmill.core.files import UserError, read_json, write_json
from babelmill.reporting.asked import asked_of
from babelmill.reporting.page import page
from babelmill.reporting.results import Model, read_all
from babelmill.reporting.table import rows_of


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The results of a model, in this folder."""
    monkeypatch.chdir(tmp_path)
    values = {"preset": "tiny", "evaluation": {"suites": ["blimp"]}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    found = asked_of(loading.load(["config.yaml"]), "eng")
    report_results.make(tmp_path, "eng", ["eng"], {"blimp": ["eng"]})
    return found


def there(asked) -> Model:
    (model,) = read_all(asked, {"eng": ("stopped (train)", "")})
    return model


def test_an_evaluation_of_an_earlier_version(asked):
    model = there(asked)
    assert model.evaluation and model.evaluation.pop("metrics")
    assert "1 model: 1 stopped (train)" in page(asked, [model])


def test_the_headline_is_that_of_the_scores_where_pairs_have_no_phenomenon(asked):
    model = there(asked)
    of_language = model.scores["blimp"]["languages"]["eng"]["methods"]
    headline = of_language["fused"]["paradigms"]
    rest = {"score": 0.1, "n": 7, "interval": [0.0, 0.4]}
    for groups in ({"all": rest}, {"all": rest, "binding": rest}):
        for method in of_language.values():
            method["by_phenomenon"] = groups
        rows = [row for row in rows_of(model) if (row.suite, row.method) == ("blimp", "fused")]
        assert [row.score for row in rows if row.phenomenon == "all"] == [headline["score"]]
    assert [row.phenomenon for row in rows] == ["all", "unnamed", "binding"]


def test_a_sample_is_said_wherever_its_scores_stand(asked):
    model = there(asked)
    assert "sample" not in page(asked, [model])
    model.scores["blimp"]["masked_pairs"] = 50
    overview, _, rest = page(asked, [model]).partition('id="suites"')
    assert "BLiMP: masked scores of a sample of at most 50 pairs of each paradigm" in overview
    assert "masked scores from a sample of at most 50 pairs" in rest


def test_scores_of_another_model_are_none_of_this_one(asked):
    about = read_json("results/exports/eng/manifest.json")
    write_json("results/exports/eng/manifest.json", about | {"figures": {"exported": "again"}})
    model = there(asked)
    assert model.evaluation is None and not model.scores and model.record
    assert "results/scores/eng/blimp: was not made from the present results/exports/eng" in model.problems[1]
    with pytest.raises(UserError, match="was not made from the present"):
        read_all(asked)
    shutil.rmtree("results/exports")
    assert there(asked).scores, "where nothing says otherwise"


def test_a_result_that_cannot_be_read_is_one_line_also_in_a_complete_report(asked, monkeypatch):
    """A run's record that lacks what its readers need: an error that names the folder, not a KeyError."""
    monkeypatch.setattr("babelmill.reporting.results.read_record", lambda path: {}["step"])
    with pytest.raises(UserError, match=r"results/models/eng: cannot be read \(KeyError: 'step'\)"):
        read_all(asked)
