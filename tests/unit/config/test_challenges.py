"""Challenges: what one line beside a model gives, what it may be changed to, and what it may not."""

import copy
import re

import pytest
from babelmill.settings import settings_of

from babelmill.config.challenges import file_of
from babelmill.config.layers import CHALLENGES
from babelmill.config.resolve import ROOT, Configuration
from babelmill.config.snapshots import BABYLM
from babelmill.config.suites import baselines_of, code_in_suite, languages_of_suite, suites_of_model
from babelmill.core.files import UserError
from conftest import SMALL

NAMES = sorted(path.stem for path in (ROOT / CHALLENGES).glob("*.yaml"))
POINTS = {"strict-small": 19, "strict": 28, "multilingual": 28}


def configuration(challenge="babylm_strict_small", more=None, **entry) -> Configuration:
    values = (more or {}) | {"models": {"mine": {"challenge": challenge} | entry} | (more or {}).get("models", {})}
    return Configuration([("config/config.yaml", values)])


@pytest.mark.parametrize("name", NAMES)
def test_one_line_gives_the_text_the_length_the_snapshots_and_the_suites(name):
    made = configuration(name)
    model, challenge = made.model("mine"), made.challenge_of("mine")
    assert model.languages == tuple(challenge.languages) and model.train.words <= challenge.words
    assert model.run.snapshots == list(BABYLM[: POINTS[challenge.track]])
    assert model.run.snapshots[-1] * 1e6 == challenge.words, "the last point is the end of the longest run"
    assert model.train.words >= 0.97 * challenge.words, "which has this point"
    assert model.evaluation.suites and suites_of_model(made, "mine")
    for code in model.languages:
        assert made.corpus(code).origins["corpus.hub"] == f"config/challenges/{name}.yaml"
    assert model.origins["train.words"] == f"config/challenges/{name}.yaml"


def test_all_of_its_text_is_trained_on_and_its_dev_text_is_for_validation():
    corpus = configuration().corpus("babylm_strict_small").corpus
    assert [part.repository for part in corpus.hub] == [
        "BabyLM-community/BabyLM-2026-Strict-Small",
        "BabyLM-community/BabyLM-dev",
    ]
    assert corpus.validation_share == 0 and not corpus.deduplicate


def test_the_shares_of_the_languages_together_are_the_text_that_is_allowed():
    made = configuration("babylm_multilingual")
    corpora = [made.corpus(code).corpus for code in made.languages_of("mine")]
    read = sum(int(each.budget.split()[0]) * (1 - each.validation_share) for each in corpora)
    allowed = made.challenge_of("mine")
    assert 0.99 * allowed.text < read < allowed.text
    assert made.model("mine").train.words <= allowed.epochs * read, "at most so many passes"


def test_a_model_without_a_challenge_is_what_it_was():
    """Its settings files have no new key; the corpora of challenges are in no batch of a tier."""
    made = Configuration([("config/config.yaml", copy.deepcopy(SMALL) | {"corpus": {"builtin": "python-docs"}})])
    assert made.challenge_of("eng") is None
    assert "snapshot_suites" not in str(settings_of(made, "eng", "evaluate"))
    assert not any(code.startswith("babylm") for batch in made.batches.values() for code in batch)


def test_the_users_own_values_are_above_the_challenge_if_they_are_for_this_model():
    """Values for all models are below it: they are of other models, and a challenge must not lose its suites to them."""
    general = {
        "evaluation": {"suites": ["english_basics"], "pairs": 7},
        "corpus": {"builtin": "python-docs", "min_words": 3},
    }
    made = configuration(more=general)
    assert made.model("mine").evaluation.suites != ["english_basics"] and made.model("mine").evaluation.pairs == 7
    corpus = made.corpus("babylm_strict_small").corpus
    assert corpus.builtin is None and corpus.min_words == 0, "its text is the same whatever other text is like"
    own = {"languages": {"babylm_strict_small": {"corpus": {"files": ["a.txt"], "validation_files": ["b.dev"]}}}}
    made = configuration(more=own, evaluation={"suites": ["english_basics"]}, train={"words": "3M"}, preset="tiny")
    assert made.model("mine").evaluation.suites == ["english_basics"] and made.model("mine").train.words == 3_000_000
    assert made.corpus("babylm_strict_small").corpus.files == ["a.txt"] and made.model("mine").preset == "tiny"
    made = configuration(more={"languages": {"mytext": {"language": "eng"}}}, languages=["mytext"])
    assert made.languages_of("mine") == ("mytext",) and made.model("mine").train.words == 100_000_000


CONTINUES = {"models": {"more": {"like": "mine", "model": {"source": "mine"}}}}


@pytest.mark.parametrize(
    ("more", "entry", "model", "words"),
    [
        ({}, {"train": {"words": "101M"}}, "mine", "train.words = 101,000,000: .* 100,000,000 words at most"),
        ({}, {"train": {"words": None}}, "mine", "train.words = null for model mine.*set train.words"),
        ({}, {"train": {"max_steps": 10}}, "mine", "train.words = 100,000,000 and train.max_steps = 10 both say"),
        ({}, {"model": {"source": "./folder"}}, "mine", "model.source: .* what a model from elsewhere has read"),
        (CONTINUES, {}, "more", "more would read 200,000,000 .with mine.; lower it"),
        ({"models": {"more": {"like": "mine", "train": {"words": "1G"}}}}, {}, "more", "train.words = 1,000,000,000:"),
    ],
)
def test_the_limit_of_words_holds(more, entry, model, words):
    with pytest.raises(UserError, match=rf"^config/config.yaml, models.{model}: .*{words}|{words}"):
        configuration(more=more, **entry).model(model)


