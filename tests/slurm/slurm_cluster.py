"""A real SLURM for the tests (see up.sh), and the workflow started on it.

There is one cluster per machine, which test processes share: each test looks at the jobs of its own folder alone.
"""

import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from conftest import ROOT, Workspace
from helpers.programs import held
from helpers.programs.prepared import VARIABLE

HERE = Path(__file__).parent
PATIENCE = 1100  # seconds until a test gives up waiting; pytest-timeout may be faster
# Snakemake whose executor asks for the states of its jobs every second, not ever more seldom, up to minutes.
SNAKEMAKE = """
import sys
from snakemake.cli import main
from snakemake_executor_plugin_slurm import Executor
Executor.next_seconds_between_status_checks = property(lambda self: 1, lambda self, seconds: None)
sys.exit(main())
"""


# What SLURM's commands say where the controller, or what it needs, does not answer in time.
UNREACHABLE = re.compile(
    "contact slurm|timed out|Zero Bytes|Connection|[Cc]ommunication|credential|Unexpected|shutdown"
)


class Refused(Exception):
    """A command of SLURM failed; what it said."""


@dataclass
class Job:
    """A line of squeue or sacct."""

    number: str
    state: str
    node: str
    partition: str
    folder: str
    comment: str


class Cluster:
    """What the tests ask of SLURM and do to it."""

    @staticmethod
    def ask(*command) -> str:
        """What a command of SLURM says. On a busy machine the controller may answer nobody for some time: asked again."""
        end = time.monotonic() + 120
        while True:
            done = subprocess.run([*map(str, command)], capture_output=True, text=True)
            if not done.returncode:
                return done.stdout
            asked_in_vain = command[0] in ("squeue", "sacct") or UNREACHABLE.search(done.stderr)
            if time.monotonic() > end or not asked_in_vain:
                raise Refused(f"{shlex.join(map(str, command))}: {done.stderr.strip()}")
            time.sleep(1)

    @staticmethod
    def wait(what: str, condition):
        """The first true value of `condition`."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.2)
        raise AssertionError(f"waited in vain for {what}")

    def training(self, workspace: Workspace, model: str) -> "Training":
        return Training(workspace, model, self)

    def queue(self, folder: Path, name: str = "") -> list[Job]:
        """Jobs from a folder that are not over, of one stage and model (`train_wildcards_eng`) or all."""
        lines = self.ask("squeue", "--noheader", "--format", "%i|%T|%N|%P|%Z|%k").splitlines()
        jobs = [Job(*line.split("|", 5)) for line in lines]
        return [job for job in jobs if job.folder == str(folder) and name in job.comment]

    def limit(self, number: str, minutes: int) -> None:
        self.ask("scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}")

    def may_limit(self, number: str, minutes: int) -> bool:
        """Set the limit of a job, which SLURM refuses while the job is ending."""
        with contextlib.suppress(Refused):
            self.limit(number, minutes)
            return True
        return False

    def seconds_left(self, number: str) -> float:
        """Of a running job's time; 0 if it is not running."""
        left = self.ask("squeue", "-h", "-t", "running", "-j", number, "-o", "%L").strip()
        minutes, _, seconds = left.rpartition(":")
        return 60 * int(minutes.rpartition(":")[2] or 0) + int(seconds) if seconds.isdigit() else 0

    def history(self, folder: Path, name: str = "") -> list[dict]:
        """All jobs from a folder with all their runs, oldest first, once accounting knows that all are over."""
        return self.wait("the accounting", lambda: self._ended(folder, name))

    def _ended(self, folder: Path, name: str) -> list[dict]:
        """The jobs of `history`; none while accounting still thinks that one goes on, and lacks its comment."""
        fields = ["JobIDRaw", "State", "NodeList", "Partition", "Comment", "TimelimitRaw", "AllocTRES", "ReqCPUS"]
        fields += ["NNodes", "Account", "QOS", "Constraints", "WorkDir", "End"]
        lines = self.ask("sacct", "-X", "-D", "-P", "-n", "-S", "now-1day", "-o", ",".join(fields)).splitlines()
        rows = [dict(zip(fields, line.split("|"), strict=True)) for line in lines]
        mine = [row for row in rows if row["WorkDir"] == str(folder)]
        return [row for row in mine if name in row["Comment"]] if all(row["End"] != "Unknown" for row in mine) else []

    def urgent(self, node: str) -> None:
        """A short job of the preempting partition that wants all of a node."""
        self.ask("sbatch", "-p", "urgent", "-w", node, "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1")

    def kill_node(self, node: str) -> None:
        """As if its power were gone: its slurmd and everything that runs there. (A node is a UTS namespace.)"""
        folder = Path(os.environ.get("SLURM_FOLDER", Path(tempfile.gettempdir(), "babelmill-slurm")))
        daemon = int((folder / f"run/slurmd.{node}.pid").read_text())
        mine = os.readlink(f"/proc/{daemon}/ns/uts")
        assert mine != os.readlink("/proc/self/ns/uts")
        for process in [psutil.Process(daemon), *psutil.process_iter()]:
            try:
                if os.readlink(f"/proc/{process.pid}/ns/uts") == mine:
                    process.kill()
            except (OSError, psutil.NoSuchProcess):
                continue

    def up(self) -> None:
        done = subprocess.run([HERE / "up.sh"], capture_output=True, text=True)
        if done.returncode:
            pytest.fail(done.stderr.strip(), pytrace=False)

    def down(self) -> None:
        subprocess.run([HERE / "down.sh"], capture_output=True, check=True)


