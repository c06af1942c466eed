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

from babelmill.commands.run_view import FailedJob, RunView, idle_gpus, summary
from babelmill.config.resolve import Configuration
from babelmill.core.bars import TERMINAL
from babelmill.graph import MODELS_OF, Graph
from babelmill.stages import STAGES

OF_A_MODEL = ["corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert"]


def test_a_line_as_each_stage_begins_and_ends(built):
    lines = (built / "output.txt").read_text().splitlines()
    assert len(lines) <= 50
    for model in ("eng", "deu"):
        for stage in OF_A_MODEL:
            name = model if stage == "convert" else rf"{model}-[0-9a-f]{{10}} \({model}\)"
            begins = [line for line in lines if re.search(rf"^[\d:]+ +{stage} +{name} +begins$", line)]
            end = rf"^[\d:]+ +\[\d+/14\] +{stage} +{name} +(\d+ s|\d+:\d\d)  \S"
            ends = [line for line in lines if re.search(end, line)]
            assert (len(begins), len(ends)) == (1, 1), (stage, model, lines)
    counts = [int(count) for count in re.findall(r"\[(\d+)/14\]", "\n".join(lines))]
    assert counts == list(range(1, 15))


def test_a_stage_says_its_figures(built):
    output = (built / "output.txt").read_text()
    folders = {stage: f"results/of/eng/{stage}" for stage in OF_A_MODEL} | {"convert": "converted/eng"}
    manifests = {stage: json.loads((built / path / "manifest.json").read_text()) for stage, path in folders.items()}
    for stage, about in manifests.items():
        assert re.search(rf"\] +{stage} +eng\S* .*  {re.escape(about['figures']['summary'])}\n", output), stage
    said = {stage: about["figures"]["summary"] for stage, about in manifests.items()}
    documents = manifests["corpus"]["figures"]["documents"]
    assert re.match(rf"{documents['train']} documents, .* {documents['validation']} for validation", said["corpus"])
    loss = json.loads((built / "results/of/eng/train/metrics.jsonl").read_text().splitlines()[-1])["loss"]
    assert re.fullmatch(rf"8 steps, 2.0 k tokens, [0-9.k ]+ words, validation loss {loss:.3f}", said["train"])
    scores = json.loads((built / "results/of/eng/evaluate/evaluation.json").read_text())["variants"]["ema"]
    shown = {mode: f"{score['value']:.3f} ± {score['standard_error']:.3f} {mode}" for mode, score in scores.items()}
    assert said["evaluate"].startswith(f"bits per byte {shown['causal']}, {shown['masked']}")
    assert said["convert"] == f"33.5 k parameters, {said['evaluate']}: converted/eng"
    end = rf"\n\neng  {re.escape(said['convert'])}\ndeu  .*\n\n2 of 2 models converted in [\d:]+( s)?\nComplete log"
    assert re.search(end, output)


def test_messages_of_stages_are_in_the_logs(built):
    output = (built / "output.txt").read_text()
    (log,) = (built / "logs/train").glob("eng-*.log")
    assert "M parameters" in log.read_text() and "M parameters" not in output
    (log,) = (built / ".snakemake/log").glob("*.log")
    for words in ("reason: ", "Finished jobid", "2 of 2 models converted"):
        assert words in log.read_text()
        assert words not in output or words.startswith("2 of 2")


def test_a_stage_beside_the_plugin_says_warnings(tmp_path):
    code = (
        "import logging; from pathlib import Path; from babelmill.core import stage_entry\n"
        "stage_entry.QUIET = (0, 0); stage_entry.configure_logging(Path('stage.log'), 'train eng')\n"
        "for level in (logging.INFO, logging.WARNING, logging.ERROR): logging.log(level, 'level %d', level)\n"
        "logging.info('progress', extra={'bar': False})"
    )
    seen = {}
    for where in ("terminal", "elsewhere"):
        with open(tmp_path / where, "w") as file:
            status = os.fstat(file.fileno())
            terminal = f"{status.st_dev}:{status.st_ino if where == 'terminal' else 0}"
            subprocess.run(
                [sys.executable, "-c", code],
                cwd=tmp_path,
                stderr=file,
                env=os.environ | {TERMINAL: terminal},
                check=True,
            )
        seen[where] = re.findall(r"level (\d+)", (tmp_path / where).read_text())
        assert "progress" in (tmp_path / where).read_text()
        assert re.findall(r"level (\d+)", (tmp_path / "stage.log").read_text())[-3:] == ["20", "30", "40"]
    assert (tmp_path / "stage.log").read_text().count("progress") == 2, "a log that is there goes on"
    assert seen == {"terminal": ["30"], "elsewhere": ["20", "30", "40"]}
    assert "train eng  level 30" in (tmp_path / "terminal").read_text()


