"""What a run shows on the terminal: little, and what matters."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from babelmill.commands.run_view import FailedJob, RunView, summary
from babelmill.config.resolve import Configuration
from babelmill.core.bars import TERMINAL
from babelmill.graph import MODELS_OF, Graph
from babelmill.stages import STAGES

OF_A_MODEL = ["corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert"]


def test_a_line_as_each_stage_begins_and_one_with_its_figures_as_it_ends(built):
    output = (built / "output.txt").read_text()
    assert output.count("\n") <= 50
    for model in ("eng", "deu"):
        said = {}
        for stage in OF_A_MODEL:
            name = model if stage == "convert" else rf"{model}-[0-9a-f]{{10}} \({model}\)"
            folder = built / (f"converted/{model}" if stage == "convert" else f"results/of/{model}/{stage}")
            figures = json.loads((folder / "manifest.json").read_text())["figures"]
            said[stage] = figures["summary"]
            assert len(re.findall(rf"^[\d:]+ +{stage} +{name} +begins$", output, re.MULTILINE)) == 1
            end = rf"^[\d:]+ +\[\d+/14\] +{stage} +{name} +(?:\d+ s|\d+:\d\d)  {re.escape(said[stage])}$"
            assert len(re.findall(end, output, re.MULTILINE)) == 1, (stage, model, output)
        assert f"\n{model}  {said['convert']}\n" in output.partition("14/14")[2]
        assert re.match(r"\d+ documents, ", said["corpus"])
        assert re.match(r"8 steps, [0-9.]+ k tokens, [0-9.k ]+ words, validation loss \d", said["train"])
        assert said["convert"] == f"33.5 k parameters, {said['evaluate']}: converted/{model}"
    assert re.findall(r"\[(\d+)/14\]", output) == [str(count) for count in range(1, 15)]
    assert re.search(r"\n\n2 of 2 models converted in [\d:]+( s)?\nComplete log", output)


@pytest.mark.parametrize(("beside", "said"), [(True, ["30"]), (False, ["20", "30", "40"])])
def test_a_stage_beside_the_plugin_says_warnings(tmp_path, beside, said):
    code = (
        "import logging; from pathlib import Path; from babelmill.core import stage_entry\n"
        "stage_entry.QUIET = (0, 0); stage_entry.configure_logging(Path('stage.log'), 'train eng')\n"
        "for level in (logging.INFO, logging.WARNING, logging.ERROR): logging.log(level, 'level %d', level)\n"
        "logging.info('progress', extra={'bar': False})"
    )
    with open(tmp_path / "terminal", "w") as file:
        about = os.fstat(file.fileno())
        environment = os.environ | {TERMINAL: f"{about.st_dev}:{about.st_ino if beside else 0}"}
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, stderr=file, env=environment, check=True)
    shown, log = (tmp_path / "terminal").read_text(), (tmp_path / "stage.log").read_text()
    assert re.findall(r"level (\d+)", shown) == said and re.findall(r"level (\d+)", log) == ["20", "30", "40"]
    assert "progress" in shown and "progress" in log and ("train eng  level 30" in shown) == beside


def view(monkeypatch, **options) -> RunView:
    """The view of a run that is no dry run."""
    monkeypatch.setenv(TERMINAL, "")  # which the view sets for the stages
    usual = dict.fromkeys(("dryrun", "quiet", "printshellcmds", "verbose"), False)
    return RunView(SimpleNamespace(**(usual | options)))


def event(name: str, number: int, rule: str, **more) -> logging.LogRecord:
    """An event of Snakemake about a job."""
    about = {"event": name, "jobid": number, "job_id": number, "rule_name": rule, "wildcards": {"result": "eng-1"}}
    about |= {"output": ["x"], "rule_msg": None, "local": True, "levelno": logging.INFO}
    return logging.makeLogRecord(about | more)


def message(text: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, "levelno": level})


def test_a_job_that_fails_says_its_last_words(capfd, monkeypatch, tmp_path):
    """Of a job that left no log, its executor says why."""
    shown, log = view(monkeypatch), tmp_path / "log"
    for number, (text, why) in enumerate(
        [("12:00:00 error: too little text\n", "job 7 FAILED"), ("12:00:00 step 3\n", None), ("", "job 7\nFAILED")]
    ):
        log.write_text(text)
        shown.show(event("job_info", number, "train"))
        shown.show(event("job_error", number, "train", log=[str(log)], rule_msg=why, levelno=logging.ERROR))
    lines = [line for line in capfd.readouterr().err.splitlines() if "begins" not in line]
    said = [" ".join([line.split()[1], line.partition(" s  ")[2]]) for line in lines]
    assert said == ["failed too little text", "stopped step 3", "failed job 7 FAILED"]


def test_messages_of_snakemake_are_shown_once_and_say_what_no_log_knows(capfd, monkeypatch):
    """It says again and again that it was interrupted. Of a job that was killed, it alone knows.

    A dry run beside another run is a preview.
    """
    locked = message("Error: Directory cannot be locked. Another Snakemake instance is running.")  # its own words
    view(monkeypatch, dryrun=True).show(locked)
    assert capfd.readouterr().out == "note: another run works in this folder now; this is only a preview\n"
    shown, quiet = view(monkeypatch), view(monkeypatch, quiet={"all"})
    job = "RuleException:\nCalledProcessError in file \"/x/rules/train.smk\", line 36:\nCommand 'a\nb' "
    ends = ("died with <Signals.SIGKILL: 9>.", "returned non-zero exit status 137.", "returned non-zero exit status 1.")
    texts = ["Will exit after finishing currently running jobs", "Select jobs to execute...", "Terminating processes"]
    for text in (texts + [job + end for end in ends]) * 2:
        shown.show(message(text, logging.ERROR if text.startswith(job) else logging.INFO))
    for text in texts:
        quiet.show(message(text))
    quiet.show(message("disk full", logging.WARNING))
    killed = ["train was ended by SIGKILL", "train was ended by signal 9"]
    assert capfd.readouterr().err.splitlines() == [texts[0], texts[2], *killed, "disk full"]


def test_the_end_says_what_failed_and_what_continues(folder):
    """A stage that a signal ended has not failed."""
    graph = Graph(Configuration([("test", {})]))
    Path("stopped.log").write_text("12:00:00 step 5 is saved; the same command continues from there\n")
    Path("failed.log").write_text("\n".join(f"12:00:00 line {i}" for i in range(9)) + "\n12:00:01 error: no text\n")
    stopped, failed = FailedJob("train", "eng-1", [Path("stopped.log")], 1), [Path("failed.log")]
    for complete, end in (True, " in 1:01"), (False, ", interrupted after 1:01: the same command continues from here"):
        text = summary(graph, ["eng", "deu"], [stopped], complete, 61)
        assert text.splitlines()[-1] == f"0 of 2 models converted{end}"
    jobs = [stopped, FailedJob("corpus", "deu-1", failed, 2), FailedJob("export", "eng-1", [Path("no.log")], 1)]
    first, *lines, last = summary(graph, ["eng", "deu"], jobs, False, 61).strip().splitlines()
    assert first == "0 of 2 models converted, 2 jobs failed:"
    assert lines[:2] == ["  corpus deu-1: 2 attempts", "    failed.log:"] and len(lines) == 2 + 5
    assert lines[-1] == "      12:00:01 error: no text"
    assert last.startswith("  export eng-1: 1 attempt; it left no log")


def test_a_line_names_the_models_that_ask_for_a_result(capfd, monkeypatch):
    shown = view(monkeypatch)
    shown.show(event("job_info", 99, "all", output=[]))
    monkeypatch.setitem(MODELS_OF, STAGES["train"].path_of("eng-1"), ["eng", "more"])
    for number, stage in enumerate(("train", "convert")):
        shown.show(event("job_info", number, stage))
    lines = [line.split(maxsplit=1)[1] for line in capfd.readouterr().err.splitlines()]
    assert lines == ["train       eng-1 (eng, more)  begins", "convert     eng-1     begins"]
