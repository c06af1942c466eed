"""Let forked programs import transformers in half the time, by what it found out in another process.

Each time it is imported, transformers reads all of its 3,000 files to learn which name is in which of them, which takes
a second. That depends on nothing but these files.
"""

import os
import pickle
import sys
from importlib.machinery import PathFinder

MODULE, FUNCTION = "transformers.utils.import_utils", "create_import_structure_from_path"


def found() -> dict[str, dict]:
    """Return the import structures of the folders of transformers, from a fork: this process imports nothing."""
    read, write = os.pipe()
    process = os.fork()
    if not process:
        try:
            import transformers
            from transformers.utils import import_utils

            (folder,) = transformers.__path__
            paths = [f"{folder}/models{part}" for part in ("", "/__init__.py", "/auto/__init__.py")]
            with os.fdopen(write, "wb") as file:
                pickle.dump({path: getattr(import_utils, FUNCTION)(path) for path in paths}, file)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        structures = pickle.load(file)
    os.waitpid(process, 0)
    return structures


class Known:
    """Has transformers, when it is imported, take these structures. A version in another folder looks for its own."""

    def __init__(self, structures: dict[str, dict]):
        self._structures = structures
        sys.meta_path.insert(0, self)  # pyright: ignore[reportArgumentType]

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
