"""Settings files: what a stage is asked to do, `results/settings/{name}/{stage}.json`.

Such a file holds the slice of the configuration that this stage and nothing else reads, and the version of its code.
It is an input of the stage's rule, so a changed value invalidates exactly that stage and what follows from it. It is
canonical (sorted, typed, without what cannot matter), so that `1e-3` and `0.001`, or another order of keys, are the
same file. What stands in it is declared in `stages.py` and `config/canonical.py`.
"""

from pathlib import Path
from typing import Any, TypeVar

import pydantic

from babelmill.config import canonical
from babelmill.config.inputs import SETTINGS
from babelmill.config.layers import ABSENT, lookup
from babelmill.config.resolve import Configuration, Resolved
from babelmill.core import code_versions
from babelmill.core.files import UserError, atomic_write, canonical_json, read_json
from babelmill.stages import STAGES, RunSettings, Settings, Stage

T = TypeVar("T", bound=Settings)


def settings_of(configuration: Configuration, name: str, stage: str) -> dict[str, Any]:
    """The content of `results/settings/{name}/{stage}.json`; `stage` may be "run", which is none."""
    if stage == "run":
        return _sections(RunSettings, configuration.model(name)) | {"stage": "run", "name": name}
    entry = STAGES[stage]
    resolved = configuration.corpus(name) if entry.of == "language" else configuration.model(name)
    values = _sections(entry.settings, resolved)
    for key, added in entry.adds(configuration, name).items():
        if key in entry.settings.sections():
            values[key] = None if added is None else values[key] | added
        else:
            values[key] = added
    values = {key: value for key, value in values.items() if value is not None or key not in entry.settings.sections()}
    values |= {"stage": stage, "name": name, "languages": list(resolved.languages)}
    return values | {"code": _label(entry, resolved)}


def _sections(settings: type[Settings], resolved: Resolved) -> dict[str, Any]:
    """The sections that a stage reads, as files hold them. A model of one language has nothing to weigh."""
    sections = {name: resolved.sections[name] for name in settings.sections()}
    if len(resolved.languages) == 1:
        sections.pop("mixture", None)
    return dict(canonical.to_file(sections))


def _label(stage: Stage, resolved: Resolved) -> str:
    def value(key: str) -> Any:
        section, _, name = key.partition(".")
        return getattr(resolved.sections.get(section), name, code_versions.UNKNOWN)

    return code_versions.labels(stage.name, stage.digest, value)[0]


def write_settings(configuration: Configuration, name: str) -> None:
    """Write all settings files of a name, each only where it differs.

    All at once, since Snakemake takes one inventory of a folder and does not see a file that appears in it later.
    There are thousands for 500 languages: they are not flushed to disk, and one that a crash left empty differs.
    """
    configuration.languages_of(name)  # refuses a name that is no model, which every language is
    is_language = name in configuration.table
    stages = [
        stage.name
        for stage in STAGES.values()
        if (stage.of == "model" or is_language) and stage.applies(configuration, name)
    ]
    for stage in [*stages, "run"]:
        path, text = SETTINGS / name / f"{stage}.json", canonical_json(settings_of(configuration, name, stage))
        if not path.is_file() or path.read_bytes() != text.encode():
            with atomic_write(path, "w", durable=False) as file:
                file.write(text)


def read_settings(path: str | Path, settings: type[T]) -> T:
    """Read the settings file of a stage as the type that its entry in the table names.

    Raises:
        UserError: it is the file of another stage, holds what the type does not allow, or was written for other code.
    """
    raw = read_json(path)
    stage = next((entry for entry in STAGES.values() if entry.settings is settings), None)
    expected = stage.name if stage else "run"
    if not isinstance(raw, dict) or raw.get("stage") != expected:
        found = raw.get("stage") if isinstance(raw, dict) else raw
        raise UserError(f"{path}: these are settings of stage {found!r}, not of {expected!r}")
    if stage:
        check_code(path, stage, raw)
    sections = settings.sections()
    values = {key: value for key, value in raw.items() if key in settings.model_fields and key not in sections}
    values |= canonical.from_file(raw, sections)
    if "mixture" in sections and "mixture" not in raw:
        values["mixture"] = {"weights": 1.0}
    try:
        return settings.model_validate(values | {"raw": raw, "modules": stage.modules if stage else {}})
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {key} = {first['input']!r}: {first['msg']}") from None


def check_code(path: str | Path, stage: Stage, raw: dict[str, Any]) -> None:
    """Raise a UserError if a settings file was written for other code than that which runs now."""

    def value(key: str) -> Any:
        found = lookup(raw, key.split("."))
        return code_versions.UNKNOWN if found is ABSENT else found

    possible = code_versions.labels(stage.name, stage.digest, value)
    if raw.get("code") not in possible:
        raise UserError(
            f"{path}: was written for the code {raw.get('code')!r} of stage {stage.name}, which is {possible[0]!r} now:"
            " it was edited after this job was queued; run the workflow again"
        )
