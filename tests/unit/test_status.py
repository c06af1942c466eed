"""The status view, beside workflows that really run, fail and are killed."""

import os
import re
import signal
import subprocess
import time

from conftest import SMALL


def status(workspace, *names):
    """Lines of the view by model, and its last lines."""
    done = workspace.python("-m", "babelmill.status", *names)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    end = next(i for i, line in enumerate(lines) if re.match(r"\d+ models: ", line))
    return {line.split()[0]: line for line in lines[1:end]}, lines[end:]


def test_converted_models(workspace):
    lines, rest = status(workspace)
    assert set(lines) == {"eng", "deu"}
    assert re.search(r"convert +converted +8/8 +\d+\.\d{3} +[\d,]+ +1$", lines["eng"])
    assert rest == ["2 models: 2 converted"]


def test_a_changed_setting_and_its_reason(workspace):
    workspace.configure(SMALL | {"tokenizer": {"vocab_size": 300}})
    lines, _ = status(workspace, "eng")
    assert re.search(
        rf"tokenizer +outdated +tokenizer.vocab_size {SMALL['tokenizer']['vocab_size']} -> 300$", lines["eng"]
    )


def test_a_failed_stage_its_error_and_its_log(workspace):
    workspace.configure(SMALL | {"models": {"eng": {"tokenizer": {"vocab_size": 100_000}}}})
    assert workspace.snakemake("converted/eng", "converted/deu", "--keep-going", check=False).returncode == 1
    lines, rest = status(workspace)
    assert re.search(r"tokenizer +failed +tokenizer.vocab_size = 100000: ", lines["eng"])
    assert "converted" in lines["deu"]
    assert rest == ["2 models: 1 converted, 1 failed", "eng: logs/tokenizer/eng.log"]


def test_languages_of_a_mixture_are_counted(workspace):
    """The corpora of both are there; one shard of two is."""
    workspace.configure(SMALL | {"models": {"both": {"languages": ["eng", "deu"]}}})
    workspace.snakemake("results/shards/both/eng/manifest.json")
    lines, _ = status(workspace, "both")
    assert re.search(r"shards 1/2 +waiting$", lines["both"])


def test_training_under_way(workspace):
    """Step of steps, loss, speed and time left, attempt and machine, while it trains; after Ctrl-C, where it stopped."""
    long = {"max_steps": 100_000}
    workspace.configure(SMALL | {"models": {"eng": {"train": SMALL["train"] | long}}})
    process = subprocess.Popen(
        workspace.command("results/models/eng/manifest.json"),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        end, seen = time.monotonic() + 300, ""
        while not re.search(r"train +running +[\d,]+/100,000 +\d+\.\d+ +[\d,]+ +\d+:\d\d:\d\d +1 +\S+", seen):
            assert process.poll() is None, "training ended"
            assert time.monotonic() < end, seen
            time.sleep(0.5)
            seen = status(workspace, "eng")[0]["eng"]
        os.killpg(process.pid, signal.SIGINT)
        process.wait()
        stopped = status(workspace, "eng")[0]["eng"]
        assert re.search(r"train +stopped +[1-9][\d,]*/100,000 .*left after step [\d,]+; the same command", stopped)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def test_it_is_readable_for_45_models(workspace):
    lines, rest = status(workspace, "tier1", "tier2", "tier3")
    assert len(lines) == 45
    assert max(map(len, lines.values())) <= 120
    assert rest == ["45 models: 2 converted, 43 waiting"]
