"""Put what is around the package (rules, configuration, profiles, guides) into the wheel, as `babelmill/project/`.

`core/places.py` finds it there. Everything else about the package is in pyproject.toml.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# MANIFEST.in has the same names, for the source distribution, from which wheels are built, too.
PROJECT = ("workflow/Snakefile", "workflow/rules", "workflow/report")
PROJECT += ("config", "profiles", "envs", "docs", "README.md", "CHANGELOG.md")


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
                shutil.copytree(name, project / name, ignore=shutil.ignore_patterns("lock.yaml", "__pycache__"))
            else:
                shutil.copy(name, project / name)


setup(cmdclass={"build_py": BuildWithProject})
