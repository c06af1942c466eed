"""The profiles `gridengine` and `generic` work with programs that stand in for the scheduler."""

import os

import pytest

from conftest import ROOT, SMALL
from helpers.programs.prepared import run_module

pytestmark = pytest.mark.slow

# A job is a process of this machine, and its number is the number of the process. While jobs wait, somebody edits the
# configuration so that it has mistakes: they read their settings alone.
SUBMIT = r"""#!/bin/sh
echo "edited: [" >> config/config.yaml
for script; do :; done   # the last word
setsid sh -c 'JOB_ID=$$ exec sh "$0"' "$script" >/dev/null 2>&1 </dev/null &
echo "$*" > {folder}/$!.asked
echo $!
"""
SHOW = r"""#!/bin/sh
for job; do :; done
grep -qs 'State:.[^Z]' /proc/$job/status && echo "job_number: $job" || echo "OVER: jobs do not exist: $job"
"""
# What the scheduler is asked for, with 2 threads, 3 GPUs, 5,000 MB and 20 minutes.
ASKED = {
    "gridengine": ["-pe smp 2 ", "gpu=3", "mem_free=5000M", "h_rt=1200", "-N babelmill.tokenizer "],
    "generic": ["--cores 2 ", "--gpus 3 ", "--memory 5000M ", "--minutes 20 ", "--name babelmill.tokenizer "],
}
NEEDS = ["--set-threads", "tokenizer=2", "--set-resources", "tokenizer:gpu=3", "tokenizer:mem_mb=5000"]
NEEDS += ["tokenizer:runtime=20"]


@pytest.mark.parametrize("profile", ASKED)
def test_jobs_are_submitted_and_are_seen_to_succeed_and_to_fail(workspace, tmp_path, monkeypatch, profile):
    for names, text in {("qsub", "SUBMIT"): SUBMIT, ("qstat", "SHOW"): SHOW}.items():
        for name in names:
            (tmp_path / name).write_text(text.replace("{folder}", str(tmp_path)))
            (tmp_path / name).chmod(0o755)
    too_many = {"vocab_size": 30_000}  # for so little text
    workspace.configure(SMALL | {"tokenizer": {"vocab_size": 300}, "models": {"deu": {"tokenizer": too_many}}})
    targets = ["converted/eng", "converted/deu", "--until", "tokenizer"]
    options = ["--latency-wait", "5", "--retries", "0", "--max-status-checks-per-second", "20"]
    options += ["--snakefile", ROOT / "Snakefile", "--profile", ROOT / "profiles" / profile]
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = run_module("snakemake", *targets, *NEEDS, *options, cwd=workspace.path)
    output = done.stdout + done.stderr
    assert done.returncode == 1 and "1 job failed:\n  tokenizer deu-" in output, output
    asked = [path.read_text() for path in tmp_path.glob("*.asked")]
    assert len(asked) == 2
    assert not [words for words in ASKED[profile] if words not in asked[0]], asked[0]
    codes = [path.read_text() for path in (workspace.path / ".snakemake/jobs").glob("*.code")]
    assert sorted(codes) == ["0\n", "1\n"]
