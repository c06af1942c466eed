"""`corpus.language_filter`: what is in another language is dropped, counted by language, and shown."""

import hashlib
from pathlib import Path

import pytest
from test_corpus import build, configuration_of, texts, write_jsonl

from babelmill.config import identifiers
from babelmill.config.identifiers import labels_of
from babelmill.config.languages import read_table
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.corpus import __main__ as corpus_stage
from babelmill.corpus.identification import has_enough_letters
from helpers.hub import hub_stage
from helpers.stages import job_of, run_stage, settings_of

pytestmark = pytest.mark.usefixtures("folder")

ROOT = Path(__file__).parents[3]
# fasttext-community 0.11.9, train_supervised(lr=0.2, epoch=3, thread=1, seed=1, loss="softmax", dim=4, bucket=4000, minn=2,
# maxn=3, minCount=50_000), on the shuffled lines of 20 characters or more of the first 600 texts that `python
# benchmarks/real_text.py TEXTS en-us de fr nl da` writes, with labels such as eng_Latn.
MODEL = str(ROOT / "tests/data/languages.bin")
DUTCH = [
    "Het regent al de hele dag, dus blijven de kinderen binnen en lezen ze een boek.",
    "De fiets van mijn zus staat achter het huis, maar de band is lek.",
    "Wij gaan morgen met de trein naar zee, als het weer mooi is.",
]
DANISH = [
    "Det regner hele dagen, så børnene bliver inde og læser en bog sammen.",
    "Min søsters cykel står bag huset, men dækket er fladt og skal lappes.",
]
GERMAN = ["Morgen fahren wir mit dem Zug ans Meer, wenn das Wetter schön ist."]
RUSSIAN = ["Завтра мы поедем на поезде к морю, если будет хорошая погода."]


def dutch(model, out="out", code="nld", **asked) -> dict:
    """The figures of a corpus of `nld` (or of another code) made of a.jsonl."""
    corpus = {"files": ["a.jsonl"], "validation_share": 0, "language_filter": {"model": model, **asked}}
    configuration = Configuration([("test", {"languages": {code: {"corpus": corpus}}})])
    return run_stage("corpus", configuration, code, out=out)


@pytest.mark.parametrize("model", [MODEL, "py3langid"])
def test_documents_in_other_languages_are_dropped_and_counted(model):
    write_jsonl("a.jsonl", [*DUTCH, *DANISH, *GERMAN, *RUSSIAN, "12 34 56 : 78", "Привет!"])
    figures = dutch(model)
    assert texts("train") == [*DUTCH, "12 34 56 : 78", "Привет!"], "what tells no language stays"
    assert figures["dropped"] == {"other_language": 4}
    found = figures["other_languages"]
    danish, german = ("dan_Latn", "deu_Latn") if model == MODEL else ("da", "de")
    assert found[danish] >= 2 and found[german] == 1 and sum(found.values()) == 4, "the small model knows no Russian"
    notes = {example["text"]: example["note"] for example in figures["examples"]["other_language"]}
    assert notes.keys() == {*DANISH, *GERMAN, *RUSSIAN} and notes[GERMAN[0]].startswith(german)
    content = hashlib.sha256(Path(MODEL).read_bytes()).hexdigest() if model == MODEL else None
    assert figures["identifier"] == {"model": model, "sha256": content}
    assert dutch(model, at_least=0)["dropped"] == {}


def test_a_language_that_the_model_does_not_know_is_refused():
    write_jsonl("a.jsonl", DUTCH)
    with pytest.raises(UserError, match=r"language_filter of bul: the model .* does not know the language; leave"):
        dutch(MODEL, code="bul")


