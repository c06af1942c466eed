"""The scripts of the profiles for clusters by themselves: what a job runs, and how its scheduler's answers are understood."""

import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from conftest import ROOT

PROFILES = ROOT / "profiles"


@pytest.fixture
def job(tmp_path):
    """A function that starts the job script around a command, in a folder with a space in its name."""
    folder = tmp_path / "a study"
    (folder / ".snakemake/jobs").mkdir(parents=True)

    def start(command: str, copied: bool = False, **variables: str) -> subprocess.Popen:
        script = folder / (".snakemake/jobs/script.Xy1" if copied else "script.sh")
        properties = '{"rule": "train", "resources": {"mem_mb": 1000, "runtime": 20, "gpu": 0}}'
        script.write_text((PROFILES / "jobscript.sh").read_text().format(properties=properties, exec_job=command))
        where = {"cwd": folder, "env": variables, "start_new_session": True, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen(["/bin/sh", str(script)], **where)

    start.jobs = folder / ".snakemake/jobs"
    return start


@pytest.mark.parametrize("variable", ["LSB_JOBID", "PBS_JOBID", "BABELMILL_JOB", "JOB_ID"])
@pytest.mark.parametrize("code", [0, 3])
def test_a_job_leaves_its_exit_code_under_its_number(job, variable, code):
    run = job(f"exit {code}", **{variable: "12.x"})
    assert run.wait() == code
    assert (job.jobs / "12.x.code").read_text() == f"{code}\n"


def test_a_job_without_any_environment_finds_programs_and_knows_its_end(job):
    run = job("env; date +now=%s", BABELMILL_JOB="1")
    printed = dict(line.split("=", 1) for line in run.communicate()[0].splitlines())
    assert "/usr/bin" in printed["PATH"].split(":")
    assert 0 <= int(printed["now"]) + 20 * 60 - int(printed["BABELMILL_JOB_END"]) <= 5


def test_pbs_begins_elsewhere(job, tmp_path):
    run = job("pwd", PBS_JOBID="1", PBS_O_WORKDIR=str(tmp_path))
    assert run.communicate()[0].strip() == str(tmp_path) and (tmp_path / ".snakemake/jobs/1.code").is_file()


def test_a_job_that_wants_another_turn_keeps_its_script(job):
    link = job.jobs / "1.script"
    link.symlink_to(job.jobs / "script.Xy1")
    (job.jobs / "1.code").write_text("0\n")  # of an earlier job with this number
    assert job('touch "$BABELMILL_AGAIN"; exit 1', copied=True, BABELMILL_JOB="1").wait() == 99
    assert link.exists() and not (job.jobs / "1.code").exists()
    assert job("exit 0", copied=True, BABELMILL_JOB="1").wait() == 0, "the mark is of the turn before"
    assert sorted(path.name for path in job.jobs.iterdir()) == ["1.code"]


@pytest.mark.parametrize("to_all", [False, True])
def test_a_job_may_save_when_it_gets_a_signal(job, to_all):
    """HTCondor and Kubernetes send TERM to the script alone, others to all processes."""
    saving = "trap 'sleep 0.3; touch saved; exit 75' TERM; touch begun; while :; do sleep 0.1; done"
    run = job(f'sh -c "{saving}"; exit $?', BABELMILL_JOB="1")
    while not (job.jobs.parents[1] / "begun").exists():
        time.sleep(0.02)
    (os.killpg if to_all else os.kill)(run.pid, signal.SIGTERM)
    assert run.wait() == 75 and (job.jobs.parents[1] / "saved").exists()
    assert (job.jobs / "1.code").read_text() == "75\n"


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT])
def test_signals_that_only_the_training_understands_do_not_end_the_script(job, number):
    run = job("touch begun; sleep 0.6; exit 5", BABELMILL_JOB="1")
    while not (job.jobs.parents[1] / "begun").exists():
        time.sleep(0.02)
    os.kill(run.pid, number)
    assert run.wait() == 5


