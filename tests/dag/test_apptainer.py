"""`--sdm apptainer`: jobs run in the image with its own Python and package. Apptainer is a small script here."""

import sys

import pytest
import yaml

from conftest import ROOT, SMALL, write_texts
from helpers.programs.prepared import run_module

# Its image has this Python and this package. It says in a file which image a job gets, and what would be imported first.
APPTAINER = """#!/bin/bash
[ "$1" = --version ] && exec echo "apptainer version 1.4.5"
while [ "$1" != -c ]; do words+=("$1"); shift; done
mkdir -p {folder}/bin
printf '#!/bin/sh\\necho "${{PYTHONPATH-}}|'"${{words[-2]}}"'" >> {folder}/ran\\nPYTHONPATH={package} exec {python} "$@"\\n' > {folder}/bin/python
chmod +x {folder}/bin/python
PATH={folder}/bin:$PATH exec bash -c "$2"
"""


@pytest.fixture
def corpus(tmp_path):
    """A function that makes a corpus with --sdm apptainer, and returns what Snakemake said."""
    folder = tmp_path / "results"
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs/apptainer").write_text(
        APPTAINER.format(folder=tmp_path, python=sys.executable, package=ROOT / "workflow")
    )
    (tmp_path / "programs/apptainer").chmod(0o755)
    write_texts(folder / "texts/eng", "eng")
    (folder / "config").mkdir()
    (folder / "config/config.yaml").write_text(yaml.safe_dump(SMALL))

    def run(*more: str) -> str:
        environment = {"PATH": f"{tmp_path}/programs:/usr/bin:/bin", "HOME": str(tmp_path)}
        options = ["--sdm", "apptainer", *more, "--cores", "1", "--snakefile", str(ROOT / "Snakefile")]
        done = run_module(
            "snakemake", *options, "results/corpora/eng/manifest.json", cwd=folder, environment=environment
        )
        return done.stdout + done.stderr

    return run


def test_jobs_use_the_python_of_the_image_and_nothing_of_the_host(corpus, tmp_path):
    (tmp_path / "results/babelmill.sif").touch()
    assert "1 of 1 steps" in corpus()
    path, image = (tmp_path / "ran").read_text().strip().split("|")
    assert path == "" and image.endswith("babelmill.sif")


def test_conda_and_an_image_are_not_used_together(corpus):
    assert "error: --sdm conda apptainer: choose one of them" in corpus("conda")


def test_an_image_that_is_not_there_is_an_error_before_anything_runs(corpus, tmp_path):
    assert "error: with --sdm apptainer, jobs run in the image babelmill.sif of this folder: build it" in corpus()
    assert not (tmp_path / "results/results").exists()
