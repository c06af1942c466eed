"""Start a real SLURM for the tests (see up.sh), and the workflow on it.

There is one cluster per machine. Each test looks at the jobs of its own folder alone.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from babelmill.commands.progress import metrics
from conftest import ROOT, Workspace
from helpers.programs import held
from helpers.programs.background import Background, trainers, wait
from helpers.programs.prepared import VARIABLE

HERE = Path(__file__).parent
# Snakemake whose executor asks for the states of its jobs every second, not ever more seldom, up to minutes.
SNAKEMAKE = """
import sys
from snakemake.cli import main
from snakemake_executor_plugin_slurm import Executor
Executor.next_seconds_between_status_checks = property(lambda self: 1, lambda self, seconds: None)
sys.exit(main())
"""


Job = namedtuple("Job", "number state node partition folder comment")  # a line of squeue


class Cluster:
    """Asks SLURM, and does things to it."""

    @staticmethod
    def ask(*command) -> str:
        """Return what a command of SLURM says. A busy controller may answer nobody for some time: it is asked again."""
        end = time.monotonic() + 120
        while (done := subprocess.run([*map(str, command)], capture_output=True, text=True)).returncode:
            assert time.monotonic() < end, f"{command}: {done.stderr.strip()}"
            time.sleep(1)
        return done.stdout

    def queue(self, folder: Path, name: str = "") -> list[Job]:
        """Return the jobs from a folder that are not over, of one rule and result (`train_wildcards_eng-...`) or all."""
        lines = self.ask("squeue", "--noheader", "--format", "%i|%T|%N|%P|%Z|%k").splitlines()
        jobs = [Job(*line.split("|", 5)) for line in lines]
        return [job for job in jobs if job.folder == str(folder) and name in job.comment]

    def limit(self, number: str, minutes: int) -> bool:
        """Set the limit of a job. Return whether SLURM did it: it refuses while the job is ending."""
        command = ["scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}"]
        return not subprocess.run(command, capture_output=True).returncode

    def seconds_left(self, number: str) -> float:
        """Return how much is left of a running job's time; 0 if it is not running."""
        left = self.ask("squeue", "-h", "-t", "running", "-j", number, "-o", "%L").strip()
        minutes, _, seconds = left.rpartition(":")
        return 60 * int(minutes.rpartition(":")[2] or 0) + int(seconds) if seconds.isdigit() else 0

    def history(self, folder: Path, name: str = "") -> list[dict]:
        """Return the jobs from a folder with all their runs, oldest first, once accounting knows that all are over."""
        fields = ["JobIDRaw", "State", "NodeList", "Partition", "Comment", "TimelimitRaw", "AllocTRES", "ReqCPUS"]
        fields += ["NNodes", "Account", "QOS", "Constraints", "WorkDir", "End"]

        def ended() -> list[dict]:
            lines = self.ask("sacct", "-X", "-D", "-P", "-n", "-S", "now-1day", "-o", ",".join(fields)).splitlines()
            rows = [dict(zip(fields, line.split("|"), strict=True)) for line in lines]
            mine = [row for row in rows if row["WorkDir"] == str(folder)]
            over = all(row["End"] != "Unknown" for row in mine)  # else a job lacks its comment
            return [row for row in mine if over and name in row["Comment"]]

        return wait("the accounting", ended)

    def urgent(self, node: str) -> None:
        """Submit a short job to the preempting partition, which wants all of a node."""
        self.ask("sbatch", "-p", "urgent", "-w", node, "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1")

    def kill_node(self, node: str) -> None:
        """Kill its slurmd and everything that runs there, as if its power were gone. (A node is a UTS namespace.)"""
        folder = Path(os.environ.get("SLURM_FOLDER", Path(tempfile.gettempdir(), "babelmill-slurm")))
        daemon = int((folder / f"run/slurmd.{node}.pid").read_text())
        mine = os.readlink(f"/proc/{daemon}/ns/uts")
        assert mine != os.readlink("/proc/self/ns/uts")
        for process in [psutil.Process(daemon), *psutil.process_iter()]:
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                if os.readlink(f"/proc/{process.pid}/ns/uts") == mine:
                    process.kill()

    @staticmethod
    def train_without(workspace: Workspace, *options) -> Path:
        """Train `eng` undisturbed, without SLURM. Return where its result is put: the workflow will train it again."""
        workspace.snakemake("converted/eng", "--until", "train", *options)
        result = (workspace.path / "results/of/eng/train").resolve()
        shutil.rmtree(workspace.path / "results/checkpoints" / result.name)
        return result.rename(workspace.path / "alone")

    def up(self) -> None:
        done = subprocess.run([HERE / "up.sh"], capture_output=True, text=True)
        if done.returncode:
            pytest.fail(done.stderr.strip(), pytrace=False)

    def down(self) -> None:
        subprocess.run([HERE / "down.sh"], capture_output=True, check=True)


