"""A new stage is one class with its settings, one rules file and one module; everything else finds it."""

import json
import re

import pytest

from conftest import SMALL
from helpers.results.checkouts import Checkout

pytestmark = pytest.mark.slow

SETTINGS_CLASS = '''class CountSettings(Settings):
    """What is counted."""

    tokenizer: schema.Tokenizer


class ExportSettings(Settings):
'''
STAGE = '''class CountStage(Stage):
    """Count the entries of a tokenizer."""

    name = "count"
    settings = stage_settings.CountSettings
    folder = "results/counts/{model}"
    reads = ("tokenizer",)

    def asked(self, configuration: Configuration, name: str, part: str) -> stage_settings.CountSettings:
        """Say what is counted."""
        resolved = configuration.model(name)
        return stage_settings.CountSettings(**self.whose(resolved), tokenizer=resolved.tokenizer)


class ShardsStage(Stage):
'''
RULE = '''"""Stage `count`. Takes: a tokenizer. Gives: results/counts/{model}/."""


rule count:
    """Count the entries of a tokenizer."""
    input:
        settings=settings("count"),
        tokenizer=multiext("results/tokenizers/{model}/", "manifest.json", "tokenizer.json"),
    output:
        entries="results/counts/{model}/count.json",
        manifest="results/counts/{model}/manifest.json",
    log:
        "logs/count/{model}.log",
    shell:
        "python -m babelmill.count --settings {input.settings:q} --tokenizer {input.tokenizer[0]:q}"
        " --out {output.manifest:q} --log {log:q}"
'''
MODULE = '''"""Stage `count`: count the entries of a tokenizer."""

import argparse
import sys

from babelmill.config.stage_settings import CountSettings
from babelmill.core import manifest, stage_entry
from babelmill.core.files import read_json, write_json
from babelmill.settings import read_settings


def run(args: argparse.Namespace) -> None:
    """Count."""
    settings = read_settings(args.settings, CountSettings)
    manifest.verify(args.tokenizer, "tokenizer.json")
    entries = len(read_json(args.tokenizer / "tokenizer.json")["model"]["vocab"])
    write_json(args.out / "count.json", {"entries": entries, "asked": settings.tokenizer.vocab_size})
    manifest.write(args.out, settings, ["count.json"], upstream=[args.tokenizer])


if __name__ == "__main__":
    parser = stage_entry.arguments(__doc__)
    parser.add_argument("--tokenizer", required=True, type=stage_entry.folder)
    parser.add_argument("--out", required=True, type=stage_entry.folder)
    sys.exit(stage_entry.run(run, parser.parse_args()))
'''
TARGET = "results/counts/eng/manifest.json"


@pytest.fixture
def checkout(workspace, tmp_path) -> Checkout:
    made = Checkout(tmp_path / "checkout", workspace.path)
    made.package("config/stage_settings.py", "class ExportSettings(Settings):\n", SETTINGS_CLASS)
    made.package("stages.py", "class ShardsStage(Stage):\n", STAGE)
    (made.path / "workflow/rules/count.smk").write_text(RULE)
    (made.path / "workflow/babelmill/count.py").write_text(MODULE)
    return made


def test_it_runs_and_reruns_like_any_other(checkout):
    assert checkout.would_run("converted/eng") == []  # nothing else depends on it
    assert checkout.would_run(TARGET) == ["count"]
    checkout.snakemake(TARGET)
    assert json.loads((checkout.results / "results/counts/eng/count.json").read_text()) == {
        "asked": 320,
        "entries": 320,
    }
    assert checkout.would_run(TARGET) == []
    values = SMALL | {"tokenizer": {"vocab_size": 300}}
    checkout.configure(values)
    assert checkout.would_run(TARGET) == ["tokenizer", "count"]


def test_a_raised_version_runs_it_again(checkout):
    checkout.snakemake(TARGET)
    checkout.package("count.py", "len(read_json", "1 + len(read_json")
    assert checkout.would_run(TARGET) == []
    checkout.package("stages.py", '    name = "count"\n', '    name = "count"\n    version = 2\n')
    assert checkout.would_run(TARGET) == ["count"]


def test_where_the_deliverable_needs_it_the_commands_know_it(checkout):
    checkout.package(
        "stages.py",
        'reads = ("export", "evaluate", "score", "tune", "corpus", "tokenizer", "train")',
        'reads = ("export", "count")',
    )
    checkout.edit(
        "workflow/rules/convert.smk",
        '        settings=settings("convert"),\n',
        '        settings=settings("convert"),\n        entries="results/counts/{model}/manifest.json",\n',
    )
    assert checkout.would_run("converted/eng") == ["count", "convert"]
    output = checkout.babelmill("why", "eng")
    assert "count            its results are missing, and its settings have changed" in output
    assert "convert          runs because count does" in output
    assert re.search(r"eng +count +waiting", checkout.babelmill("status", "eng"))
