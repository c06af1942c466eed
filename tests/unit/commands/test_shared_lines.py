"""`babelmill corpus MIXTURE`: lines that stand in the corpora of several languages."""

import json
from pathlib import Path

import pytest

from babelmill.core.files import write_json
from babelmill.survey import between_languages
from babelmill.survey.between_languages import shared_lines
from helpers.programs.prepared import run_python
from helpers.stages import write_corpus

FRENCH = "Cette phrase est dans deux langues."
EVERYWHERE = "This sentence is in all of them."


def corpus(code, train, validation=("nothing of importance here",)) -> Path:
    return write_corpus(Path("results/corpora", code), {"text": list(train)}, {"text": list(validation)})


@pytest.fixture
def corpora(folder):
    """French, Dutch and Danish corpora that share some lines."""
    return {
        "fra": corpus(
            "fra", [f"Une phrase bien française.\n{FRENCH}", EVERYWHERE, "Oui."], ["Le texte mis de côté ici."]
        ),
        "nld": corpus(
            "nld",
            [f"  {FRENCH}  \nEen zin in het Nederlands.", EVERYWHERE, EVERYWHERE, "Oui."],
            ["Een andere zin staat hier."],
        ),
        "dan": corpus("dan", [EVERYWHERE, "Le texte mis de côté ici."], ["En sætning på dansk står her."]),
    }


def test_lines_of_two_languages_are_counted_once(corpora):
    figures = shared_lines(corpora)
    assert figures["lines"] == {"fra": 4, "nld": 4, "dan": 3}
    assert figures["shared"] == {"fra nld": 2, "fra dan": 2, "nld dan": 1}
    found = {each["text"]: each["languages"] for each in figures["examples"]}
    assert found == {
        FRENCH: ["fra", "nld"],
        EVERYWHERE: ["fra", "nld", "dan"],
        "Le texte mis de côté ici.": ["fra", "dan"],
    }


def test_many_lines_in_parts(folder, monkeypatch):
    one = [f"line number {i} of the first corpus" for i in range(3000)]
    other = [f"line number {i} of the first corpus" for i in range(2000, 5000)]
    monkeypatch.setattr(between_languages, "PARTS", 7)
    figures = shared_lines({"fra": corpus("fra", ["\n".join(one)]), "nld": corpus("nld", other, ["x"])})
    assert figures["shared"] == {"fra nld": 1000}
    assert len(figures["examples"]) == between_languages.SHOWN


def test_the_command_says_it_for_a_mixture(corpora):
    Path("config").mkdir(exist_ok=True)
    write_json("config/config.yaml", {"models": {"mixed": {"languages": ["fra", "nld", "dan"]}}})
    done = run_python("-m", "babelmill", "corpus", "mixed")
    assert done.returncode == 0, done.stderr
    assert "fra and nld: 2 lines (50.00% of fra, 50.00% of nld)" in done.stdout
    assert json.loads(Path("reports/corpora/mixed.json").read_text())["shared"]["nld dan"] == 1
    write_json("config/config.yaml", {"models": {"mixed": {"languages": ["fra", "swe"]}}})
    done = run_python("-m", "babelmill", "corpus", "mixed")
    assert "results/corpora/swe holds no corpus: `snakemake results/corpora/swe/manifest.json`" in done.stderr
