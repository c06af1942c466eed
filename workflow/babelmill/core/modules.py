"""Name the modules of this package that made a result, and those that were edited since.

A manifest has a hash of each module that its process had loaded, with the templates beside it: those of `card.py` are
`card.md`, `card.use.md` and so on. Nothing runs again because of an edit. The version in the class of a stage says
whether its results change (`stages.py`).
"""

import functools
import glob
import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

from babelmill.core.places import PACKAGE

# The modules and folders that change no result, or only through the settings of a stage.
OF_NO_RESULT = {"__init__", "__main__", "cli", "commands", "config", "core", "graph", "hub", "runtime"}
OF_NO_RESULT |= {"stages"}
TEMPLATES = (".html", ".md")
DIGITS = 16  # hexadecimal digits of a hash


@functools.cache
def digest(module: str) -> str | None:
    """Return the hash of a module such as `training/loop` with its templates; None if there is no such file.

    It is that of the files as they were when this process first asked.
    """
    path = PACKAGE / f"{module}.py"
    if not path.is_file():
        return None
    beside = sorted(path.parent.glob(f"{glob.escape(path.stem)}.*"))
    content = b"".join(each.read_bytes() for each in [path, *beside] if each.suffix in (".py", *TEMPLATES))
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def loaded() -> dict[str, str]:
    """Return {module: hash} of the modules that this process has loaded and that can change a result."""
    ours = [sys.modules[name] for name in [*sys.modules] if name.split(".")[0] in (PACKAGE.name, "__main__")]
    paths = [Path(file).resolve() for module in ours if (file := getattr(module, "__file__", None))]
    names = {path.relative_to(PACKAGE).with_suffix("").as_posix() for path in paths if path.is_relative_to(PACKAGE)}
    kept = sorted(name for name in names if name.split("/")[0] not in OF_NO_RESULT)
    return {name: found for name in kept if (found := digest(name))}


def of_files(paths: Iterable[Path]) -> dict[str, str]:
    """Return {module: hash} of modules of the package by their files."""
    names = (path.relative_to(PACKAGE).with_suffix("").as_posix() for path in paths)
    return {name: found for name in names if (found := digest(name))}


def edited(recorded: dict[str, str]) -> list[str]:
    """Return the files of the modules that differ from what a manifest or a run has recorded."""
    return [f"{name}.py" for name, before in recorded.items() if digest(name) != before]
