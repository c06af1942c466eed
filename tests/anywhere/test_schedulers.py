"""The workflow runs on a real Grid Engine: from text to folder, a job that is put back, a deleted one, Ctrl-C.

Its profile is `generic` with three commands filled in, so this shows what that profile asks of any scheduler.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from conftest import ROOT, SMALL
from helpers.programs.background import Background, trainers, wait

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(1800)


class GridEngine:
    """Asks Grid Engine, and does things to it."""

    def __init__(self):
        folder = Path(os.environ.get("GRIDENGINE_FOLDER", f"{tempfile.gettempdir()}/babelmill-gridengine"))
        settings = ["sh", "-c", f'. "{folder}/settings.sh" && env -0']
        lines = subprocess.run(settings, capture_output=True, text=True, check=True).stdout.split("\0")
        self.environment = dict(line.split("=", 1) for line in lines if line)

    def ask(self, *command) -> str:
        """Return what a command says, also if it fails."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return done.stdout + done.stderr

    def jobs(self) -> list[str]:
        """Return the numbers of all jobs that are not over."""
        return re.findall(r"^ +(\d+) ", self.ask("qstat"), re.MULTILINE)


@pytest.fixture(scope="module")
def cluster():
    done = subprocess.run([HERE / "gridengine_up.sh"], capture_output=True, text=True)
    if done.returncode:
        pytest.fail(done.stderr.strip(), pytrace=False)
    yield GridEngine()
    subprocess.run([HERE / "gridengine_down.sh"], check=True)


@pytest.fixture
def start(cluster, workspace):
    """Yield a function that starts Snakemake with the shipped profile; whatever happens, nothing of it is left when the test ends."""
    ours = workspace.path / "gridengine"
    ours.mkdir()
    text = (ROOT / "profiles/gridengine/profile.yaml").read_text()
    memory = "mem_free={resources.mem_mb}M,"  # more than this machine has
    assert memory in text
    (ours / "profile.yaml").write_text(text.replace(memory, ""))
    (workspace.path / "jobscript.sh").symlink_to(ROOT / "profiles/jobscript.sh")
    runs = []

    def start(*targets) -> Background:
        command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--profile", ours, *targets]
        command += ["--latency-wait", "5", "--retries", "0", "--max-status-checks-per-second", "10"]
        runs.append(Background(command, workspace.path, cluster.environment))
        return runs[-1]

    yield start
    for run in runs:
        run.kill()
    if jobs := cluster.jobs():
        cluster.ask("qdel", "-f", *jobs)


def test_from_text_to_folder(workspace, start):
    workspace.configure(SMALL | {"tokenizer": {"vocab_size": 300}})  # all but the corpora are made again
    run = start("converted/eng")
    assert run.finish() == 0, run.printed
    assert "1 of 1 model converted" in run.printed
    assert workspace.babelmill("status", "eng").splitlines()[1].split()[:3] == ["eng", "convert", "converted"]


def test_put_back_deleted_and_interrupted(workspace, cluster, start):
    """A training saves and asks for another turn; a deletion and Ctrl-C also leave a checkpoint, and no job."""
    endless = SMALL["train"] | {"max_steps": 1_000_000}
    run_keys = SMALL["run"] | {"checkpoint_every": 1_000_000}
    workspace.configure(SMALL | {"models": {"eng": {"train": endless}}, "run": run_keys})
    to_train = ("converted/eng", "--until", "train")

    def printed() -> str:
        """Return what all its attempts said. A link says the name of the training once the run has begun."""
        name = (workspace.path / "results/of/eng/train").resolve().name
        logs = sorted((workspace.path / "results/checkpoints" / name / "logs").glob("*.log"))
        return "".join(path.read_text() for path in logs)

    def goes_on(times: int) -> bool:
        """Return whether it has continued from a checkpoint so often, and trained since."""
        *before, now = printed().split("going on after step")
        return len(before) == times and " loss " in now

    run = start(*to_train)
    training = wait("training", lambda: goes_on(0) and trainers(workspace.path))[0]
    (job,) = cluster.jobs()
    training.send_signal(signal.SIGTERM)
    wait("another turn", lambda: goes_on(1))
    assert cluster.jobs() == [job], "the same job"

    cluster.ask("qdel", job)
    assert run.finish() == 1, run.printed
    assert printed().count("received SIGUSR2") == 1
    assert not cluster.jobs()

    run = start(*to_train)
    wait("training", lambda: goes_on(2))
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.finish() == 1
    wait("the end of the job", lambda: not cluster.jobs() and not trainers(workspace.path))
    assert printed().count("received SIGUSR2") == 2, "Ctrl-C deletes the job"
