"""A package that only a later job would miss is missed before anything runs."""

import pytest

from conftest import ROOT, SMALL
from helpers.programs.prepared import run_module

pytestmark = pytest.mark.slow


def test_a_training_that_could_not_keep_its_checkpoints_begins_nothing(workspace):
    (workspace.path / "Snakefile").write_text(
        f'import sys\nsys.modules["s3fs"] = None  # as if it were not installed\ninclude: "{ROOT}/Snakefile"\n'
    )

    def run(model: str):
        where = ("--snakefile", workspace.path / "Snakefile", "--directory", workspace.path, "--cores", 1)
        return run_module("snakemake", f"converted/{model}", *where, "--resources", "gpu=0")

    elsewhere = {"run": SMALL["run"] | {"checkpoint_mirror": "s3://bucket/prefix"}}
    longer = {"eng": {"tokenizer": {"vocab_size": 300}}}
    workspace.configure(SMALL | elsewhere | {"models": longer})
    done = run("eng")
    assert done.returncode == 1
    line = "error: run.checkpoint_mirror: s3://bucket/prefix needs the package s3fs, in the environment of all jobs: pip install"
    assert line in done.stderr
    assert "rule tokenizer" not in done.stdout + done.stderr, "no job has begun"
    assert "Nothing to be done" in run("deu").stderr, "it is trained already"
