"""Make a separate checkout to edit, like that of a user who changed the code or upgraded."""

import re
import shutil
import subprocess
from pathlib import Path

import yaml

from conftest import ROOT
from helpers.programs.prepared import run_module


class Checkout:
    """Holds a copy of the project, and runs the commands of a user who works with it in a folder of results."""

    def __init__(self, path: Path, results: Path):
        """Copy the project to `path`; `results` is the folder that all commands run in."""
        self.path, self.results = path, results
        for name in ("workflow", "config", "profiles", "envs"):
            shutil.copytree(ROOT / name, path / name, ignore=shutil.ignore_patterns("*.egg-info"))
        for name in ("Snakefile", "CHANGELOG.md"):
            shutil.copy(ROOT / name, path / name)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that must be in a file exactly once."""
        source = (self.path / name).read_text(encoding="utf-8")
        assert source.count(old) == 1, f"{name} has {old!r} {source.count(old)} times"
        (self.path / name).write_text(source.replace(old, new), encoding="utf-8")

    def package(self, name: str, old: str, new: str) -> None:
        """Edit a module of the package."""
        self.edit(f"workflow/babelmill/{name}", old, new)

    def configure(self, values: dict) -> None:
        """Write the configuration of the folder of results."""
        (self.results / "config/config.yaml").write_text(yaml.safe_dump(values))

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables with which this checkout's package is used."""
        variables = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "OMP_NUM_THREADS": "1"}
        return variables | {"PYTHONPATH": str(self.path / "workflow"), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *command, check: bool = False) -> subprocess.CompletedProcess:
        return run_module(*command, cwd=self.results, environment=self.environment, check=check)

    def babelmill(self, *arguments, check: bool = True) -> str:
        """Return what a command prints."""
        done = self.run("babelmill", *arguments, check=check)
        return done.stdout + done.stderr

    def snakemake(self, *arguments, check: bool = True) -> str:
        """Return what Snakemake prints."""
        options = ["--snakefile", self.path / "Snakefile", "--resources", "gpu=0", "--cores", "1"]
        done = self.run("snakemake", *options, *arguments, check=check)
        return done.stdout + done.stderr

    def dry_run(self, *targets, profile: str | None = "local") -> str:
        """Return what a dry run prints, with or without a profile."""
        options = ["--profile", self.path / "profiles" / profile] if profile else []
        return self.snakemake(*options, "--configfile", "config/config.yaml", "--dry-run", "--", *targets)

    def would_run(self, *targets, profile: str | None = "local") -> list[str]:
        """Return the rules that a dry run lists, without repetition, in its order."""
        output = self.dry_run(*targets, profile=profile)
        rules = re.findall(r"^((?!total|all)\w+) +\d+$", output, re.MULTILINE)
        assert rules or "Nothing to be done" in output, output
        return list(dict.fromkeys(rules))
