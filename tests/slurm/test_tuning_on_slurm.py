"""Fine-tuning on a cluster: one job makes all fine-tunings of a model, and nothing else waits in the queue."""

import pytest

from babelmill.core.files import read_json
from e2e.test_tune import write_rows
from e2e.test_tune_together import together

pytest_plugins = ["slurm_cluster"]
pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.usefixtures("cluster")]


def test_one_job_for_all_fine_tunings(workspace, cluster, start):
    write_rows(workspace.path, "train.tsv", 96, 1)
    write_rows(workspace.path, "test.tsv", 40, 2)
    workspace.configure(together("mine"))
    targets = [f"results/tuned/eng/mine/{seed}/scores.json" for seed in (1, 2)]
    run = start(workspace, *targets)
    assert run.finish() == 0, run.printed
    scores = [read_json(workspace.path / target)["languages"]["eng"]["score"] for target in targets]
    assert scores == [1.0, 1.0]
    (job,) = cluster.history(workspace.path)
    assert job["Comment"].startswith("rule_tune_all") and job["State"] == "COMPLETED" and job["ReqCPUS"] == "8"
    assert "gres/gpu=1," in job["AllocTRES"], "one for all"