@contextlib.contextmanager
def last_one(file):
    """Whether this process is the only one that uses the cluster now; others neither begin nor end in the meantime."""
    with FileLock(f"{file.name}.lock"):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        fcntl.flock(file, fcntl.LOCK_SH)


@pytest.fixture(scope="session")
def cluster():
    """The cluster: the first process that uses it starts it, the last one stops it."""
    cluster = Cluster()
    with open(Path(tempfile.gettempdir(), "babelmill-slurm.users"), "w") as users:
        with last_one(users) as alone:
            if alone:
                cluster.down()  # of tests that were killed
                cluster.up()
        yield cluster
        with last_one(users) as alone:
            if alone:
                cluster.down()


class Run:
    """Snakemake with a profile, in the background."""

    def __init__(self, workspace: Workspace, *arguments, profile="slurm", hold=""):
        """Start it; `hold`: where each training waits, once it has begun (`held.py`)."""
        profile = profile if isinstance(profile, Path) else ROOT / "profiles" / profile
        command = [
            f"{os.environ[VARIABLE]}/python",
            "-c",
            SNAKEMAKE,
            "--snakefile",
            ROOT / "Snakefile",
            "--profile",
            profile,
        ]
        command += ["--slurm-init-seconds-before-status-checks", "1", *arguments]
        self.folder = workspace.path
        self.output = workspace.path / f"snakemake-{time.monotonic_ns()}.txt"
        with open(self.output, "w") as file:
            self.process = subprocess.Popen(
                [*map(str, command)],
                cwd=workspace.path,
                env=os.environ | ({held.VARIABLE: hold} if hold else {}),
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self.output.read_text()

    def finish(self) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End it as a crash of the login node would."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture
def start(cluster):
    """Start Snakemake on the cluster; whatever happens, nothing of it is left when the test ends."""
    runs = []

    def start(*arguments, **options) -> Run:
        runs.append(Run(*arguments, **options))
        return runs[-1]

    yield start
    for run in runs:
        run.kill()
    for folder in {run.folder for run in runs}:
        for job in cluster.queue(folder):
            subprocess.run(["scancel", "--full", job.number])
        cluster.wait("an empty queue", lambda folder=folder: not cluster.queue(folder))


class Training:
    """A training job as it goes on: what its files say, and its processes."""

    def __init__(self, workspace: Workspace, model: str, cluster: Cluster):
        self.path, self.model, self.name, self.cluster = workspace.path, model, f"rule_train_wildcards_{model}", cluster

    @property
    def queue(self) -> list[Job]:
        return self.cluster.queue(self.path, self.name)

    @property
    def history(self) -> list[dict]:
        return self.cluster.history(self.path, self.name)

    @property
    def job(self) -> Job | None:
        return next((job for job in self.queue if job.state == "RUNNING"), None)

    @property
    def ending(self) -> bool:
        """Whether processes of a job that is over still save."""
        return any(job.state == "COMPLETING" for job in self.queue)

    @property
    def metrics(self) -> list[dict]:
        """Of the run that was begun last."""
        begun = (self.path / "results/checkpoints" / self.model).glob("*/attempt.json")
        path = max(begun, key=lambda path: path.stat().st_mtime).parent / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]]

    @property
    def step(self) -> int:
        """Steps done of a run that has begun on the cluster."""
        return self.metrics[-1]["step"] if "parameters, " in self.printed and self.metrics else 0

    @property
    def devices(self) -> list[str]:
        """The GPUs that each of its processes sees."""
        seen = []
        for process in self._commands():
            with contextlib.suppress(psutil.Error):  # it has just ended
                seen.append(process.environ().get("CUDA_VISIBLE_DEVICES", ""))
        return seen

    @property
    def printed(self) -> str:
        """What all jobs of this training said."""
        logs = sorted((self.path / f".snakemake/slurm_logs/rule_train/{self.model}").glob("*.log"))
        return "".join(log.read_text() for log in logs)

    def processes(self) -> list[psutil.Process]:
        """Those that train, not what started them, nor what stands for them (`program_client.py`)."""
        named = {process.info["name"]: process for process in psutil.process_iter(["name"])}
        return [named.get(f"for {process.pid}", process) for process in self._commands()]

    def _commands(self) -> list[psutil.Process]:
        """Those with the command line and the environment of the processes that train."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if "-u" in (command := process.info["cmdline"] or [])
            and f"results/settings/{self.model}/train.json" in command
            and self._ours(process)
        ]

    def signal(self, number: int) -> None:
        for process in self.processes():
            process.send_signal(number)

    def go_on(self) -> None:
        """Let it go on where it waits by itself (`held.py`), also in later jobs."""
        (self.path / "results/settings" / self.model / "go").touch()

    def _ours(self, process) -> bool:
        try:
            return Path(process.cwd()) == self.path
        except psutil.Error:
            return False

    def stopped_by_its_time_limit(self, times: int):
        """A story told in steps: whenever it has begun, it is held up until its minutes are nearly over; one minute,
        or as many as it needs to begin. It waits by itself after ten steps or more, where it can (`hold` of `Run`).
        """
        begun, minutes = 0, 1
        while not self.job:
            yield
        job = self.job.number
        self.cluster.limit(job, minutes)
        while self.printed.count("the allocation ends soon") < times:
            yield
            if self.printed.count("parameters, ") > begun:
                begun += 1
                first = int(["0", *re.findall(r"going on after step (\d+)", self.printed)][-1])
                while self._commands() and self.step < first + 10:
                    yield
                self.signal(signal.SIGSTOP)
                while self.cluster.seconds_left(job) > 29:
                    yield
                self.go_on()
                self.signal(signal.SIGCONT)
                while self._commands():
                    yield
                if self.printed.count("the allocation ends soon") < times:
                    (self.path / "results/settings" / self.model / "go").unlink()
            elif self.job and 0 < self.cluster.seconds_left(job) < 36:
                minutes += 1
                self.cluster.limit(job, minutes)
        while any(each.number == job for each in self.queue) and not self.cluster.may_limit(job, 30):
            yield
