"""Results of `tune_all` that wait for their place: those of other settings, models or rows, and damaged ones, do not count."""

from pathlib import Path

import pytest

from babelmill.config.stage_settings import TuneSettings
from babelmill.core import manifest
from babelmill.core.files import write_json
from babelmill.tasks.together import Tuning

pytestmark = pytest.mark.slow

EXPORT, ROWS = Path("results/exports/eng"), Path("results/tasks/rte/eng")
RAW = {
    **{"stage": "tune", "name": "eng", "languages": ["eng"], "covered": ["eng"], "seed": 3},
    **{"task": "rte", "metric": "accuracy", "protocol": "sound", "tuning": {}},
}


def made_of(folder: Path, stage: str, text: str) -> None:
    """What another stage has made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "content").write_text(text)
    manifest.write(folder, manifest.StageRequest(stage, "eng", {}), ["content"])


@pytest.fixture
def tuning(folder) -> Tuning:
    """A fine-tuning whose results wait."""
    made_of(EXPORT, "export", "weights")
    made_of(ROWS, "task", "rows")
    tuning = Tuning(Path("settings.json"), TuneSettings(**RAW, raw=RAW), [ROWS])
    tuning.made.mkdir(parents=True)
    write_json(tuning.made / "scores.json", {"score": 1})
    manifest.write(tuning.made, tuning.settings, ["scores.json"], [EXPORT, ROWS])
    assert tuning.is_made(EXPORT), "so that the tests below mean something"
    return tuning


def other_settings(tuning: Tuning) -> Tuning:
    raw = RAW | {"tuning": {"epochs": 9}}
    return tuning._replace(settings=TuneSettings(**raw, raw=raw))


def other_weights(tuning: Tuning) -> Tuning:
    made_of(EXPORT, "export", "other weights")
    return tuning


def other_rows(tuning: Tuning) -> Tuning:
    made_of(ROWS, "task", "other rows")
    return tuning


def flipped_bit(tuning: Tuning) -> Tuning:
    write_json(tuning.made / "scores.json", {"score": 0})
    return tuning


def no_manifest(tuning: Tuning) -> Tuning:
    (tuning.made / manifest.NAME).unlink()
    return tuning


@pytest.mark.parametrize("change", [other_settings, other_weights, other_rows, flipped_bit, no_manifest])
def test_results_that_no_longer_fit_are_made_again(tuning, change):
    tuning = change(tuning)
    assert not tuning.is_made(EXPORT)
    assert not tuning.made.exists(), "nothing of them is left that could be moved to its place"
