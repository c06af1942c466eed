"""The workflow elsewhere than in a checkout: another one takes it as a module (docs/training.md), or it is in a wheel."""

import json
import re
import shutil

import pytest
import yaml

from conftest import ROOT, SMALL, write_texts
from helpers.programs.prepared import run_module

pytestmark = pytest.mark.slow

GUIDE = (ROOT / "docs/training.md").read_text(encoding="utf-8")


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A folder with the guide's Snakefile and settings; a function that runs Snakemake there."""
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "Snakefile").write_text(code.replace("../babelmill/Snakefile", str(ROOT / "Snakefile")))
    write_texts(tmp_path / "texts/eng", "eng")
    monkeypatch.chdir(tmp_path)

    def run(values: dict, *options: str):
        (tmp_path / "settings.yaml").write_text(yaml.safe_dump({"title": "A study", "babelmill": values}))
        return run_module("snakemake", "--dry-run", *(options or ("--profile", str(ROOT / "profiles/local"))))

    return run


def test_its_rules_and_ours(study):
    done = study({key: SMALL[key] for key in SMALL if key != "targets"})
    assert done.returncode == 0, done.stderr
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", done.stdout + done.stderr, re.MULTILINE))
    stages = ("corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert")
    assert jobs == dict.fromkeys((*stages, "figures"), "1") | {"total": "8"}


def test_what_would_make_finished_results_again_is_refused(study):
    """Snakemake's own triggers, which a module must not change, count the inputs that a finished result has no more."""
    done = study({key: SMALL[key] for key in SMALL if key != "targets"}, "--cores", "1")
    assert done.returncode == 1 and "error: --rerun-triggers: mtime is expected" in done.stderr


def test_a_wheel_has_the_rules_inside_of_the_package(tmp_path):
    """Beside other packages, with what is around the package in a checkout in `project/`."""
    site, results = tmp_path / "site", tmp_path / "results"
    shutil.copytree(ROOT / "workflow/babelmill", site / "babelmill")
    for name in ("workflow/rules", "config", "profiles", "envs"):
        shutil.copytree(ROOT / name, site / "babelmill/project" / name)
    shutil.copy(ROOT / "workflow/Snakefile", site / "babelmill/project/workflow")
    init = site / "babelmill/__init__.py"
    init.write_text(re.sub('__version__ = ".*"', '__version__ = "1.2.3"', init.read_text()))
    write_texts(results / "texts/eng", "eng")
    (results / "config").mkdir()
    (results / "config/config.yaml").write_text(yaml.safe_dump(SMALL))
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(site)}

    def run(*command) -> str:
        done = run_module(*map(str, command), cwd=results, environment=environment, check=True)
        return done.stdout

    only = ["--until", "corpus", "--resources", "gpu=0"]
    run("snakemake", "--snakefile", site / "babelmill/project/workflow/Snakefile", "--cores", 1, "converted/eng", *only)
    (corpus,) = results.glob("results/corpus/eng-*/manifest.json")
    assert json.loads(corpus.read_text())["version"] == "1.2.3"
    assert re.search(
        r"corpus +up to date: \S+\n +tokenizer +results/tokenizer/\S+ is missing", run("babelmill", "why", "eng")
    )
