"""Read and write settings files, `results/settings/{name}/{stage}.json`: what a stage is asked to do.

Such a file holds exactly the part of the configuration that this stage reads, and the version of the stage.
It is an input of the stage's rule, so a changed value invalidates exactly that stage and the stages after it. It is
canonical (sorted, typed, without values that cannot matter): `1e-3` and `0.001`, or another order of keys, give the
same file.

A configuration becomes files in four steps: `config/resolve.py` merges its layers for a language or model, the class of
the stage in `stages.py` fills in a type of `config/stage_settings.py`, `config/canonical.py` leaves out what cannot
matter, and `write_settings` writes the file where it differs.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from babelmill.config import canonical, inputs
from babelmill.config.inputs import SETTINGS, require_labels, set_aside
from babelmill.config.mistakes import worded
from babelmill.config.resolve import Configuration
from babelmill.config.snapshots import name_of, points
from babelmill.config.stage_settings import ONE_LANGUAGE, RunSettings, Settings
from babelmill.core import manifest
from babelmill.core.files import UserError, atomic_write, canonical_json, read_json
from babelmill.stages import STAGES

T = TypeVar("T", bound=Settings)


def write_settings(configuration: Configuration, name: str) -> None:
    """Write the settings files of a name that differ from what is on disk.

    All are written at once, since Snakemake lists a folder once and does not see a file that appears in it later.
    There are thousands of them for 500 languages, so they are not flushed to disk. A file that a crash left empty
    differs and is written again.
    """
    require_labels(configuration, name)  # also raises an error for an unknown name; every language is also a model
    stages = [stage for stage in STAGES.values() if stage.of == "model" or name in configuration.table]
    files = [stage.settings_name(part) for stage in stages for part in stage.parts(configuration, name)]
    for file in [*files, "run"]:
        path, text = SETTINGS / name / f"{file}.json", canonical_json(settings_of(configuration, name, file))
        if not path.is_file() or path.read_bytes() != text.encode():
            with atomic_write(path, "w", durable=False) as opened:
                opened.write(text)


def settings_of(configuration: Configuration, name: str, file: str) -> dict[str, Any]:
    """Return the content of `results/settings/{name}/{file}.json`.

    `file` is the stage; for a stage with parts, the stage and the part, as in "predict.census1880"; or "run", for the
    run settings, which belong to no stage.
    """
    if file == "run":
        return run_settings(configuration, name).written()
    stage, _, part = file.partition(".")
    return STAGES[stage].written(configuration, name, part)


UP_TO_TRAINING = ("tokenizer", "shards", "train")  # the stages that say what a training is asked to do


def same_asked(asked: Iterable[dict[str, Any]], snapshots: Iterable[str]) -> str:
    """Return a text that is the same for models that may take each other's trained weights, whatever their names are.

    `asked`: the settings of the stages UP_TO_TRAINING. The text of the corpora is not in it, which is that of the
    languages. `snapshots`: the names of those that the training keeps.
    """
    return canonical_json([[{k: v for k, v in each.items() if k != "name"} for each in asked], sorted(snapshots)])


def training_asked(name: str) -> str:
    """Return `same_asked` of a model's settings files."""
    asked = [read_json(SETTINGS / name / f"{stage}.json") for stage in UP_TO_TRAINING]
    wanted = points(read_json(SETTINGS / name / "run.json")["run"].get("snapshots", []))
    return same_asked(asked, map(name_of, wanted))


def trainings_there() -> dict[str, str]:
    """Return {`same_asked`: a model that is trained so}, from the manifests of all models whose results stand.

    They stand if nothing that they were made from was made again since, such as a corpus.
    """
    found = {}
    for folder in sorted(STAGES["train"].path("x", "").parent.glob("*")):
        with contextlib.suppress(UserError, LookupError, TypeError):  # a result may be damaged, or deleted
            trained = manifest.read(folder)
            parts = {stage: trained["settings"]["languages"] if stage == "shards" else [""] for stage in UP_TO_TRAINING}
            records = [STAGES[stage].record(folder.name, part) for stage in UP_TO_TRAINING for part in parts[stage]]
            made = [manifest.read(record.parent) for record in records]
            if not any(map(manifest.changed_upstream, made)):
                asked = {each["stage"]: each["settings"] for each in reversed(made)}  # the shards of the first language
                kept = trained["figures"].get("snapshots", []) + trained["figures"].get("missing_snapshots", [])
                found.setdefault(same_asked((asked[stage] for stage in UP_TO_TRAINING), kept), folder.name)
    return found


def run_settings(configuration: Configuration, name: str) -> RunSettings:
    """Return how the training of a model is monitored and saved."""
    model = configuration.model(name)
    return RunSettings(
        stage="run",
        name=name,
        run=model.run,
        preset=model.preset,
        bytes_per_word=inputs.bytes_per_word(configuration, name),
        set_aside=set_aside(configuration, name),
    )


def read_settings(path: str | Path, settings: type[T]) -> T:
    """Read the settings file of a stage as the type that the stage's entry in the table names.

    A UserError says that the file is another stage's, holds what the type does not allow, or was written for another
    version of the stage.
    """
    raw = read_json(path)
    stage = next((entry for entry in STAGES.values() if entry.settings is settings), None)
    expected = stage.name if stage else "run"
    if not isinstance(raw, dict) or raw.get("stage") != expected:
        found = raw.get("stage") if isinstance(raw, dict) else raw
        raise UserError(f"{path}: these are settings of the stage {found!r}, not of {expected!r}")
    if unknown := raw.keys() - settings.model_fields.keys():
        raise UserError(f"{path}: unknown key {min(unknown)}; delete the file, and run the workflow again")
    if stage and raw.get("version") != stage.version:
        raise UserError(f"{path}: written for another version of stage {stage.name}; run the workflow again")
    return recorded(raw, settings, path)


def bytes_per_word(language: str) -> float | None:
    """Return `Language.bytes_per_word` of a language, as its run settings say it."""
    with contextlib.suppress(UserError, LookupError, TypeError, AttributeError):  # the file may be missing
        return read_json(SETTINGS / language / "run.json")["bytes_per_word"].get(language)
    return None


def recorded(raw: dict[str, Any], settings: type[T], where: str | Path) -> T:
    """Return settings, as a file, a manifest or a run's identity holds them, as their type; `where` begins errors."""
    sections = settings.sections()
    values = {key: value for key, value in raw.items() if key in settings.model_fields and key not in sections}
    values |= canonical.from_file(raw, sections)
    if "mixture" in sections and "mixture" not in raw:
        values["mixture"] = ONE_LANGUAGE.model_dump() | values["mixture"]
    try:
        return settings.model_validate(values | {"raw": raw})
    except pydantic.ValidationError as error:
        raise UserError(f"{where}: {worded(error, values)[1]}") from None
