"""What the profiles `generic` and `gridengine` run: the script of a job, and how the answers of its scheduler are understood."""

import os
import signal
import subprocess
import time

import pytest
import yaml

from conftest import ROOT

PROFILES = ROOT / "profiles"


def profile(name: str) -> dict:
    return yaml.safe_load((PROFILES / name / "profile.yaml").read_text())


@pytest.fixture
def job(tmp_path):
    """A function that starts the job script around a command, in a folder with a space in its name."""
    folder = tmp_path / "a study"
    (folder / ".snakemake/jobs").mkdir(parents=True)

    def start(command: str, **variables: str) -> subprocess.Popen:
        properties = '{"rule": "train", "resources": {"mem_mb": 1000, "runtime": 20, "gpu": 0}}'
        script = folder / "script.sh"
        script.write_text((PROFILES / "jobscript.sh").read_text().format(properties=properties, exec_job=command))
        environment = {"PATH": os.environ["PATH"], **variables}
        where = {"cwd": folder, "env": environment, "start_new_session": True, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen(["/bin/sh", str(script)], **where)

    start.jobs = folder / ".snakemake/jobs"
    return start


@pytest.mark.parametrize("variable", ["JOB_ID", "LSB_JOBID", "PBS_JOBID", "BABELMILL_JOB"])
@pytest.mark.parametrize("code", [0, 3])
def test_a_job_leaves_its_exit_code_under_its_number(job, variable, code):
    run = job(f"exit {code}", **{variable: "12.x"})
    assert run.wait() == code
    assert (job.jobs / "12.x.code").read_text() == f"{code}\n"


def test_a_job_knows_its_end(job):
    run = job("env; date +now=%s", JOB_ID="1")
    printed = dict(line.split("=", 1) for line in run.communicate()[0].splitlines())
    assert 0 <= int(printed["now"]) + 20 * 60 - int(printed["BABELMILL_JOB_END"]) <= 5


def test_a_job_that_wants_another_turn_says_so_by_its_exit_code(job):
    (job.jobs / "1.code").write_text("0\n")  # of an earlier job with this number
    assert job('touch "$BABELMILL_AGAIN"; exit 1', JOB_ID="1").wait() == 99
    assert not (job.jobs / "1.code").exists()
    assert job("exit 0", JOB_ID="1").wait() == 0, "the mark is of the turn before"
    assert [path.name for path in job.jobs.iterdir()] == ["1.code"]


@pytest.mark.parametrize("to_all", [False, True])
def test_a_job_may_save_when_it_gets_a_signal(job, to_all):
    """Some schedulers send TERM to the script alone, others to all processes."""
    saving = "trap 'sleep 0.3; touch saved; exit 75' TERM; touch begun; while :; do sleep 0.1; done"
    run = job(f'sh -c "{saving}"; exit $?', JOB_ID="1")
    while not (job.jobs.parents[1] / "begun").exists():
        time.sleep(0.02)
    (os.killpg if to_all else os.kill)(run.pid, signal.SIGTERM)
    assert run.wait() == 75 and (job.jobs.parents[1] / "saved").exists()
    assert (job.jobs / "1.code").read_text() == "75\n"


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT])
def test_signals_that_only_the_training_understands_do_not_end_the_script(job, number):
    run = job("touch begun; sleep 0.6; exit 5", JOB_ID="1")
    while not (job.jobs.parents[1] / "begun").exists():
        time.sleep(0.02)
    os.kill(run.pid, number)
    assert run.wait() == 5


ANSWERS = [
    # profile, what the scheduler's command says, its exit code, the state; "ended": what the job's exit code says
    ("gridengine", "job_number: 12\nerror reason    1: can't chdir", 0, "removed"),
    ("gridengine", "Following jobs do not exist or permissions are not sufficient: \n12", 1, "ended"),
    ("gridengine", "job_number: 12", 0, "running"),
    ("gridengine", "error: commlib error: got select error (Connection refused)", 1, "running"),
    ("generic", "job 12: OVER since noon", 0, "ended"),
    ("generic", "", 1, "running"),
]


@pytest.mark.parametrize(("name", "told", "code", "state"), ANSWERS)
def test_only_an_answer_of_the_scheduler_ends_a_job(tmp_path, name, told, code, state):
    programs, jobs = tmp_path / "bin", tmp_path / ".snakemake/jobs"
    programs.mkdir()
    jobs.mkdir(parents=True)
    for program in ("qstat", "SHOW"):
        (programs / program).write_text(f'#!/bin/sh\ncat <<"END"\n{told}\nEND\nexit {code}\n')
    (programs / "qdel").write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/removed\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    command = f"{profile(name)['cluster-generic-status-cmd']} '12'"  # as the plugin does
    for exit_code in (0, 1):
        (jobs / "12.code").write_text(f"{exit_code}\n")
        environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        ended = "failed" if exit_code else "success"
        assert done.stdout == f"{ {'ended': ended, 'removed': 'failed'}.get(state, state) }\n", done.stderr
    assert (tmp_path / "removed").exists() == (state == "removed")


def test_grid_engine_is_the_generic_profile_with_its_three_commands_filled_in():
    generic, filled = profile("generic"), profile("gridengine")
    commands = {f"cluster-generic-{what}-cmd" for what in ("submit", "status", "cancel")}
    assert {key for key in generic.keys() | filled.keys() if generic.get(key) != filled.get(key)} == commands
