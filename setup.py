"""Put what is around the package (rules, configuration, profiles, guides) into the wheel, as `babelmill/project/`.

`core/places.py` finds it there. Everything else about the package is in pyproject.toml.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

# MANIFEST.in has the same names, for the source distribution, from which wheels are built, too.
PROJECT = ("workflow/Snakefile", "workflow/rules")
PROJECT += ("config", "profiles", "envs", "docs", "README.md", "CHANGELOG.md")


def put_committed_settings(project: Path) -> None:
    """Put config/config.yaml of the last commit there, not that of the builder. Without a clone, the file stays."""
    name = "config/config.yaml"
    if Path(".git").exists() and shutil.which("git"):
        committed = subprocess.run(["git", "show", f"HEAD:{name}"], capture_output=True)
        if committed.returncode:
            sys.exit(f"error: git does not show {name} of the last commit: {committed.stderr.decode().strip()}")
        (project / name).unlink(missing_ok=True)  # it may be a hard link to the builder's file
        (project / name).write_bytes(committed.stdout)


class SourceDistribution(sdist):
    """Makes the source distribution, with the committed settings."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Make the folder that is packed."""
        super().make_release_tree(base_dir, files)
        put_committed_settings(Path(base_dir))


class BuildWithProject(build_py):
    """Builds the package, and copies the project into it, unless it is used from this folder (`--editable`)."""

    def run(self) -> None:
        """Build both."""
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib, "babelmill"), ignore_errors=True)  # of an earlier build
        super().run()
        if self.editable_mode:
            return
        project = Path(self.build_lib, "babelmill/project")
        for name in PROJECT:
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            if Path(name).is_dir():
                shutil.copytree(name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(name, project / name)
        put_committed_settings(project)


setup(cmdclass={"build_py": BuildWithProject, "sdist": SourceDistribution})
