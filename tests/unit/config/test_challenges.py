"""Challenges: what a preset of one gives, and how much its models may read."""

import json

import pytest

from babelmill.config.resolve import Configuration
from babelmill.config.snapshots import BABYLM
from babelmill.config.submissions import rules_of_model, submission_of
from babelmill.core.files import UserError
from babelmill.graph import Graph
from babelmill.stages import STAGES
from helpers.stages import settings_of

SIZES = {"babylm_strict": "base", "babylm_strict_small": "small", "babylm_multilingual": "multilingual"}


def configuration(challenge="babylm_strict_small", more=None, **entry) -> Configuration:
    mine = {"preset": [SIZES[challenge], challenge]} | entry
    values = (more or {}) | {"models": {"mine": mine} | (more or {}).get("models", {})}
    return Configuration([("config/config.yaml", values)])


@pytest.mark.parametrize("name", SIZES)
def test_a_preset_gives_the_text_the_length_the_snapshots_and_the_suites(name):
    made = configuration(name)
    model, rules = made.model("mine"), rules_of_model(made.model("mine"))
    assert model.languages and all(code.startswith(name) for code in model.languages)
    assert model.run.snapshots == list(BABYLM[: 19 if rules.track == "strict-small" else 28])
    assert model.run.snapshots[-1] * 1e6 == rules.words, "the last point is the end of the longest run"
    assert 0.97 * rules.words <= model.train.max_words <= rules.words, "which has this point"
    assert model.scored and model.origins["train.max_words"] == f"config/presets/{name}.yaml"
    asked = submission_of(made, "mine")
    assert json.loads(asked["rules"])["track"] == rules.track and asked["missing_at_checkpoints"] == {}
    assert asked["missing"] == {task: each.missing for task, each in rules.tasks.items() if each.missing}
    assert configuration(name, preset=["auto", name]).model("mine").model == model.model


def test_all_of_the_text_is_trained_on_whatever_is_said_of_other_text():
    others = {"builtin": "python-docs", "files": ["a.txt"], "budget": 3, "deduplicate": True}
    corpus = configuration(more={"corpus": others}).corpus("babylm_strict_small").corpus
    assert [part.repository.rpartition("/")[2] for part in corpus.hub] == ["BabyLM-2026-Strict-Small", "BabyLM-dev"]
    assert not (corpus.files or corpus.builtin or corpus.budget or corpus.validation_share or corpus.deduplicate)
    own = {"languages": {"babylm_strict_small": {"corpus": {"files": ["a.txt"], "validation_files": ["b.dev"]}}}}
    assert configuration(more=own).corpus("babylm_strict_small").corpus.files == ["a.txt"]


def test_the_texts_of_the_languages_together_are_read_ten_times_at_most():
    """A word of a mixture weighs as in its language: the challenge counts Chinese in traditional characters."""
    made = configuration("babylm_multilingual")
    codes = made.languages_of("mine")
    weights = dict(zip(codes, (5.43, 5.43 * 1.052, 5.43 * 0.989), strict=True))
    assert settings_of(made, "mine", "train")["bytes_per_word"] == pytest.approx(weights)
    corpora = [made.corpus(code).corpus for code in codes]
    read = sum(int(each.budget.split()[0]) * (1 - each.validation_share) for each in corpora)
    assert 0.99e8 < read < 1e8 and made.model("mine").train.max_words <= 10 * read


ELSEWHERE = {"model": {"source": "./a"}, "tokenizer": {"prefix_space": False}}
CONTINUES = {"models": {"more": {"like": "mine", "model": {"source": "mine"}}}}


@pytest.mark.parametrize(
    ("more", "entry", "model", "words"),
    [
        ({}, {"train": {"max_words": "101M"}}, "mine", "train.max_words = 101000000 of .* 100,000,000 at most"),
        ({}, {"train": {"max_words": None}}, "mine", "train.max_words = None of model mine: .* 100,000,000 at most"),
        ({}, {"submission": "babylm_2026_stric"}, "mine", "model mine: submission = .*did you mean babylm_2026_strict"),
        ({}, ELSEWHERE, "mine", "model.source = './a' of .* a model of this workflow"),
        (CONTINUES, {}, "more", "train.max_words = 100000000 of model more: .* in all, with 100000000 of model mine"),
    ],
)
def test_the_rules_of_the_challenge_hold_for_what_is_submitted(more, entry, model, words):
    made = configuration(more=more, **entry)
    for stage in ("convert", "submission"):
        with pytest.raises(UserError, match=rf"^config/(config|presets/babylm_strict_small).yaml.*: {words}"):
            STAGES[stage].refuse(made, made.model(model), "")
    fewer = configuration(more=CONTINUES, train={"max_words": "40M"})
    STAGES["convert"].refuse(fewer, fewer.model("more"), "")  # together 80 of 100 million


def test_suites_of_a_language_cover_every_text_in_it():
    own = {"languages": {"childes": {"language": "eng", "corpus": {"files": ["a.txt"]}}}}
    more = own | {"models": {"both": {"languages": ["childes", "babylm_strict", "deu"]}}}
    made = configuration(more=more | {"evaluation": {"suites": ["blimp_filtered", "multiblimp"]}})
    assert made.language("childes").name == "English" and made.language("babylm_strict").tag == "en"
    assert made.model("both").scored["blimp_filtered"] == ["childes", "babylm_strict"]
    assert made.model("both").scored["multiblimp"] == ["childes", "babylm_strict", "deu"]
    assert settings_of(made, "babylm_strict", "suite.multiblimp")["files"] == ["eng/data.tsv"]
    suite = made.suite("blimp_filtered")
    assert made.code_in(suite, "childes") == "eng" and made.code_in(suite, "deu") == ""


def test_all_that_is_missing_of_the_folder_of_the_challenge_is_named_at_once(folder):
    where = r"^config/presets/babylm_strict_small\.yaml: evaluation_data = '': model mine needs"
    with pytest.raises(UserError, match=rf"(?s){where} .*ewok .*ewok_fast .*, .*rte"):
        Graph(configuration()).of_model("mine")
    for name in ("full_eval/blimp_filtered/a.jsonl", "fast_eval/ewok_fast.zip", "full_eval/aoa/cdi_human.csv"):
        (folder / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "data" / name).touch()
    with pytest.raises(UserError, match=r"evaluation_data = 'data': model mine needs files") as raised:
        Graph(configuration(more={"evaluation_data": "data"})).of_model("mine")
    lines = [line.strip() for line in str(raised.value).splitlines()[1:]]
    unpack = "data/fast_eval/ewok_fast.zip is there: unpack it"
    assert f"ewok_fast (EWoK, checkpoints): fast_eval/ewok_fast/*.jsonl; {unpack}" in lines
    assert "aoa (Age of acquisition): full_eval/aoa/cdi_childes.json" in lines
    rte = ", ".join(f"full_eval/glue_filtered/rte.{split}.jsonl" for split in ("train", "valid"))
    assert f"rte ((Super)GLUE): {rte}" in lines
    assert not any(line.startswith(("blimp_filtered ", "global_piqa")) for line in lines), "which are there"
    fewer = {"suites": ["blimp_filtered"], "snapshot_suites": [], "tasks": []}
    with pytest.raises(UserError, match=r"\n  comps \(COMPS\): full_eval/comps"):
        sought = {"evaluation_data": "data", "corpus": {"decontaminate": ["comps"]}}
        Graph(configuration(more=sought, evaluation=fewer)).of_model("mine")
    assert configuration(more={"evaluation_data": "data"}, evaluation=fewer).model("mine").scored, "another model runs"