def test_settings_name_the_content_of_the_model():
    write_jsonl("a.jsonl", DUTCH)
    of_file = {"files": ["a.jsonl"], "language_filter": {"model": "model.bin"}}

    def asked(model):
        return settings_of(configuration_of(files=["a.jsonl"], language_filter={"model": model}), "eng", "corpus")

    Path("model.bin").write_bytes(Path(MODEL).read_bytes())
    before = asked("model.bin")
    assert before["corpus"]["language_filter"] == {"model": "model.bin"}
    for damaged in (b"another", Path(MODEL).read_bytes()[:5000]):
        Path("model.bin").write_bytes(damaged)
        assert asked("model.bin")["identification"]["sha256"] != before["identification"]["sha256"]
        with pytest.raises(UserError, match=r"model\.bin: no model of fastText"):
            build(**of_file)
    job = job_of("corpus", configuration_of(**of_file), "eng", "out")
    Path("model.bin").write_bytes(Path(MODEL).read_bytes())
    with pytest.raises(UserError, match=r"model\.bin has changed since the settings were written"):
        corpus_stage.run(job)
    with pytest.raises(UserError, match=r"language_filter.model = 'glotlit': glotlid, py3langid or a file of fastText"):
        asked("glotlit")
    assert len(asked("glotlid")["identification"]["commit"]) == 40


def test_a_corpus_reads_the_model_of_the_hub_and_no_other_file(hub, monkeypatch):
    """`glotlid` is the tiny model, on the test Hub."""
    content = Path(MODEL).read_bytes()
    commit = hub.commit("models/cis-lmu/glotlid", {"model.bin": content, "README.md": b"# GlotLID"})
    known = identifiers.HUB["glotlid"] | {"commit": commit, "sha256": hashlib.sha256(content).hexdigest()}
    monkeypatch.setitem(identifiers.HUB, "glotlid", known)
    write_jsonl("a.jsonl", [DUTCH[0], DANISH[0]])
    filtered = {"files": ["a.jsonl"], "validation_share": 0, "language_filter": {"model": "glotlid"}}
    configuration = Configuration([("test", {"languages": {"nld": {"corpus": filtered}}})])
    asked = settings_of(configuration, "nld", "identifier")
    other = asked | {"source": asked["source"] | {"sha256": "0" * 64}}
    refused, done = (
        hub_stage.run_stage("identifier", hub_stage.asked_for("identifier", each, "model")) for each in (other, asked)
    )
    assert "its sha256 is" in hub_stage.refusal(refused)
    assert hub_stage.figures_of(done, "model")["hub"]["sha256"] == known["sha256"]
    requests = len(hub.log)
    figures = run_stage("corpus", configuration, "nld", identifier=[Path("model")])
    assert figures["other_languages"] == {"dan_Latn": 1}
    assert len(hub.log) == requests, "the corpus needs no network"
    Path("model", identifiers.FILE).unlink()
    Path("model", identifiers.FILE).write_bytes(content[:-1] + b"x")
    with pytest.raises(UserError, match=identifiers.FILE):
        run_stage("corpus", configuration, "nld", identifier=[Path("model")])


def test_letters_are_counted_in_any_script_and_place():
    """Letters of all scripts count, wherever they stand; a text of fewer than 20 tells no language."""
    others = ["12 34 " * 9, "a" * 19, " " * 2000 + "b" * 19, "", "٣٤٥٦٧٨٩٠" * 9]
    tell = ["a" * 20, " " * 2000 + "b" * 20, "ж" * 20, "漢" * 10 + "かな" * 5, "\U00020000" * 20, "a1" * 20]
    assert [has_enough_letters(text) for text in [*others, *tell]] == [False] * len(others) + [True] * len(tell)


@pytest.mark.parametrize(
    ("code", "known", "unknown"),
    [
        ("nld", {"nld_Latn", "nl"}, {"nld_Cyrl", "deu_Latn"}),
        ("zho", {"cmn_Hani", "zho_Hans", "cmn_Hans", "zh"}, {"zho_Hant", "yue_Hani"}),
        ("nor", {"nob_Latn", "nno_Latn", "nor_Latn", "nn", "no"}, {"dan_Latn"}),
        ("srp", {"srp_Cyrl", "sr"}, {"srp_Latn", "hrv_Latn"}),
    ],
)
def test_labels_of_macrolanguages_and_scripts(code, known, unknown):
    labels = set(labels_of(read_table(ROOT / "config/languages.tsv")[code]))
    assert known <= labels and labels.isdisjoint(unknown)
