"""Convert sections of the configuration to the form in settings files, fingerprints and manifests, and back.

A settings file decides what runs again, so it holds only what matters. Two kinds of keys are left out: a key at its
neutral value, which means the behaviour from before the key existed, and a key that cannot matter, such as the mask
rate of a causal run. A default that the user writes out is still the default. A key that has moved to another section
keeps its old place in the file. So a new key invalidates nothing until it is used, and no old file has to be migrated.
`schema.py` declares all this beside the type of each key.
"""

import functools
from typing import Any, TypeVar

from babelmill.config.layers import ABSENT, lookup
from babelmill.config.schema import OnlyIf, Section, Was

S = TypeVar("S", bound=Section)


@functools.cache
def _marks(section: type[Section], key: str, mark: type) -> Any:
    """Return the mark of class `mark` on a key; None if the key has none."""
    return next((entry for entry in section.model_fields[key].metadata if isinstance(entry, mark)), None)


def at_neutral(section: S, *keys: str) -> S:
    """Return a section with these keys at their neutral values, so that settings files leave them out."""
    return section.model_copy(update={key: type(section).model_fields[key].default for key in keys})


def places(name: str, section: type[Section]) -> list[str]:
    """Return the place of each key of a section in settings files, as `section.key`: the old place if it has moved."""
    return [_place(name, section, key) for key in section.model_fields]


def _place(name: str, section: type[Section], key: str) -> str:
    was = _marks(section, key, Was)
    return was.key if was else f"{name}.{key}"


def _matters(section: type[Section], key: str, values: dict[str, Any]) -> bool:
    """Return whether a key can matter, given the other `values` of its section."""
    mark = _marks(section, key, OnlyIf)
    return mark is None or mark.holds(values)


def to_file(sections: dict[str, Section]) -> dict[str, dict[str, Any]]:
    """Return sections as a settings file holds them."""
    written: dict[str, dict[str, Any]] = {name: {} for name in sections}
    for name, section in sections.items():
        values = section.model_dump()
        for key, value in section.model_dump(exclude_defaults=True).items():
            if _matters(type(section), key, values):
                place, place_key = _place(name, type(section), key).split(".")
                written.setdefault(place, {})[place_key] = value
    return written


def values_by_key(sections: dict[str, dict[str, Any]], schemas: dict[str, type[Section]]) -> dict[str, Any]:
    """Return the complete values of sections (see `from_file`) by dotted key; a moved key has both of its names."""
    found = {f"{name}.{key}": value for name in schemas for key, value in sections[name].items()}
    for name, schema in schemas.items():
        for key in schema.model_fields:
            if was := _marks(schema, key, Was):
                found[was.key] = found[f"{name}.{key}"]
    return found


def from_file(written: dict[str, Any], schemas: dict[str, type[Section]]) -> dict[str, dict[str, Any]]:
    """Return the values of the sections in `schemas`, from what `to_file` wrote, with left-out keys filled in."""
    sections: dict[str, dict[str, Any]] = {}
    moved_away: set[tuple[str, str]] = set()
    for name, schema in schemas.items():
        values = sections[name] = dict(written.get(name, {}))
        for key, field in schema.model_fields.items():
            was = _marks(schema, key, Was)
            if was is not None:
                place, place_key = was.key.split(".")
                moved_away.add((place, place_key))
                value = lookup(written, (place, place_key))
                if value is not ABSENT:
                    values[key] = value
            if key not in values:
                if not field.is_required():
                    values[key] = field.default
                elif mark := _marks(schema, key, OnlyIf):
                    values[key] = mark.otherwise
    for place, key in moved_away:
        if place in schemas and key not in schemas[place].model_fields:
            sections[place].pop(key, None)
    return sections