def test_a_run_that_leaves_gpus_idle_says_so(monkeypatch):
    """Not if it was given all, or sees none: a profile cannot know how many a machine has."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert idle_gpus(1).startswith(
        "this run uses 1 of this machine's 4 GPUs: to use all, put --resources gpu=4 at the end"
    )
    assert idle_gpus(4) == ""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert idle_gpus(0) == idle_gpus(1) == ""


def view(monkeypatch, **options) -> RunView:
    """The view of a run that is no dry run."""
    monkeypatch.setenv(TERMINAL, "")  # which the view sets for the stages
    usual = {"dryrun": False, "quiet": set(), "printshellcmds": False, "verbose": False}
    return RunView(SimpleNamespace(**(usual | options)))


def event(name: str, number: int, rule: str, **more) -> logging.LogRecord:
    """An event of Snakemake about a job."""
    about = {"event": name, "jobid": number, "job_id": number, "rule_name": rule, "wildcards": {"result": "eng-1"}}
    return logging.makeLogRecord(
        about | {"output": ["x"], "rule_msg": None, "local": True, "levelno": logging.INFO} | more
    )


def message(text: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, "levelno": level})


def test_every_stage_has_its_line(capfd, monkeypatch):
    """With the name of its result, and the models that ask for it."""
    shown = view(monkeypatch)
    shown.show(event("job_info", 99, "all", output=[]))
    for number, (name, stage) in enumerate(STAGES.items()):
        monkeypatch.setitem(MODELS_OF, stage.path_of("eng-1"), ["eng", "more"])
        shown.show(event("job_info", number, name))
    lines = [line.split(maxsplit=2)[1:] for line in capfd.readouterr().err.splitlines()]
    of = {name: "eng-1" if stage.named else "eng-1 (eng, more)" for name, stage in STAGES.items()}
    assert lines == [[name, f"{of[name]}  begins".replace("eng-1  b", "eng-1     b")] for name in STAGES]


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
    assert [(line.split()[1], line.partition(" s  ")[2]) for line in lines] == [
        ("failed", "too little text"),
        ("stopped", "step 3"),
        ("failed", "job 7 FAILED"),
    ]


def test_a_job_that_was_killed_is_said_to_be(capfd, monkeypatch):
    """Its log knows nothing of it."""
    shown = view(monkeypatch)
    for end in (
        "died with <Signals.SIGKILL: 9>.",
        "returned non-zero exit status 137.",
        "returned non-zero exit status 1.",
    ):
        text = f"RuleException:\nCalledProcessError in file \"/x/rules/train.smk\", line 36:\nCommand 'a\nb' {end}"
        shown.show(message(text, logging.ERROR))
    assert capfd.readouterr().err.splitlines() == ["train was ended by SIGKILL", "train was ended by signal 9"]


def test_a_message_of_snakemake_is_shown_once(capfd, monkeypatch):
    """It says at each look at its jobs that it was interrupted."""
    shown, quiet = view(monkeypatch), view(monkeypatch, quiet={"all"})
    texts = ["Will exit after finishing currently running jobs", "Select jobs to execute...", "Terminating processes"]
    for text in texts * 2:
        shown.show(message(text))
        quiet.show(message(text))
    quiet.show(message("disk full", logging.WARNING))
    assert capfd.readouterr().err.splitlines() == [texts[0], texts[2], "disk full"]


@pytest.mark.parametrize("complete", [True, False])
def test_the_end_says_what_failed_and_what_continues(folder, complete):
    """A stage that a signal ended has not failed."""
    graph, stopped = Graph(Configuration([("test", {})])), Path("stopped.log")
    stopped.write_text("12:00:00 step 5 is saved; the same command continues from there\n")
    Path("failed.log").write_text("\n".join(f"12:00:00 line {i}" for i in range(9)) + "\n12:00:01 error: no text\n")
    jobs = [FailedJob("train", "eng-1", [stopped], 1), FailedJob("corpus", "deu-1", [Path("failed.log")], 2)]
    gone = FailedJob("export", "eng-1", [Path("no.log")], 1)
    end = " interrupted: the same command continues from here" * (not complete)
    for ended in ([], jobs[:1]):
        text = summary(graph, ["eng", "deu"], ended, complete, 61)
        assert text.splitlines()[-1] == f"0 of 2 models converted{',' * (not complete)}{end} in 1:01"
    first, *lines, last = summary(graph, ["eng", "deu"], [*jobs, gone], False, 61).strip().splitlines()
    assert first == "0 of 2 models converted, 2 jobs failed:"
    assert lines[:2] == ["  corpus deu-1: 2 attempts", "    failed.log:"] and len(lines) == 2 + 5
    assert lines[-1] == "      12:00:01 error: no text"
    assert last.startswith("  export eng-1: 1 attempt; it left no log")
