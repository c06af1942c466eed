"""A wheel, made of the source distribution and installed without a clone, makes the same results as one."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from conftest import ROOT, SMALL, write_texts

NAMES = ("pyproject.toml", "setup.py", "MANIFEST.in", "LICENSE", "README.md", "CHANGELOG.md", "Snakefile")
OWN = "targets: [my_secret_language]\n"
FOLDERS = ("workflow", "config", "profiles", "envs", "docs")


def run(*command, cwd=None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def build(kind: str, source: Path, out: Path) -> Path:
    """Return a distribution of a folder, as `python -m build` makes it."""
    run(sys.executable, "-c", f"from setuptools import build_meta; build_meta.build_{kind}({str(out)!r})", cwd=source)
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """Return the Python of a new environment with the wheel; only other packages are those of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    source, unpacked = folder / "source", folder / "unpacked"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in NAMES:
        shutil.copy(ROOT / name, source)
    (source / ".git").mkdir()  # git refuses it, as it does a folder of another user
    with pytest.raises(AssertionError, match=r"error: git does not show config/config.yaml of the last commit"):
        build("sdist", source, folder / "refused")
    git = ("git", "-c", "user.name=me", "-c", "user.email=me@example.org")
    for words in (("init", "--quiet"), ("add", "config"), ("commit", "--quiet", "--message", "all")):
        run(*git, *words, cwd=source)
    settings = source / "config/config.yaml"
    settings.write_text(OWN)  # of whoever builds the wheel
    shutil.unpack_archive(build("sdist", source, folder / "sdist"), unpacked, filter="data")
    (sources,) = unpacked.iterdir()
    assert settings.read_text() == OWN != (sources / "config/config.yaml").read_text()
    shutil.copytree(source / ".git", sources / ".git")  # as if the wheel were built in the clone
    (sources / "config/config.yaml").write_text(OWN)
    wheel = build("wheel", sources, folder / "wheel")
    made = folder / "environment/bin/python"
    run(sys.executable, "-m", "venv", "--without-pip", made.parents[1])
    run(sys.executable, "-m", "pip", "--python", made, "install", "--quiet", "--no-deps", wheel)
    site = run(made, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(site, "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert Path(run(made, "-c", "import babelmill; print(babelmill.__file__)")).is_relative_to(site)
    return made


def test_it_holds_what_a_clone_has_besides_the_tests(python):
    (project,) = python.parents[1].glob("lib/*/site-packages/babelmill/project")
    for folder in ("workflow/rules", "config", "profiles", "docs"):
        files = {path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.*")}
        found = {path.relative_to(project) for path in (project / folder).rglob("*.*")}
        compiled = {path for path in files | found if "__pycache__" in path.parts}  # pip compiles docs/site
        assert files - compiled == found - compiled
    assert (project / "config/config.yaml").read_bytes() == (ROOT / "config/config.yaml").read_bytes()


def test_a_model_is_made_without_a_clone_and_a_clone_repeats_nothing(python, tmp_path):
    folder = tmp_path / "study"
    run(python.with_name("babelmill"), "init", folder, cwd=tmp_path)
    snakemake = [python, "-m", "snakemake", "--profile"]
    assert "\ntotal            9\n" in run(*snakemake, "profiles/demo", "--dry-run", "converted/eng", cwd=folder)
    (folder / "config/config.yaml").write_text(yaml.safe_dump(SMALL | {"targets": ["eng"]}))
    write_texts(folder / "texts/eng", "eng")
    assert "1 of 1 model converted" in run(*snakemake, "profiles/local", cwd=folder)
    assert (folder / "converted/eng/README.md").is_file()
    assert re.search(r"convert +up to date", run(python.with_name("babelmill"), "why", "eng", cwd=folder))
    of_clone = ["--snakefile", ROOT / "Snakefile", "--profile", ROOT / "profiles/local"]
    assert "Nothing to be done" in run(sys.executable, "-m", "snakemake", *of_clone, "--dry-run", cwd=folder)
