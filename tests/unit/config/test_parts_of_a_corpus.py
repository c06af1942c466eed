"""In how many parts a corpus is made (`corpus.parts`), and what never depends on it."""

from pathlib import Path

import pytest

from babelmill.config import corpus_parts
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.settings import settings_of, write_settings

pytestmark = pytest.mark.usefixtures("folder")


def configuration(**corpus) -> Configuration:
    return Configuration([("config/config.yaml", {"languages": {"eng": {"corpus": {"files": ["*.txt"]} | corpus}}})])


def planned(**corpus) -> list[str]:
    asked = configuration(**corpus)
    write_settings(asked, "eng")
    return [name.partition("-")[2] for name in corpus_parts.plan(asked, "eng")]


def test_the_number_is_given_or_follows_from_the_size(monkeypatch):
    for i in range(30):
        Path(f"{i}.txt").write_text("A text.\n" * 10)
    assert planned() == planned(parts=1) == [] and not Path("results/settings/eng/corpus_parts.json").exists()
    assert planned(parts=3) == ["1-of-3", "2-of-3", "3-of-3"]
    assert [name.partition("-")[2] for name in corpus_parts.names_of("eng")] == planned(parts=3)
    assert planned(parts=1) == [] == corpus_parts.names_of("eng")
    assert planned(parts="auto") == []
    monkeypatch.setattr(corpus_parts, "EACH", 1000)
    assert planned(parts="auto") == ["1-of-3", "2-of-3", "3-of-3"], "2,400 bytes"
    monkeypatch.setattr(corpus_parts, "EACH", 100)
    assert planned(parts="auto") == ["1-of-3", "2-of-3", "3-of-3"], "finished parts stay of use"
    assert len(planned(parts="auto", min_words=2)) == 24


def test_there_are_not_more_parts_than_files():
    for name in "ab":
        Path(f"few_{name}.txt").write_text("A text.\n")
    assert planned(parts=7, files=["few_*.txt"]) == ["1-of-2", "2-of-2"]
    assert planned(parts=7, files=["few_a.txt"]) == [], "one job"
    assert planned(parts=7, files=[], builtin="python-docs") == []
    assert len(planned(parts=7, files=[])) == 7, "a download, whose files are not known yet"


def test_other_settings_have_other_parts_and_the_number_is_in_no_settings_file():
    for name in "abc":
        Path(f"{name}.txt").write_text("A text.\n")
    one, three = (configuration(parts=parts) for parts in (1, 3))
    assert settings_of(one, "eng", "corpus") == settings_of(three, "eng", "corpus")
    write_settings(three, "eng")
    names = corpus_parts.plan(three, "eng")
    assert names == corpus_parts.plan(three, "eng")
    changed = configuration(parts=3, min_words=2)
    write_settings(changed, "eng")
    assert {*names}.isdisjoint(corpus_parts.plan(changed, "eng"))
    for name in ("3", "3f2a91c0-4-of-3", "3f2a91c0-0-of-3"):
        with pytest.raises(UserError, match="not the name of a part of a corpus, such as 3f2a91c0-3-of-7"):
            corpus_parts.number_of(name)


@pytest.mark.parametrize(
    ("parts", "message"), [("Auto", "a number or auto is expected"), (2001, "less than or equal to 2000")]
)
def test_a_wrong_number_of_parts_is_refused(parts, message):
    with pytest.raises(UserError, match=rf"corpus\.parts = .*: .*{message}"):
        configuration(parts=parts).corpus("eng")


@pytest.mark.parametrize("parts", [2, "auto"])
def test_boilerplate_needs_all_text_in_one_job(parts):
    with pytest.raises(UserError, match=r"corpus\.parts = .*: with corpus\.boilerplate, one job must have read all"):
        configuration(parts=parts, boilerplate=0.01).corpus("eng")
