"""The stage `identifier`: the model that finds languages comes from the Hub, at a commit, and is what it must be."""

import hashlib
from pathlib import Path

import pytest

from babelmill.config import identifiers
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.stages import STAGES
from helpers.hub.hub_stage import asked_for, refusal, run_stage
from helpers.stages import run_stage as run_corpus
from helpers.stages import settings_of

MODEL = (Path(__file__).parents[2] / "data/languages.bin").read_bytes()
DUTCH = "Het regent al de hele dag, dus blijven de kinderen binnen en lezen ze een boek."
DANISH = "Det regner hele dagen, så børnene bliver inde og læser en bog sammen."


@pytest.fixture
def configuration(folder, monkeypatch, hub):
    """A Dutch corpus with some Danish; `glotlid` is the tiny model of tests/data, on the test Hub."""
    commit = hub.commit("models/cis-lmu/glotlid", {"model.bin": MODEL, "README.md": b"# GlotLID"})
    known = identifiers.HUB["glotlid"] | {"commit": commit, "sha256": hashlib.sha256(MODEL).hexdigest()}
    monkeypatch.setitem(identifiers.HUB, "glotlid", known)
    Path("a.txt").write_text(f"{DUTCH}\n{DANISH}\n", encoding="utf-8")
    asked = {"files": ["a.txt"], "document": "line", "validation_share": 0, "language_filter": {"model": "glotlid"}}
    return Configuration([("test", {"languages": {"nld": {"corpus": asked}}})])


def fetch(configuration, **changes):
    """Run the stage, with other values in its settings."""
    asked = settings_of(configuration, "nld", "identifier")
    settings = asked_for("identifier", asked | {"source": asked["source"] | changes}, "model")
    return run_stage("identifier", settings)


def test_the_corpus_reads_the_model_that_was_fetched(configuration, hub):
    done = fetch(configuration)
    assert done.returncode == 0, done.stderr
    assert manifest.verify("model")["figures"]["hub"]["sha256"] == hashlib.sha256(MODEL).hexdigest()
    requests = len(hub.log)
    figures = run_corpus("corpus", configuration, "nld", identifier=[Path("model")])
    assert figures["other_languages"] == {"dan_Latn": 1}
    assert len(hub.log) == requests, "the corpus needs no network"
    Path("model", identifiers.FILE).unlink()
    Path("model", identifiers.FILE).write_bytes(MODEL[:-1] + b"x")
    with pytest.raises(UserError, match=identifiers.FILE):
        run_corpus("corpus", configuration, "nld", identifier=[Path("model")])


def test_another_file_is_refused(configuration):
    assert "its sha256 is" in refusal(fetch(configuration, sha256="0" * 64))


def test_only_corpora_that_need_it_have_the_stage(configuration):
    def reads(configuration: Configuration, code: str) -> list:
        return STAGES["corpus"].reads(configuration.corpus(code), "")["identifier"]

    assert reads(configuration, "nld") == [("identifier", "nld", "")]
    other = Configuration([("test", {"languages": {"nld": {"corpus": {"language_filter": {"model": "py3langid"}}}}})])
    assert reads(other, "nld") == reads(other, "eng") == []
