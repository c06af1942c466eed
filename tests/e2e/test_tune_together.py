"""`run.tasks_at_once`: one job makes all fine-tunings of a model; one that fails spoils no other; killed, it goes on."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from babelmill.core.files import read_json
from e2e.test_tune import OWN, configured, write_rows

pytestmark = pytest.mark.slow


@pytest.fixture
def rows(workspace):
    write_rows(workspace.path, "train.tsv", 96, 1)
    write_rows(workspace.path, "test.tsv", 40, 2)
    return workspace


def together(*tasks, seeds=(1, 2), **run) -> dict:
    """Settings with two tasks: `mine`, and `large`, whose batches need more rows than there are."""
    values = configured(*tasks, task_seeds=[*seeds])
    values["tasks"]["large"] = OWN | {"tuning": OWN["tuning"] | {"batch": 90}}
    return values | {"run": values.get("run", {}) | {"tasks_at_once": 2} | run}


def test_one_job_makes_all_and_a_failure_spoils_no_other(rows):
    rows.configure(together("mine", "large"))
    dry = rows.snakemake("converted/eng", "--dry-run").stdout
    assert dry.count("rule tune_all:") == 1 and dry.count("rule tune:") == 4
    failed = rows.snakemake("converted/eng", "--keep-going", check=False)
    said = failed.stdout + failed.stderr
    assert failed.returncode and "2 of 4 fine-tunings failed: large, seed 1; large, seed 2" in said
    assert "58 rows to train on, fewer than a batch of 90" in said, "the reason, without looking for a log"
    made = [rows.path / f"results/tuning/eng/mine/{seed}.made/predictions.parquet" for seed in (1, 2)]
    times = [path.stat().st_mtime_ns for path in made]

    rows.configure(together("mine"))
    rows.snakemake("converted/eng")
    found = [rows.path / f"results/tuned/eng/mine/{seed}/predictions.parquet" for seed in (1, 2)]
    log = "".join(path.read_text() for path in (rows.path / "logs/tune_all/eng").glob("*.log"))
    assert log.count(": made already") == 2 and not any(path.exists() for path in made) and all(times)
    assert read_json(found[0].with_name("scores.json"))["languages"]["eng"]["score"] == 1.0
    assert rows.would_run() == set()
    command = ["-m", "babelmill.tune", "--settings", "results/settings/eng/tune.mine.2.json", "--out", "alone"]
    command += ["--export", "results/exports/eng", "--tasks", "results/tasks/mine/eng", "--checkpoints", "checkpoints"]
    assert rows.python(*command).returncode == 0
    assert (rows.path / "alone/predictions.parquet").read_bytes() == found[1].read_bytes()
    rows.configure(together("mine", seeds=(1, 2, 3)))
    dry = rows.snakemake("converted/eng", "--dry-run").stdout
    assert "rule tune_all:" in dry and "seed=3" in dry and "seed=2," not in dry

    rows.configure(values := together("mine"))
    assert rows.would_run() == set()
    forced = {
        name: rows.snakemake("converted/eng", "--dry-run", "--forcerun", name).stdout for name in ("tune", "convert")
    }
    assert "rule tune_all:" in forced["tune"] and "tune" not in forced["convert"].replace("tuned", "").replace(
        "tune.", ""
    )
    rows.configure(values | {"train": values["train"] | {"max_steps": 9}})
    assert "rule tune_all:" in rows.snakemake("converted/eng", "--dry-run").stdout, "what it reads will be made again"


def test_a_killed_job_leaves_no_process_and_goes_on(rows):
    rows.configure(together("mine"))
    rows.snakemake("results/tasks/mine/eng/manifest.json", "results/exports/eng")
    settings = [f"results/settings/eng/tune.mine.{seed}.json" for seed in (1, 2)]
    command = ["-m", "babelmill.tasks.together", "--settings", "results/settings/eng/run.json", "--tunings", *settings]
    command += ["--export", "results/exports/eng", "--out", "results/tuning/eng/mark.done"]
    logs = [rows.path / f"logs/tune_all/eng/mine/{seed}.log" for seed in (1, 2)]
    for number, code, words in ((signal.SIGKILL, -9, "epoch 2:"), (signal.SIGTERM, 75, "going on after step")):
        process = subprocess.Popen([sys.executable, *command], cwd=rows.path, stderr=subprocess.DEVNULL)
        while not all(path.is_file() and words in path.read_text() for path in logs):
            assert process.poll() is None
            time.sleep(0.02)
        children = psutil.Process(process.pid).children()
        os.kill(process.pid, number)
        assert process.wait() == code
        psutil.wait_procs(children, timeout=60)
        assert len(children) == 2 and not any(child.is_running() for child in children)
    rows.configure(together("mine", tasks_at_once=1))
    rows.snakemake("converted/eng", "--dry-run")
    before = logs[1].read_text()
    process = subprocess.Popen([sys.executable, *command], cwd=rows.path, stderr=subprocess.DEVNULL)
    while not (children := psutil.Process(process.pid).children()) or "going on" not in logs[0].read_text():
        time.sleep(0.02)
    children[0].terminate()  # as if its time ended
    assert process.wait() == 75 and logs[1].read_text() == before, "no other one begins then"
    assert not (rows.path / "results/tuning/eng/mark.done").exists()
