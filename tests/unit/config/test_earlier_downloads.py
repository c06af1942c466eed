"""What an earlier release downloaded and read otherwise is made again, and nothing else."""

from pathlib import Path

import pytest

from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json, write_json
from babelmill.settings import settings_of

pytestmark = pytest.mark.usefixtures("folder")

TSV = 'text\n"Hello there\nGoodbye now"\n'


def settings(stage: str, hub: object = "ada/talks", **corpus) -> dict:
    return settings_of(
        Configuration([("test", {"languages": {"eng": {"corpus": {"hub": hub} | corpus}}})]), "eng", stage
    )


def made(stage: str, files: dict[str, str], earlier: bool = True, figures: dict | None = None, **corpus) -> dict:
    """Make results of a stage, as release 0.2.0 or as now; what the settings say then."""
    folder = Path({"download": "results/downloads/eng", "corpus": "results/corpora/eng"}[stage])
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    asked = settings(stage, **corpus)
    manifest.write(folder, manifest.StageRequest(stage, "eng", asked), files, figures=figures)
    if earlier:
        write_json(folder / "manifest.json", manifest.read(folder))
        assert "sha256" not in read_json(folder / "manifest.json")
    return settings(stage, **corpus)


def test_a_corpus_of_a_tsv_that_was_read_with_quoting():
    def quoting() -> object:
        return settings("corpus")["corpus"].get("quoting")

    made("download", {"a.tsv": TSV})
    assert quoting() is None, "there is no corpus"
    assert made("corpus", {"train.parquet": ""})["corpus"].get("quoting") == "format"
    made("corpus", {"train.parquet": ""}, earlier=False)
    assert quoting() == "format", "the corpus that is made then stays"
    made("download", {"b.tsv": TSV.replace('"', "")})
    for name, earlier in (("a.tsv", False), ("b.tsv", True)):
        for path in Path("results").rglob("manifest.json"):
            path.unlink()
        made("download", {name: Path("results/downloads/eng", name).read_text()})
        made("corpus", {"train.parquet": ""}, earlier)
        assert quoting() is None
    assert settings("corpus", quoting="csv")["corpus"]["quoting"] == "csv"


def test_a_manifest_that_was_changed_decides_nothing():
    """The job that reads it says so."""
    made("download", {"a.tsv": TSV})
    assert made("corpus", {"train.parquet": ""})["corpus"].get("quoting") == "format"
    made("corpus", {"train.parquet": ""}, earlier=False)
    path = Path("results/corpora/eng/manifest.json")
    path.write_text(path.read_text().replace('"name": "eng"', '"name": "deu"'))
    assert settings("corpus")["corpus"].get("quoting") is None
    with pytest.raises(UserError, match="was changed after it was written"):
        manifest.read(path.parent)


def test_labels_of_a_download_that_were_read_otherwise():
    """Before there is a corpus, this is not known; a corpus that an earlier release made has its answer."""
    train = {"objective": "labels", "sequence_lengths": [32], "phase_starts": [0.0]}
    model = {"models": {"occ": {"languages": ["eng"], "train": train, "labels": {"code": "classes"}}}}
    languages = {"languages": {"eng": {"corpus": {"hub": "ada/talks", "label_columns": ["code"]}}}}

    def raw_labels() -> bool:
        return settings_of(Configuration([("test", languages | model)]), "eng", "corpus").get("raw_labels", False)

    assert raw_labels()
    for label, changes in (("25", False), ("25.0", True)):
        made("download", {"a.csv": f"text,code\na,{label}\n"})
        assert made("corpus", {"train.parquet": ""}).get("raw_labels") is None
        assert raw_labels() == changes


VOICE = ["invalidated.tsv", "other.tsv", "train.tsv", "validated.tsv"]


@pytest.mark.parametrize(
    ("train", "part", "again"),
    [
        (VOICE, {}, True),
        (VOICE, {"files": ["*.tsv"]}, True),
        (VOICE, {"files": ["train.tsv", "other.tsv", "[iv]*.tsv"]}, False),
        (VOICE, {"config": "all"}, False),
        (["a.txt", "b.txt"], {}, False),
        (["data/train-00000-of-00001.parquet", "data/train_gen-00000-of-00001.parquet"], {}, True),
    ],
)
def test_a_download_of_files_that_would_not_be_chosen_now(train, part, again):
    corpus = {"hub": [{"repository": "ada/talks"} | part]}
    figures = {"parts": [{"repository": "ada/talks", "train": train, "validation": ["dev.tsv"]} | part]}
    assert "chosen_again" not in settings("download", **corpus)
    description = made("download", {"a.tsv": TSV}, figures=figures, **corpus)
    assert description.get("chosen_again", False) == again
    assert made("download", {"a.tsv": TSV}, earlier=False, figures=figures, **corpus) == description, (
        "it stays as it is made"
    )
    Path("results/downloads/eng/manifest.json").unlink()
    made("download", {"a.tsv": TSV}, earlier=False, figures=figures, **corpus)
    assert "chosen_again" not in settings("download", **corpus)
