"""The workflow on a real Grid Engine and a real HTCondor: from text to folder, a job that is put back, a deleted one, Ctrl-C."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from conftest import ROOT, SMALL

HERE = Path(__file__).parent
PATIENCE = 900  # seconds
pytestmark = pytest.mark.timeout(1800)


class Cluster:
    """What the tests ask of a scheduler and do to it.

    Attributes:
        name: of its profile, and of the scripts that start and stop it.
        too_much: what this machine has not, and jobs ask for.
        notice: the signal by which a job that is deleted learns of it.
        delete: the command that deletes jobs.
        vacate: the command that takes a job from its machine, if the scheduler has one.
        prefix: what runs a command as a user who may submit jobs.
        owner: this user.
    """

    name: str
    too_much: str
    notice: str
    delete: tuple[str, ...]
    vacate: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    owner = "root"

    def __init__(self):
        folder = Path(os.environ.get(f"{self.name.upper()}_FOLDER", f"{tempfile.gettempdir()}/babelmill-{self.name}"))
        settings = ["sh", "-c", f'. "{folder}/settings.sh" && env -0']
        lines = subprocess.run(settings, capture_output=True, text=True, check=True).stdout.split("\0")
        self.environment = dict(line.split("=", 1) for line in lines if line)

    def ask(self, *command) -> str:
        """What a command says, also if it fails."""
        program = shutil.which(command[0], path=self.environment["PATH"])
        command = [*self.prefix, program, *command[1:]]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return done.stdout + done.stderr


class GridEngine(Cluster):
    name, too_much, notice, delete = "gridengine", "mem_free={resources.mem_mb}M,", "SIGUSR2", ("qdel", "-f")

    def jobs(self) -> list[str]:
        """The numbers of all jobs that are not over."""
        return re.findall(r"^ +(\d+) ", self.ask("qstat"), re.MULTILINE)


class HTCondor(Cluster):
    name, too_much, notice, delete = "htcondor", "", "SIGTERM", ("condor_rm",)
    vacate = ("condor_vacate_job",)
    # As in htcondor_up.sh.
    powers = "+dac_override,+dac_read_search,+fowner,+chown"
    prefix = ("setpriv", "--reuid", "daemon", "--regid", "daemon", "--clear-groups")
    prefix += ("--inh-caps", powers, "--ambient-caps", powers)
    owner = "daemon"

    def jobs(self) -> list[str]:
        """The numbers of all jobs that are not over."""
        return self.ask("condor_q", "-allusers", "-af:j", "").split()


@pytest.fixture(scope="module", params=[GridEngine, HTCondor], ids=lambda kind: kind.name)
def cluster(request):
    kind = request.param
    done = subprocess.run([HERE / f"{kind.name}_up.sh"], capture_output=True, text=True)
    if done.returncode:
        pytest.fail(done.stderr.strip(), pytrace=False)
    yield kind()
    subprocess.run([HERE / f"{kind.name}_down.sh"], check=True)


@pytest.fixture
def start(cluster, workspace):
    """Start Snakemake with the shipped profile; whatever happens, nothing of it is left when the test ends."""
    shipped = ROOT / "profiles" / cluster.name
    ours = workspace.path / cluster.name
    ours.mkdir()
    text = (shipped / "profile.yaml").read_text()
    (ours / "profile.yaml").write_text(text.replace(cluster.too_much, ""))
    for script in shipped.glob("*.sh"):
        (ours / script.name).symlink_to(script)
    for script in shipped.parent.glob("*.sh"):
        (workspace.path / script.name).symlink_to(script)
    subprocess.run(["chown", "-R", cluster.owner, workspace.path], check=True)
    private = [folder for folder in workspace.path.parents if folder.stat().st_mode & 0o077 == 0]  # made by pytest
    for folder in private:
        folder.chmod(0o711)
    runs = []

    def start(*targets) -> subprocess.Popen:
        command = [*cluster.prefix, sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile"]
        command += ["--profile", ours, *targets]
        command += ["--latency-wait", "5", "--retries", "0", "--max-status-checks-per-second", "10"]
        output = open(workspace.path / f"snakemake-{len(runs)}.txt", "w+")  # noqa: SIM115
        runs.append(
            subprocess.Popen(
                [*map(str, command)],
                cwd=workspace.path,
                env=cluster.environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        )
        runs[-1].printed = lambda: Path(output.name).read_text()
        return runs[-1]

    yield start
    for run in runs:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    if jobs := cluster.jobs():
        cluster.ask(*cluster.delete, *jobs)
    for folder in private:
        folder.chmod(0o700)


def wait(what: str, condition):
    """The first true value of `condition`."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.2)
    raise AssertionError(f"waited in vain for {what}")


def trainer(workspace) -> psutil.Process | None:
    """The process that trains in a folder."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command[1:3] == ["-m", "babelmill.train"] and Path(process.cwd()) == workspace.path:
            return process
    return None


def test_from_text_to_folder(workspace, start):
    workspace.configure(SMALL | {"tokenizer": {"vocab_size": 300}})  # all but the corpora are made again
    run = start("converted/eng")
    assert run.wait(PATIENCE) == 0, run.printed()
    assert "1 of 1 model converted" in run.printed()
    assert workspace.babelmill("status", "eng").splitlines()[1].split()[:3] == ["eng", "convert", "converted"]


def test_put_back_deleted_and_interrupted(workspace, cluster, start):
    """A training saves and asks for another turn; a deletion and Ctrl-C also leave a checkpoint, and no job."""
    endless = SMALL["train"] | {"max_steps": 1_000_000}
    run_keys = SMALL["run"] | {"checkpoint_every": 1_000_000}
    workspace.configure(SMALL | {"models": {"eng": {"train": endless}}, "run": run_keys})
    kept = workspace.path / "results/checkpoints/eng"
    log = workspace.path / "logs/train/eng.log"

    def printed() -> str:
        """What all its attempts said."""
        return "".join(path.read_text() for path in sorted(kept.glob("*/logs/*.log")))

    def goes_on(times: int) -> bool:
        """Whether it has continued from a checkpoint so often, and trained since."""
        return printed().count("going on after step") == times and "step " in log.read_text().split("going on")[-1]

    run = start("results/models/eng/manifest.json")
    training = wait("training", lambda: log.exists() and " step " in log.read_text() and trainer(workspace))
    (job,) = cluster.jobs()
    training.send_signal(signal.SIGTERM)
    wait("another turn", lambda: goes_on(1))
    turns, ends = 1, 1 if cluster.notice == "SIGTERM" else 0
    if cluster.vacate:
        cluster.ask(*cluster.vacate, job)
        turns, ends = turns + 1, ends + 1
        wait("another turn", lambda: goes_on(turns))
    assert cluster.jobs() == [job], "the same job"

    cluster.ask(cluster.delete[0], job)
    assert run.wait(PATIENCE) == 1, run.printed()
    assert printed().count(f"received {cluster.notice}") == ends + 1
    assert not cluster.jobs()

    run = start("results/models/eng/manifest.json")
    wait("training", lambda: goes_on(turns + 1))
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(PATIENCE) == 1
    wait("the end of the job", lambda: not cluster.jobs() and trainer(workspace) is None)
    assert printed().count(f"received {cluster.notice}") == ends + 2, "Ctrl-C deletes the job"
    assert not list(workspace.path.glob(".snakemake/jobs/*script*"))
