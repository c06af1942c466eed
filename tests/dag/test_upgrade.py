"""What an upgrade makes again of the results of release 1.0: nothing; and what was interrupted continues."""

import pytest

from scripts.released_results import PAGES, TARGETS, unpack


def test_an_upgrade_repeats_nothing_and_reads_what_is_there(tmp_path):
    work = unpack(tmp_path / "work")
    assert work.would_run(targets=(*TARGETS, *PAGES)) == {("experiment", "rates"), ("report", "eng")}
    assert "up to date" in work.babelmill("why", "eng")
    assert "/400" in work.babelmill("status", "deu")
    assert "McNemar" in work.babelmill("compare", "eng", "rates_rate0p003_s1")
    assert "bits per byte" in work.babelmill("show", "converted/gpt", "--prompt", "the quick")
    assert "0 results" in work.babelmill("clean"), "all checkpoints are in use"


@pytest.mark.slow
def test_an_interrupted_training_continues(tmp_path):
    work = unpack(tmp_path / "work")
    work.snakemake("converted/deu")
    (log,) = (work.path / "logs/train").glob("deu-*.log")
    assert "going on after step" in log.read_text()
