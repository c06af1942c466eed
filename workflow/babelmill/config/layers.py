"""Work with nested mappings, the layers of a configuration, and find the files of `config/`.

A file may come with Babelmill or be the user's own, in `config/` of the working folder. In a clone, both are in the
same folder. In a folder that `babelmill init` made, Babelmill's are beside the installed package.
"""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.places import ROOT

DEFAULTS = "config/defaults.yaml"  # the first layer
PRESETS = "config/presets/"  # files in this folder are the next layers
SUITES = "config/suites/"
TASKS = "config/tasks/"
PROTOCOLS = "config/protocols/"
SUBMISSIONS = "config/submissions/"


class Layer(NamedTuple):
    """Some of the values of a configuration."""

    values: dict[str, Any]  # nested, by section
    label: str  # the file (and the entry in it) that the values come from


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new mapping: `base` updated by `over`, with nested mappings merged and everything else replaced.

    A mapping with another `model_type` is replaced as a whole, since its keys are those of another class.
    """
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            same = below.get("model_type") == value.get("model_type", below.get("model_type"))
            merged[key] = merge(below, value) if same or "model_type" not in below else value
        else:
            merged[key] = value
    return merged


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as a single mapping of dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint such as `; did you mean eng?`, or the known names if none is similar. Case is ignored."""
    known = sorted(known)
    by_small_letters = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word.lower(), by_small_letters, n=3, cutoff=0.5)
    if matches:
        return f"; did you mean {' or '.join(by_small_letters[match] for match in matches)}?"
    return f"; known are {escape.some(known)}"


def config_names(folder: str, root: Path = ROOT) -> set[str]:
    """Return the names of all .yaml files of a folder such as `config/presets/`, without their suffix."""
    return {path.stem for place in (root, Path()) for path in (place / folder).glob("*.yaml")}


def config_file(path: str, root: Path = ROOT) -> Path:
    """Return where a file such as `config/presets/small.yaml` is. It need not exist.

    A UserError says that Babelmill and the user have different files of this name.
    """
    ours, own = root / path, Path(path)
    if ours.is_file() and own.is_file() and ours.read_bytes() != own.read_bytes():
        raise UserError(f"{path}: another file than Babelmill's of this name ({ours}): choose another name")
    return ours if ours.is_file() else own
