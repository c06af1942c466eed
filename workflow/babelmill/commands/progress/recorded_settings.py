"""Read the settings that results were made with, by the names that the keys have in the configuration.

Manifests and the identities of training runs hold settings files, which leave out keys (`config/canonical.py`). Here,
keys at their neutral values are filled in, and only those that cannot matter are left out.
"""

import functools
from collections.abc import Mapping
from typing import Any

from babelmill.config import canonical
from babelmill.config.layers import flatten
from babelmill.config.resolve import Configuration
from babelmill.config.schema import OnlyIf, Section
from babelmill.stages import STAGES

Values = dict[str, Any]  # by dotted key
UNSET = "unset"  # how a value is shown that a model does not have
LANGUAGE = "eng"  # a language for a model that has only its preset


def matters(section: type[Section], key: str, values: Mapping[str, Any]) -> bool:
    """Return whether a key of a section can matter, given the values of the section."""
    marks = [mark for mark in section.model_fields[key].metadata if isinstance(mark, OnlyIf)]
    try:
        return all(mark.holds(dict(values)) for mark in marks)
    except KeyError:  # a release that did not have the other key
        return False


def values_in(stage: str, written: dict[str, Any]) -> Values:
    """Return the values that can matter in the settings of a stage, as a manifest or a run's identity holds them."""
    kinds = {name: kind for name, kind in STAGES[stage].settings.sections().items() if name in written}
    if written.get("of_model") or written.get("characters"):
        kinds.pop("tokenizer", None)  # its keys are not read: the tokenizer is that of the model that is continued
    found: dict[str, Values] = {}
    for name, values in canonical.from_file(written, kinds).items():
        kind = kinds[name]
        # A key that has no neutral value is left out of the file only if it cannot matter.
        keys = [key for key in values if key in written[name] or not kind.model_fields[key].is_required()]
        found[name] = {
            key: values[key]
            for key in keys
            if (key, values[key]) != ("revision", "")  # of nothing that has revisions
            and (key not in kind.model_fields or matters(kind, key, values))
        }
    return flatten(found)


@functools.cache
def values_of_preset(preset: str) -> Values:
    """Return the values of a model that has only the defaults and a preset; raise a UserError if there is none."""
    resolved = Configuration([("the preset", {"preset": preset, "targets": [LANGUAGE]})]).model(LANGUAGE)
    return flatten({name: section.model_dump() for name, section in resolved.sections.items()})


def differences(before: Values, now: Values) -> dict[str, tuple[Any, Any]]:
    """Return {key: (value before, value now)} of the values that differ; UNSET stands for one that is not there."""
    keys = sorted(before.keys() | now.keys())
    pairs = {key: (before.get(key, UNSET), now.get(key, UNSET)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def shown(value: Any) -> str:
    """Return a value as YAML would have it."""
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.12g}" if isinstance(value, float) else str(value)
