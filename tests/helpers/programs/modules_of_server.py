"""Let forked programs import our package without running it again: their parent process has it in memory."""

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class Shared:
    """Gives a fork the modules of a package that its parent process has imported.

    If the fork would find another copy of the package, as in an edited checkout, it imports that.
    """

    def __init__(self, package: str):
        """Take the modules of the package out of `sys.modules`, where no program has them when it begins."""
        names = [name for name in sys.modules if name.partition(".")[0] == package]
        self._package, self._modules = package, {name: sys.modules.pop(name) for name in names}
        self._specs: dict[str, Any] = {name: module.__spec__ for name, module in self._modules.items()}
        sys.meta_path.insert(0, self)  # pyright: ignore[reportArgumentType]

    def find_spec(self, name: str, path=None, _target=None) -> ModuleSpec | None:
        """Return a specification that has this object as its loader; None for modules that are not here."""
        if name == self._package and self._modules:
            found = PathFinder.find_spec(name, path)
            if not found or found.origin != self._specs[name].origin:
                self._modules.clear()
        if name not in self._modules:
            return None
        spec = ModuleSpec(name, self, origin=self._specs[name].origin)  # pyright: ignore[reportArgumentType]
        spec.submodule_search_locations = self._specs[name].submodule_search_locations
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        return self._modules.pop(spec.name)  # who imports it once more, after taking it away, gets a new one

    def exec_module(self, module: ModuleType) -> None:
        """Restore the specification. The module's code has already run: what it imported has to be imported, too."""
        module.__spec__ = self._specs[module.__name__]
        for value in [*vars(module).values()]:
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if name in self._modules and not str(name).startswith(f"{module.__name__}."):  # what a package contains
                importlib.import_module(name)

    def get_code(self, name: str):
        """Return the code of a module, which `python -m` runs."""
        return self._specs[name].loader.get_code(name)
