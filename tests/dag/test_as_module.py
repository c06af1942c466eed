"""Another workflow takes this one as a module (docs/training.md)."""

import re

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
