"""Make a separate checkout to edit, like that of a user who changed the code or upgraded."""

import os
import shutil
import subprocess
from pathlib import Path

from conftest import ROOT, Workspace


class Checkout(Workspace):
    """Holds a folder of results in which a copy of the project is used."""

    def __init__(self, project: Path, path: Path):
        """Copy the project to `project`; `path` is the folder that all commands run in."""
        super().__init__(path)
        self.project = project
        for name in ("workflow", "config", "profiles", "envs"):
            shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("*.egg-info"))
        for name in ("Snakefile", "CHANGELOG.md"):
            shutil.copy(ROOT / name, project / name)

    @property
    def environment(self) -> dict[str, str]:
        package = {"PYTHONPATH": f"{self.project / 'workflow'}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
        return {**os.environ, **package}

    def snakemake(self, *arguments, check: bool = True) -> subprocess.CompletedProcess:
        """Run it in the folder: the end of a dry run with `--directory` alone names no edited modules."""
        return self.python("-m", "snakemake", *self.arguments(*arguments), check=check)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that must be in a file exactly once."""
        source = (self.project / name).read_text(encoding="utf-8")
        assert source.count(old) == 1, f"{name} has {old!r} {source.count(old)} times"
        (self.project / name).write_text(source.replace(old, new), encoding="utf-8")

    def package(self, name: str, old: str, new: str) -> None:
        """Edit a module of the package."""
        self.edit(f"workflow/babelmill/{name}", old, new)
