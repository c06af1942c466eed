"""The status view, beside workflows that really run, fail and are killed."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

from babelmill.commands.progress import Status
from babelmill.commands.status import status_table
from babelmill.config import loading
from babelmill.graph import Graph, Result
from babelmill.runtime.run_lock import locked
from conftest import SMALL
from helpers.programs.prepared import Program


def status(workspace, *names):
    """Lines of the view by model, and its last lines."""
    done = workspace.python("-m", "babelmill", "status", *names, check=True)
    lines = done.stdout.splitlines()
    end = next(i for i, line in enumerate(lines) if re.match(r"\d+ models?: ", line))
    return {line.split()[0]: line for line in lines[1:end]}, lines[end:]


def result(workspace, stage: str, model: str = "eng") -> Result:
    """What the workflow asks for."""
    with contextlib.chdir(workspace.path):
        return Graph(loading.load()).result(stage, model)


def test_converted_models_and_a_changed_setting(workspace):
    lines, rest = status(workspace)
    assert set(lines) == {"eng", "deu"} and rest == ["2 models: 2 converted"]
    assert re.search(r"convert +converted +8/8 +\d+\.\d{3} +[\d,]+$", lines["eng"]), "no attempt, no job"
    workspace.configure(SMALL | {"tokenizer": {"vocab_size": 300}})
    assert re.search(r"^eng +tokenizer +waiting$", status(workspace, "eng", "--watch", "60")[0]["eng"]), "no terminal"
    refused = workspace.python("-m", "babelmill", "status", "--watch", "0")
    assert refused.returncode == 1 and "--watch 0: give 1 to 3600 seconds" in refused.stderr


def test_the_table_shows_no_key_of_an_address():
    failed = Status("eng", "train", "failed", note="cannot read https://me:pw@host/a?sig=1f")
    assert "cannot read https://***@host/a?***\n" in status_table([failed], 200)


def test_training_under_way(workspace):
    """Step of steps, loss, speed, time left and machine, while it trains; after Ctrl-C, where it stopped.

    The suite, which comes before, does not hide it.
    """
    long = {"train": SMALL["train"] | {"max_steps": 100_000}, "evaluation": {"suites": ["english_basics"]}}
    workspace.configure(SMALL | {"models": {"eng": long}})
    command = workspace.command("converted/eng", "--until", "train")[1:]
    with open(os.devnull, "w") as nothing:
        process = Program(*command, outputs=[nothing, nothing], session=True)
    try:
        end, seen = time.monotonic() + 300, ""
        while not re.search(r"train +running +[\d,]+/100,000 +\d+\.\d+ +[\d,]+ +\d+:\d\d:\d\d +[^\s\d]\S*", seen):
            assert process.poll() is None, "training ended"
            assert time.monotonic() < end, seen
            time.sleep(0.5)
            seen = status(workspace, "eng")[0]["eng"]
        assert re.fullmatch(r"runs now, step [1-9][\d,]* of 100,000", workspace.why("eng")["train"])
        os.killpg(process.pid, signal.SIGINT)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        process.wait()
    lines, rest = status(workspace, "eng")
    path = max((workspace.path / "results/checkpoints").glob("eng-*/logs/*_attempt1.log"))
    assert rest[1] == f"eng: {path.relative_to(workspace.path)}"
    assert "left after step" in path.read_text()
    stopped = r"train +stopped +([1-9][\d,]*)/100,000 .*left after step [\d,]+; the same command"
    assert (step := re.search(stopped, lines["eng"])), lines["eng"]
    assert workspace.why("eng")["train"] == f"continues after step {step[1]}"
    workspace.configure(SMALL | {"models": {"eng": {"train": long["train"]}}})
    with a_run_that_makes(workspace, "train"):
        assert re.search(rf"train +waiting +{step[1]}/100,000$", status(workspace, "eng")[0]["eng"])


@contextlib.contextmanager
def a_run_that_makes(workspace, stage: str):
    """Stand for a run that will make a result of `eng`, after what other runs have logged."""
    place = workspace.path / ".snakemake/locks/0.output.lock"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"{result(workspace, stage).record}\n")
    yield
    place.unlink()


def test_a_job_runs_as_long_as_its_process(workspace):
    """Of an export that was interrupted, only the log is left; the same command may have begun again."""
    export = result(workspace, "export")
    for record in (export.record, result(workspace, "convert").record):
        (workspace.path / record).unlink()
    assert re.search(r"export +stopped", status(workspace, "eng")[0]["eng"])
    with a_run_that_makes(workspace, "export"):
        assert re.search(r"export +waiting", status(workspace, "eng")[0]["eng"])
        waits = [sys.executable, "-c", LOGS, workspace.path / f"logs/export/{export.name}.log"]
        with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            assert re.search(r"export +running", status(workspace, "eng")[0]["eng"])
    assert re.search(r"export +stopped .*half of it", status(workspace, "eng")[0]["eng"])


LOGS = """import logging, sys; from pathlib import Path; from babelmill.core import stage_entry
stage_entry.configure_logging(Path(sys.argv[1])); logging.info("half of it"); print("begun", flush=True); input()"""


def test_jobs_of_a_cluster_are_readable(workspace):
    """Of two SLURM jobs that train large models, the process of one is no more."""
    step = {"kind": "train", "step": 126_000, "loss": 3.14159, "tokens": 1.2e10, "tokens_per_second": 1_234_567.8}
    attempt = {"attempt": 12, "job": "12345678", "began_after_step": 0, "steps": 126_232, "tokens": 1.3e11}
    owner = {"job": "12345678", "host": "gpu-a100-017", "pid": 1}
    workspace.configure(SMALL | {"train": SMALL["train"] | {"seed": 9}})
    with contextlib.ExitStack() as locks:
        for model in ("eng", "deu"):
            run = workspace.path / "results/checkpoints" / result(workspace, "train", model).name
            run.mkdir()
            if model == "eng":
                locks.enter_context(locked(run))
            for name, values in {"metrics.jsonl": step, "attempt.json": attempt, "lock.json": owner}.items():
                (run / name).write_text(json.dumps(values) + "\n")
        lines, rest = status(workspace)
    assert max(map(len, lines.values())) <= 120 and rest[0] == "2 models: 1 running, 1 waiting"
    eng = "eng +train +running +126,000/126,232 +3.142 +1,234,568 +26:33:00 +12 +12345678 on gpu-a100-017"
    assert re.fullmatch(eng, lines["eng"])


def test_the_view_is_renewed_until_ctrl_c(workspace):
    """It sees an edit of the configuration, says what is wrong with it, and gives the terminal back."""
    control, terminal = pty.openpty()
    workspace.configure(SMALL | {"models": {"eng": {"tokenizer": {"vocab_size": 300}}}})
    words = ("-m", "babelmill", "status", "--watch", "1")
    process = Program(*words, cwd=workspace.path, outputs=[terminal, terminal], session=True)
    os.close(terminal)
    try:
        read_until(control, "waiting")
        workspace.configure(SMALL | {"tokeniser": {}})
        read_until(control, "unknown key tokeniser")
        workspace.configure(SMALL)
        read_until(control, "2 converted")
        os.killpg(process.pid, signal.SIGINT)
        read_until(control, "\x1b[?1049l")  # the terminal's first screen
        assert process.wait() == 0
    finally:
        os.close(control)


def read_until(control: int, words: str) -> None:
    """Read what a terminal shows, up to some words."""
    shown, end = "", time.monotonic() + 60
    while words not in shown:
        assert time.monotonic() < end, shown
        if select.select([control], [], [], 0.5)[0]:
            shown += os.read(control, 65536).decode()
