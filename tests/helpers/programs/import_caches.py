"""Let forked programs import transformers in a third of the time, by what another process found out.

Programs cannot share its modules, since they read the environment when they are imported. But which name is in which of
its 3,000 files depends on these files alone, and takes a third of a second to find out.

    python import_caches.py   write what is found, for `found`
"""

import pickle
import subprocess
import sys
from importlib.machinery import PathFinder

MODULE, FUNCTION = "transformers.utils.import_utils", "create_import_structure_from_path"


def found() -> dict[str, dict]:
    """Return import structures by folder, which another process finds: this one does not import transformers."""
    return pickle.loads(subprocess.run([sys.executable, __file__], stdout=subprocess.PIPE, check=True).stdout)


def find() -> dict[str, dict]:
    """Return the import structures of the folders of models that programs ask for."""
    import transformers
    from transformers.utils import import_utils

    folder = f"{transformers.__path__[0]}/models"
    paths = [folder, f"{folder}/__init__.py", f"{folder}/auto/__init__.py"]
    return {path: getattr(import_utils, FUNCTION)(path) for path in paths}


class Known:
    """Has programs take what was found. A version of transformers in another folder finds out for itself."""

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


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps(find()))
