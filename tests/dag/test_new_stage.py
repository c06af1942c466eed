"""A new stage is one class, one rules file and one module; everything else finds it."""

import pytest

from babelmill.core.files import read_json
from conftest import Checkout

pytestmark = pytest.mark.slow

STAGE = """class CountStage(Stage):
    stage = "count"

    @classmethod
    def reads(cls, resolved: ResolvedModel, part: str) -> Reads:
        return {"tokenizer": [("tokenizer", resolved.name, "")]}

    @classmethod
    def asked(cls, configuration: Configuration, resolved: ResolvedModel, part: str) -> dict[str, Any]:
        return {}


class ShardsStage(Stage):
"""
MODULE = """from babelmill.core import manifest, stage_entry
from babelmill.core.files import read_json, write_json
from babelmill.stages import CountStage


def run(job: stage_entry.Job[CountStage]) -> None:
    tokenizer = job.settings.folder("tokenizer")
    manifest.verify(tokenizer, "tokenizer.json")
    write_json(job.out / "count.json", len(read_json(tokenizer / "tokenizer.json")["model"]["vocab"]))
    manifest.write(job.out, job.settings, ["count.json"], [tokenizer])


raise SystemExit(stage_entry.main(CountStage, run, "Count the entries of a tokenizer."))
"""


def test_where_the_deliverable_needs_it_it_runs_and_the_commands_know_it(workspace, tmp_path):
    checkout = Checkout(tmp_path / "checkout", workspace.path)
    checkout.package("stages.py", "class ShardsStage(Stage):\n", STAGE)
    rule = (checkout.project / "workflow/rules/tokenizer.smk").read_text().replace("tokenizer", "count")
    (checkout.project / "workflow/rules/count.smk").write_text(rule)
    (checkout.project / "workflow/babelmill/count.py").write_text(MODULE)
    assert checkout.would_run() == set()  # nothing depends on it
    tokenizer = '            "tokenizer": [("tokenizer", resolved.name, "")],\n            "corpora"'
    checkout.package("stages.py", tokenizer, '            "count": [("count", resolved.name, "")],\n' + tokenizer)
    assert checkout.would_run(targets=["converted/eng"]) == {("count", "eng"), ("convert", "eng")}
    output = checkout.babelmill("why", "eng")
    assert "count            has not run yet" in output and "convert          runs because count does" in output
    checkout.snakemake("converted/eng")
    assert read_json(checkout.path / "results/of/eng/count/count.json") == 320
    assert checkout.would_run(targets=["converted/eng"]) == set()
