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
def test_a_job_knows_its_end_and_leaves_its_exit_code_under_its_number(job, variable):
    for code in (0, 3):
        run = job(f"env; date +now=%s; exit {code}", **{variable: "12.x"})
        printed = dict(line.split("=", 1) for line in run.communicate()[0].splitlines())
        assert run.returncode == code and (job.jobs / "12.x.code").read_text() == f"{code}\n"
        assert 0 <= int(printed["now"]) + 20 * 60 - int(printed["BABELMILL_JOB_END"]) <= 5


def test_a_job_that_wants_another_turn_says_so_by_its_exit_code(job):
    (job.jobs / "1.code").write_text("0\n")  # of an earlier job with this number
    assert job('touch "$BABELMILL_AGAIN"; exit 1', JOB_ID="1").wait() == 99
    assert not (job.jobs / "1.code").exists()
    assert job("exit 0", JOB_ID="1").wait() == 0, "the mark is of the turn before"
    assert [path.name for path in job.jobs.iterdir()] == ["1.code"]


SAVES = "sh -c \"trap 'sleep 0.3; touch saved; exit 75' TERM; touch begun; while :; do sleep 0.1; done\"; exit $?"
TRAINS = "touch begun; sleep 0.6; exit 5"  # only the training understands the other signals
SIGNALS = [(SAVES, os.kill, signal.SIGTERM), (SAVES, os.killpg, signal.SIGTERM)]
SIGNALS += [(TRAINS, os.kill, number) for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)]


@pytest.mark.parametrize(("command", "send", "number"), SIGNALS)
def test_a_signal_lets_a_job_save_and_does_not_end_the_script(job, command, send, number):
    """Some schedulers send TERM to the script alone, others to all processes."""
    run, folder = job(command, JOB_ID="1"), job.jobs.parents[1]
    while not (folder / "begun").exists():
        time.sleep(0.02)
    send(run.pid, number)
    code = 75 if command == SAVES else 5
    assert run.wait() == code and (folder / "saved").exists() == (code == 75)
    assert (job.jobs / "1.code").read_text() == f"{code}\n"


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
