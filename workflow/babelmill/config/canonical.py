"""Convert sections of the configuration to the form in settings files, fingerprints and manifests, and back.

A settings file decides what runs again, so it holds only what matters. Two kinds of keys are left out: a key at its
neutral value, which means the behaviour from before the key existed, and a key that cannot matter, such as the mask
rate of a causal run. A default that the user writes out is still the default. So a new key invalidates nothing until it
is used, and no old file has to be migrated. `schema.py` declares all this beside the type of each key.
"""

import functools
from typing import Any, TypeVar

from babelmill.config.schema import OnlyIf, Section

S = TypeVar("S", bound=Section)


@functools.cache
def _only_if(section: type[Section], key: str) -> OnlyIf | None:
    """Return the mark of a key that may not matter; None if the key has none."""
    return next((entry for entry in section.model_fields[key].metadata if isinstance(entry, OnlyIf)), None)


def at_neutral(section: S, *keys: str) -> S:
    """Return a section with these keys at their neutral values, so that settings files leave them out."""
    return section.model_copy(update={key: type(section).model_fields[key].default for key in keys})


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not empty: settings files leave the others out."""
    return {key: value for key, value in fields.items() if value}


def to_file(sections: dict[str, Section]) -> dict[str, dict[str, Any]]:
    """Return sections as a settings file holds them."""
    written: dict[str, dict[str, Any]] = {}
    for name, section in sections.items():
        values, given = section.model_dump(), section.model_dump(exclude_defaults=True)
        marks = {key: _only_if(type(section), key) for key in given}
        written[name] = {key: value for key, value in given.items() if not (mark := marks[key]) or mark.holds(values)}
    return written


def from_file(written: dict[str, Any], schemas: dict[str, type[Section]]) -> dict[str, dict[str, Any]]:
    """Return the values of the sections in `schemas`, from what `to_file` wrote, with left-out keys filled in."""
    sections: dict[str, dict[str, Any]] = {}
    for name, schema in schemas.items():
        values = sections[name] = dict(written.get(name, {}))
        for key, field in schema.model_fields.items():
            if key not in values and not field.is_required():
                values[key] = field.default
            elif key not in values and (mark := _only_if(schema, key)):
                values[key] = mark.otherwise
    return sections
