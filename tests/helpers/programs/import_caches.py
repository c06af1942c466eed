"""Let forked programs import transformers in less than half the time, by what another process found out.

Programs cannot share its modules, since they read the environment when they are imported. But what is found out for
them depends on nothing but files: which name is in which of the 3,000 files of transformers (a second), the code of
modules, the code that dataclasses write, and the regular expressions.
"""

import dataclasses
import importlib
import os
import pickle
import re
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from typing import NamedTuple

MODULE, FUNCTION = "transformers.utils.import_utils", "create_import_structure_from_path"
LIBRARIES = [
    "modeling_utils",
    "generation",
    "models.auto",
    "models.auto.modeling_auto",
    "tokenization_utils_tokenizers",
]
MANY = 10**6  # regular expressions that Python remembers


class Found(NamedTuple):
    """Holds import structures by folder, regular expressions, the code of dataclasses, and modules with their files."""

    structures: dict[str, dict]
    patterns: list[tuple[str, int]]
    texts: list[str]
    files: list[tuple[str, str]]


def found() -> Found:
    """Return what a fork finds out: this process imports nothing."""
    read, write = os.pipe()
    process = os.fork()
    if not process:
        try:
            with os.fdopen(write, "wb") as file:
                pickle.dump(find(), file)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        result = pickle.load(file)
    os.waitpid(process, 0)
    return result


def find() -> Found:
    """Import transformers, and take down what this needs."""
    before, texts, re._MAXCACHE = set(sys.modules), [], MANY  # pyright: ignore[reportAttributeAccessIssue]
    dataclasses.exec = lambda text, *spaces: texts.append(text) or exec(text, *spaces)  # pyright: ignore[reportAttributeAccessIssue]
    for name in LIBRARIES:
        importlib.import_module(f"transformers.{name}")
    importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("bert")
    (folder,) = sys.modules["transformers"].__path__
    paths = [f"{folder}/models{part}" for part in ("", "/__init__.py", "/auto/__init__.py")]
    structures = {path: getattr(sys.modules[MODULE], FUNCTION)(path) for path in paths}
    specs = [getattr(sys.modules[name], "__spec__", None) for name in set(sys.modules) - before]
    files = [(spec.name, spec.origin) for spec in specs if spec and isinstance(spec.loader, SourceFileLoader)]
    patterns = [key[1:] for key in re._cache]  # pyright: ignore[reportAttributeAccessIssue]
    return Found(structures, patterns, texts, files)


class Known:
    """Has programs take what was found. A version of transformers in another folder finds out for itself."""

    def __init__(self, found: Found):
        self._structures = found.structures
        sys.meta_path.insert(0, self)  # pyright: ignore[reportArgumentType]
        re._MAXCACHE = MANY  # pyright: ignore[reportAttributeAccessIssue]
        for pattern in found.patterns:
            re.compile(*pattern)
        texts = {text: compile(text, "<string>", "exec") for text in found.texts}
        dataclasses.exec = lambda text, *spaces: exec(texts.get(text, text), *spaces)  # pyright: ignore[reportAttributeAccessIssue]
        codes = {path: SourceFileLoader(name, path).get_code(name) for name, path in found.files}
        read = SourceFileLoader.get_code
        SourceFileLoader.get_code = lambda self, fullname: codes.get(self.path) or read(self, fullname)

    def find_spec(self, name, path=None, _target=None):
        """Return the module's usual specification, with a loader that replaces the function in it."""
        spec = PathFinder.find_spec(name, path) if name == MODULE else None
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def replacing(module) -> None:
                execute(module)
                find = getattr(module, FUNCTION)
                setattr(module, FUNCTION, lambda path: self._structures.get(str(path)) or find(path))

            spec.loader.exec_module = replacing
        return spec
