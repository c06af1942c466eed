"""Read and write settings files, `results/settings/{name}/{stage}.json`: what a stage is asked to do.

Such a file holds exactly the part of the configuration that this stage reads, and the version of the stage's code.
It is an input of the stage's rule, so a changed value invalidates exactly that stage and the stages after it. It is
canonical (sorted, typed, without values that cannot matter): `1e-3` and `0.001`, or another order of keys, give the
same file. `config/stage_settings.py` and `config/canonical.py` declare what it holds.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from babelmill.config import canonical
from babelmill.config.added_settings import LEFT_OUT, whole
from babelmill.config.inputs import SETTINGS, require_labels, set_aside
from babelmill.config.resolve import Configuration, Resolved
from babelmill.config.schema import Section
from babelmill.config.stage_settings import RunSettings, Settings
from babelmill.core import code_versions, manifest
from babelmill.core.files import UserError, atomic_write, canonical_json, read_json
from babelmill.stages import STAGES, Stage

T = TypeVar("T", bound=Settings)


def settings_of(configuration: Configuration, name: str, stage: str) -> dict[str, Any]:
    """Return the content of `results/settings/{name}/{stage}.json`.

    `stage` may also be "run", for the run settings, which belong to no stage. For a stage with parts, it is the stage
    and the part: "predict.census1880".
    """
    stage, _, part = stage.partition(".")
    if stage == "run":
        model = configuration.model(name)
        written = _sections(RunSettings, model) | {"stage": "run", "name": name, "preset": model.preset}
        sizes = {code: configuration.table[code].bytes_per_word for code in model.languages}
        found = {code: size for code, size in sizes.items() if size}
        return written | {"bytes_per_word": found, "set_aside": set_aside(configuration, name)}
    entry = STAGES[stage]
    resolved = configuration.corpus(name) if entry.of == "language" else configuration.model(name)
    values = _sections(entry.settings, resolved)
    for key, added in entry.adds(configuration, name).items():
        if key not in entry.settings.sections():
            values[key] = added
        elif added is None:
            values.pop(key, None)
        else:
            values[key] = {k: v for k, v in (values[key] | added).items() if v is not LEFT_OUT}
    if part:
        values |= entry.adds_to_part(configuration, name, part)
    return values | {
        "stage": stage,
        "name": name,
        "languages": list(resolved.languages),
        "code": _code(entry, resolved, [part] if part else resolved.languages),
    }


def _sections(settings: type[Settings], resolved: Resolved) -> dict[str, Any]:
    """Return the sections that a stage reads, as files hold them. A model of one language has no `mixture`."""
    sections = {name: resolved.sections[name] for name in settings.sections()}
    if len(resolved.languages) == 1:
        sections.pop("mixture", None)
    return dict(canonical.to_file(sections))


def _code(stage: Stage, resolved: Resolved, parts: Iterable[str]) -> str:
    """Return what the settings file says about the stage's code: its version, or its digest if no version has it.

    If edited code made the results before the edit was accepted, they stay valid: their settings file keeps the digest
    of this code.
    """
    found = code_versions.fitting(stage.name, stage.digest, _lookup_of(resolved))
    if not found:
        return stage.digest
    made_by = _made_by(stage, resolved.name, parts)
    return made_by if made_by in found[0].digests else found[0].label


def versions_of_others(configuration: Configuration, name: str, stage: Stage) -> set[str]:
    """Return the labels of the versions that are valid only for other settings than those of a language or model."""
    lookup = _lookup_of(configuration.corpus(name) if stage.of == "language" else configuration.model(name))
    return {v.label for v in code_versions.read().get(stage.name, []) if v.holds(lookup) is False}


def _lookup_of(resolved: Resolved) -> code_versions.Lookup:
    """Return a function that looks up the values of a language or model by dotted key."""
    types = {name: type(section) for name, section in resolved.sections.items()}
    return _lookup(canonical.to_file(resolved.sections), types)


def _made_by(stage: Stage, name: str, parts: Iterable[str]) -> str | None:
    """Return the code that made the existing results, from their settings; None if there are no results."""
    for part in parts:
        with contextlib.suppress(UserError, KeyError, TypeError):
            return manifest.read(stage.record(name, part))["settings"]["code"]
    return None


def _lookup(written: dict[str, Any], types: dict[str, type[Section]]) -> code_versions.Lookup:
    """Return a function that looks up values by dotted key, in sections as files hold them."""
    values = canonical.values_by_key(canonical.from_file(written, types), types)
    return lambda key: values.get(key, code_versions.UNKNOWN)


def write_settings(configuration: Configuration, name: str) -> None:
    """Write the settings files of a name that differ from what is on disk.

    All are written at once, since Snakemake lists a folder once and does not see a file that appears in it later.
    There are thousands of them for 500 languages, so they are not flushed to disk. A file that a crash left empty
    differs and is written again.
    """
    require_labels(configuration, name)  # also raises an error for an unknown name; every language is also a model
    is_language = name in configuration.table
    stages = [
        f"{stage.name}.{part}" if part else stage.name
        for stage in STAGES.values()
        if (stage.of == "model" or is_language) and stage.applies(configuration, name)
        for part in ([""] if stage.parts is whole else stage.parts(configuration, name))
    ]
    for stage in [*stages, "run"]:
        path, text = SETTINGS / name / f"{stage}.json", canonical_json(settings_of(configuration, name, stage))
        if not path.is_file() or path.read_bytes() != text.encode():
            with atomic_write(path, "w", durable=False) as file:
                file.write(text)


def read_settings(path: str | Path, settings: type[T]) -> T:
    """Read the settings file of a stage as the type that the stage's entry in the table names.

    Raises:
        UserError: the file is another stage's, holds what the type does not allow, or was written for other code.
    """
    raw = read_json(path)
    stage = next((entry for entry in STAGES.values() if entry.settings is settings), None)
    expected = stage.name if stage else "run"
    if not isinstance(raw, dict) or raw.get("stage") != expected:
        found = raw.get("stage") if isinstance(raw, dict) else raw
        raise UserError(f"{path}: these are settings of the stage {found!r}, not of {expected!r}")
    known = {
        place.partition(".")[0] for name, kind in settings.sections().items() for place in canonical.places(name, kind)
    }
    if unknown := raw.keys() - settings.model_fields.keys() - known:
        raise UserError(f"{path}: unknown key {min(unknown)}; delete the file, and run the workflow again")
    if stage:
        check_code(path, stage, raw)
    return recorded(raw, settings, path).model_copy(update={"modules": stage.modules if stage else {}})


def bytes_per_word(language: str) -> float | None:
    """Return `Language.bytes_per_word` of a language, as its run settings say it."""
    # The file may be missing, or of an earlier version.
    with contextlib.suppress(UserError, LookupError, TypeError, AttributeError):
        return read_json(SETTINGS / language / "run.json")["bytes_per_word"].get(language)
    return None


def recorded(raw: dict[str, Any], settings: type[T], where: str | Path) -> T:
    """Return settings, as a file, a manifest or a run's identity holds them, as their type; `where` begins errors."""
    sections = settings.sections()
    values = {key: value for key, value in raw.items() if key in settings.model_fields and key not in sections}
    values |= canonical.from_file(raw, sections)
    if "mixture" in sections and "mixture" not in raw:
        values["mixture"] = {"weights": 1.0} | values["mixture"]
    try:
        return settings.model_validate(values | {"raw": raw})
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(f"{where}: {key} = {first['input']!r}: {first['msg']}") from None


def check_code(path: str | Path, stage: Stage, raw: dict[str, Any]) -> None:
    """Raise a UserError if a settings file was written for other code than the present code."""
    written = {name: section for name, section in stage.settings.sections().items() if name in raw}
    possible = code_versions.fitting(stage.name, stage.digest, _lookup(raw, written))
    allowed = {stage.digest, *(version.label for version in possible)}
    allowed |= {digest for version in possible for digest in version.digests}
    if raw.get("code") not in allowed:
        now = possible[0].label if possible else stage.digest
        raise UserError(
            f"{path}: the code of stage {stage.name} has changed since this file was written ({raw.get('code')}, now"
            f" {now}); run the workflow again"
        )