@pytest.fixture(scope="session")
def cluster():
    """Yield the cluster. All tests that use it run in one process (`xdist_group`)."""
    cluster = Cluster()
    cluster.down()  # of tests that were killed
    cluster.up()
    yield cluster
    cluster.down()


class Run(Background):
    """Runs Snakemake with a profile, in the background, and watches the training of `eng` by its files and processes."""

    def __init__(self, cluster: Cluster, workspace: Workspace, *arguments, profile=ROOT / "profiles/slurm", hold=""):
        """Start it; `hold`: where each training waits, once it has begun (`held.py`)."""
        command = [f"{os.environ[VARIABLE]}/python", "-c", SNAKEMAKE, "--snakefile", ROOT / "Snakefile"]
        command += ["--profile", profile, "--slurm-init-seconds-before-status-checks", "1", *arguments]
        self.cluster = cluster
        super().__init__(command, workspace.path, os.environ | ({held.VARIABLE: hold} if hold else {}))

    @property
    def name(self) -> str:
        """Return the name of its result, which a link says once the run has begun."""
        return (self.folder / "results/of/eng/train").resolve().name

    @property
    def settings(self) -> str:
        return f"results/settings/train/{self.name}.json"

    @property
    def queue(self) -> list[Job]:
        return self.cluster.queue(self.folder, f"rule_train_wildcards_{self.name}")

    @property
    def history(self) -> list[dict]:
        return self.cluster.history(self.folder, f"rule_train_wildcards_{self.name}")

    @property
    def job(self) -> Job | None:
        return next((job for job in self.queue if job.state == "RUNNING"), None)

    @property
    def ending(self) -> bool:
        """Return whether processes of a job that is over still save."""
        return any(job.state == "COMPLETING" for job in self.queue)

    @property
    def step(self) -> int:
        """Return the steps done of a run that has begun on the cluster."""
        lines = metrics(self.folder / "results/checkpoints" / self.name)
        return lines[-1]["step"] if "parameters, " in self.said and lines else 0

    @property
    def went_on(self) -> int:
        """Return the step after which it went on last; 0 if it has not."""
        return int(["0", *re.findall(r"going on after step (\d+)", self.said)][-1])

    @property
    def devices(self) -> list[str]:
        """Return the GPUs that each of its processes sees; none if one has just ended."""
        with contextlib.suppress(psutil.Error):
            return [process.environ().get("CUDA_VISIBLE_DEVICES", "") for process in self._commands()]
        return []

    @property
    def said(self) -> str:
        """Return what all jobs of this training said."""
        logs = sorted((self.folder / ".snakemake/slurm_logs/rule_train" / self.name).glob("*.log"))
        return "".join(log.read_text() for log in logs)

    def wait(self, what: str, condition):
        """Return the first true value of `condition`, while Snakemake runs."""
        return wait(what, condition, self)

    def signal(self, number: int) -> None:
        """Send a signal to those that train, not to what started them, nor what stands for them (`program_client.py`)."""
        named = {process.info["name"]: process for process in psutil.process_iter(["name"])}
        for process in self._commands():
            named.get(f"for {process.pid}", process).send_signal(number)

    def go_on(self) -> None:
        """Let it go on where it waits by itself (`held.py`), also in later jobs."""
        (self.folder / f"{self.settings}.go").touch()

    def reach_its_time_limit(self) -> None:
        """Let it train until its minutes are nearly over: two, or as many as it needs to begin. It waits in between."""
        job, minutes = self.wait("its job", lambda: self.job).number, 2

        def has_begun() -> bool:
            nonlocal minutes
            if 0 < self.cluster.seconds_left(job) < 45:
                minutes += 1
                self.cluster.limit(job, minutes)
            return self.step >= 20 or self.has_left

        self.wait("its limit", lambda: self.cluster.limit(job, minutes))
        self.wait("its steps", has_begun)
        self.wait("the end of its time", lambda: self.has_left or self.cluster.seconds_left(job) < 30)
        self.go_on()
        self.wait("its message", lambda: self.has_left)
        self.wait("more time", lambda: self.cluster.limit(job, 60))

    @property
    def has_left(self) -> bool:
        """Return whether its time limit has made it leave."""
        return "the allocation ends soon" in self.said

    def _commands(self) -> list[psutil.Process]:
        """Return those with the command line and the environment of the processes that train."""
        needed = {"-u", self.settings}
        return [process for process in trainers(self.folder) if needed <= {*process.info["cmdline"]}]


@pytest.fixture
def start(cluster):
    """Yield a function that starts Snakemake; whatever happens, nothing of it is left when the test ends."""
    runs = []

    def start(*arguments, **options) -> Run:
        runs.append(Run(cluster, *arguments, **options))
        return runs[-1]

    yield start
    for run in runs:
        run.kill()
    for folder in {run.folder for run in runs}:
        for job in cluster.queue(folder):
            subprocess.run(["scancel", "--full", job.number])
        wait("an empty queue", lambda folder=folder: not cluster.queue(folder))