HELD = "5"  # HTCondor's state of a job that waits for its user
ANSWERS = [
    # profile, what the scheduler's command says, its exit code, the state; "ended": what the job's exit code says
    *[("lsf", state, 0, "ended") for state in ("DONE", "EXIT")],
    *[("lsf", state, 0, "running") for state in ("RUN", "PEND", "SSUSP", "UNKWN", "ZOMBI")],
    ("lsf", "Job <12> is not found", 255, "ended"),
    ("lsf", "LSF is down. Please wait ...", 255, "running"),
    *[("pbs", f"Job Id: 12.server\n    job_state = {state}", 0, "ended") for state in "CF"],
    *[("pbs", f"Job Id: 12.server\n    job_state = {state}", 0, "running") for state in "QRHES"],
    ("pbs", "qstat: Unknown Job Id 12.server", 153, "ended"),
    ("pbs", "qstat: 12.server Job has finished, use -x or -H to obtain historical job information", 35, "ended"),
    ("pbs", "Connection refused\nqstat: cannot connect to server server (errno=15010)", 255, "running"),
    *[("htcondor", state, 0, "ended") for state in ("", "3", "4")],
    *[("htcondor", state, 0, "running") for state in "1267"],
    (
        "htcondor",
        "Error: Extra Info: You probably saw this error because the condor_schedd is not running",
        1,
        "running",
    ),
    ("htcondor", "", 1, "running"),
    ("htcondor", HELD, 0, "removed"),
    ("gridengine", "job_number: 12\nerror reason    1: can't chdir", 0, "removed"),
    ("gridengine", "Following jobs do not exist or permissions are not sufficient: \n12", 1, "ended"),
    ("gridengine", "job_number: 12", 0, "running"),
    ("gridengine", "error: commlib error: got select error (Connection refused)", 1, "running"),
    *[("kubernetes", told, 0, "ended") for told in ("Complete", "SuccessCriteriaMet Complete")],
    *[("kubernetes", told, 0, "ended") for told in ("Failed", "FailureTarget Failed")],
    *[("kubernetes", told, 0, "running") for told in ("", "Suspended", "FailureTarget")],
    ("kubernetes", 'Error from server (NotFound): jobs.batch "12" not found', 1, "ended"),
    ("kubernetes", "The connection to the server was refused. Failed to answer", 1, "running"),
]


@pytest.mark.parametrize(("profile", "told", "code", "state"), ANSWERS)
def test_only_an_answer_of_the_scheduler_ends_a_job(tmp_path, profile, told, code, state):
    programs, jobs = tmp_path / "bin", tmp_path / ".snakemake/jobs"
    programs.mkdir()
    jobs.mkdir(parents=True)
    for name in ("bjobs", "qstat", "condor_q", "kubectl"):
        (programs / name).write_text(f'#!/bin/sh\ncat <<"END"\n{told}\nEND\nexit {code}\n')
    for name in ("qdel", "condor_rm"):
        (programs / name).write_text('#!/bin/sh\necho "$1" > removed\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    copy, link = jobs / "script.Xy1", jobs / "12.script"
    for exit_code in (0, 1):
        (jobs / "12.code").write_text(f"{exit_code}\n")
        copy.touch()
        link.unlink(missing_ok=True)
        link.symlink_to(copy)
        job = "job.batch/12" if profile == "kubernetes" else "12"
        path = {"PATH": f"{programs}:{os.environ['PATH']}"}
        command = [PROFILES / profile / "status.sh", job]
        done = subprocess.run(command, cwd=tmp_path, env=path, capture_output=True, text=True, check=True)
        ended = "failed" if exit_code else "success"
        assert done.stdout == f"{ {'ended': ended, 'removed': 'failed'}.get(state, state) }\n"
        if profile in ("htcondor", "kubernetes"):
            assert copy.exists() == link.is_symlink() == (state == "running"), (
                "a job that starts again needs its script"
            )
    assert Path(tmp_path, "removed").exists() == (state == "removed")


@pytest.fixture
def scheduler(tmp_path):
    """A function that runs a command with programs, given by what each does in the shell."""
    programs = tmp_path / "bin"
    programs.mkdir()

    def run(command: str, **programs_of: str) -> subprocess.CompletedProcess:
        for name, does in programs_of.items():
            (programs / name).write_text(f"#!/bin/sh\n{does}\n")
            (programs / name).chmod(0o755)
        path = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": "/home/me"}
        return subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, env=path, capture_output=True, text=True)

    return run


@pytest.mark.parametrize(("profile", "told"), [("htcondor", "12.0 - 12.0"), ("kubernetes", "job.batch/babelmill-x")])
def test_a_submitted_job_is_told_whatever_happens_then(scheduler, tmp_path, profile, told):
    """Snakemake would submit it again."""
    (tmp_path / "job.sh").touch()
    text = yaml.safe_load((PROFILES / profile / "profile.yaml").read_text())["cluster-generic-submit-cmd"]
    resources = SimpleNamespace(mem_mb=1000, gpu=0, runtime=20)
    command = f"{text.format(rule='train', threads=1, resources=resources)} job.sh"
    submit = {"condor_submit" if profile == "htcondor" else "kubectl": f"cat >/dev/null; echo '{told}'"}
    done = scheduler(command, ln="exit 1", **submit)
    assert (done.returncode, done.stdout) == (0, f"{told.split()[0]}\n"), "a volume without links"


@pytest.mark.parametrize(("profile", "job"), [("htcondor", "12.0"), ("kubernetes", "job.batch/12.0")])
def test_a_job_that_cannot_be_deleted_keeps_its_script(scheduler, tmp_path, profile, job):
    jobs = tmp_path / ".snakemake/jobs"
    jobs.mkdir(parents=True)
    (jobs / "script.Xy1").touch()
    (jobs / "12.0.script").symlink_to(jobs / "script.Xy1")
    command, program = f"{PROFILES}/{profile}/cancel.sh {job}", "condor_rm" if profile == "htcondor" else "kubectl"
    assert scheduler(command, **{program: "exit 1"}).returncode == 1 and (jobs / "script.Xy1").exists()
    assert scheduler(command, **{program: "exit 0"}).returncode == 0 and not list(jobs.iterdir())