def test_the_words_of_a_source_count_and_fit():
    entry = {"train": {"words": "40M"}}
    made = configuration(more=CONTINUES, **entry)
    assert made.model("more").train.words == 40_000_000, "together 80 of 100 million"


def test_models_of_an_experiment_are_in_the_challenge_of_their_base():
    values = {"experiments": {"rates": {"base": "mine", "vary": {"train.learning_rate": [0.001, 0.002]}}}}
    made = configuration(more=values)
    cells = [cell.name for cell in made.cells["rates"]]
    assert all(made.challenge_of(name).track == "strict-small" for name in cells)
    assert {made.model(name).train.words for name in cells} == {100_000_000}
    values["experiments"]["rates"]["vary"] = {"train.words": ["50M", "500M"]}
    made = configuration(more=values)
    with pytest.raises(UserError, match="500,000,000"):
        [made.model(cell.name) for cell in made.cells["rates"]]


def test_an_unknown_challenge_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"models.mine.challenge = 'babylm_small': .*did you mean babylm_strict_small"):
        configuration("babylm_small")


def test_suites_of_a_language_cover_every_text_in_it():
    own = {"languages": {"childes": {"language": "eng", "corpus": {"files": ["a.txt"]}}}}
    more = own | {"models": {"both": {"languages": ["childes", "babylm_strict", "deu"]}}}
    made = configuration(more=more | {"evaluation": {"suites": ["blimp_filtered", "multiblimp"]}})
    assert made.language("childes").name == "English" and made.language("babylm_strict").tag == "en"
    assert languages_of_suite(made, "both", "blimp_filtered") == ["childes", "babylm_strict"]
    assert languages_of_suite(made, "both", "multiblimp") == ["childes", "babylm_strict", "deu"]
    assert settings_of(made, "babylm_strict", "suite.multiblimp")["files"] == ["eng/data.tsv"]
    suite = made.suite("blimp_filtered")
    assert code_in_suite(made, suite, "childes") == "eng" and code_in_suite(made, suite, "deu") == ""
    if suite.baselines:
        assert {line["language"] for line in baselines_of(made, suite, ["childes"])} == {"eng", "childes"}


def test_a_word_of_a_mixture_weighs_as_in_its_language():
    made = configuration("babylm_multilingual")
    premiums = [made.language(code).byte_premium for code in made.languages_of("mine")]
    assert premiums == [1.0, 1.052, 0.989]  # the challenge counts Chinese by the premium of traditional characters
    weights = settings_of(made, "mine", "train")["bytes_per_word"]
    assert weights == {code: pytest.approx(5.43 * p) for code, p in zip(weights, premiums, strict=True)}


def test_another_model_cannot_change_the_text_of_a_challenge():
    """The preset has a budget, which would be that of the text. A model of the challenge has all of the text."""
    made = configuration(
        preset="1gpu_standard",
        more={"models": {"other": {"languages": ["babylm_strict_small"], "preset": "1gpu_standard"}}},
    )
    with pytest.raises(
        UserError, match=r"^preset 1gpu_standard of model other sets corpus.budget = .*, but babylm_str"
    ):
        made.model("other")
    assert made.model("mine").preset == "1gpu_standard" and made.corpus("babylm_strict_small").corpus.budget is None


def test_files_of_another_format_are_not_read_as_those_of_the_challenge():
    own = {"languages": {"babylm_strict": {"corpus": {"files": ["a.jsonl"]}}}}
    with pytest.raises(
        UserError, match=r"names a.jsonl, but config/challenges/babylm_strict.yaml says .*jsonl, or null"
    ):
        configuration("babylm_strict", more=own).corpus("babylm_strict")
    own["languages"]["babylm_strict"]["corpus"]["format"] = None
    assert configuration("babylm_strict", more=own).corpus("babylm_strict").corpus.format is None


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            {"mine_too": {"language": "enk"}},
            "languages.mine_too.language = 'enk', which is not a language; did you mean",
        ),
        ({"deu": {"language": "eng"}}, "languages.deu.language = eng: deu is a language itself"),
    ],
)
def test_mistakes_in_the_language_of_a_text(entry, words):
    with pytest.raises(UserError, match=re.escape(words)):
        Configuration([("config/config.yaml", {"languages": entry})])


def test_snapshot_suites_need_snapshots():
    values = copy.deepcopy(SMALL) | {"models": {"eng": {"evaluation": {"snapshot_suites": ["english_basics"]}}}}
    with pytest.raises(
        UserError, match=r"evaluation.snapshot_suites scores what the training keeps.*set run.snapshots"
    ):
        Configuration([("config/config.yaml", values)]).model("eng")


@pytest.mark.parametrize("change", [b"", b"# my note\n", b"no_such_key: 1\n"])
def test_an_old_copy_of_a_challenge_matters_only_to_who_uses_it(tmp_path, monkeypatch, change):
    """In a folder of `babelmill init`, which lies beside an installed release."""
    monkeypatch.chdir(tmp_path)
    copy_of = tmp_path / file_of("babylm_strict")
    copy_of.parent.mkdir(parents=True)
    copy_of.write_bytes((ROOT / file_of("babylm_strict")).read_bytes() + change)
    configuration("babylm_strict_small").model("mine")
    Configuration([("config/config.yaml", {})]).model("eng")
    text = configuration("babylm_strict_small").challenges["babylm_strict"].languages
    uses = [lambda: configuration("babylm_strict"), lambda: Configuration([("x", {})]).corpus(next(iter(text)))]
    for use in uses:
        if not change:
            use()
            continue
        with pytest.raises(UserError, match=f"{file_of('babylm_strict')}: Babelmill has another file of this name"):
            use()
