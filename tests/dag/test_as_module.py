"""Another workflow takes this one as a module (docs/training.md)."""

import re

import pytest
import yaml

from conftest import ROOT, SMALL, write_texts
from helpers.programs.prepared import run_module

pytestmark = pytest.mark.slow

GUIDE = (ROOT / "docs/training.md").read_text(encoding="utf-8")


def test_its_rules_and_ours(tmp_path):
    """Snakemake's own triggers, which a module must not change, count the inputs that a finished result has no more."""
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "Snakefile").write_text(code.replace("../babelmill/Snakefile", str(ROOT / "Snakefile")))
    write_texts(tmp_path / "texts/eng", "eng")
    values = {key: SMALL[key] for key in SMALL if key != "targets"}
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump({"title": "A study", "babelmill": values}))
    done, refused = (
        run_module("snakemake", "--dry-run", *options, cwd=tmp_path)
        for options in (("--profile", ROOT / "profiles/local"), ("--cores", "1"))
    )
    assert done.returncode == 0, done.stderr
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", done.stdout + done.stderr, re.MULTILINE))
    stages = ("corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert")
    assert jobs == dict.fromkeys((*stages, "figures"), "1") | {"total": "8"}
    assert refused.returncode == 1 and "error: --rerun-triggers: mtime is expected" in refused.stderr
