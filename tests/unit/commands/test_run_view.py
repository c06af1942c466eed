"""What a run shows on the terminal: little, and what matters."""

import json
import logging
import os
import re
import subprocess
import sys
from types import SimpleNamespace

from babelmill.commands.terminal.key_figures import scores
from babelmill.commands.terminal.run_summary import idle_gpus
from babelmill.commands.terminal.run_view import AnnouncedJob, RunView, would_run
from babelmill.core.bars import TERMINAL
from babelmill.evaluation.metrics import described
from babelmill.runtime.cost import has_gpu
from babelmill.stages import STAGES as STAGES_BY_NAME
from babelmill.stages import TO_CONVERTED

HUB = ("download", "base_model", "identifier", "suite", "score", "task", "tune")  # no model of the test has them
STAGES = [stage for stage in TO_CONVERTED if stage not in HUB]


def test_a_line_as_each_stage_begins_and_ends(built):
    lines = (built / "output.txt").read_text().splitlines()
    assert len(lines) <= 45
    for model in ("eng", "deu"):
        for stage in STAGES:
            begins = [line for line in lines if re.search(rf"^[\d:]+ +{stage} +{model} +begins$", line)]
            ends = [
                line
                for line in lines
                if re.search(rf"^[\d:]+ +\[\d+/14\] +{stage} +{model} +(\d+ s|\d+:\d\d)  \S", line)
            ]
            assert (len(begins), len(ends)) == (1, 1), (stage, model, lines)
    counts = [int(count) for count in re.findall(r"\[(\d+)/14\]", "\n".join(lines))]
    assert counts == list(range(1, 15))


def test_the_figures_are_those_of_the_results(built):
    output = (built / "output.txt").read_text()
    documents = json.loads((built / "results/of/eng/corpus/manifest.json").read_text())["figures"]["documents"]
    assert re.search(rf"corpus +eng .* {documents['train']} documents, .*; {documents['validation']} for valid", output)
    loss = json.loads((built / "results/of/eng/train/metrics.jsonl").read_text().splitlines()[-1])["loss"]
    assert re.search(rf"train +eng .* 8 steps, 2.0 k tokens, [0-9.k ]+ words, validation loss {loss:.3f}\n", output)
    scores = json.loads((built / "results/of/eng/evaluate/evaluation.json").read_text())["variants"]["ema"]
    shown = {mode: f"{score['value']:.3f} ± {score['standard_error']:.3f} {mode}" for mode, score in scores.items()}
    bits = f"{shown['causal']}, {shown['masked']}"
    assert re.search(rf"evaluate +eng .* bits per byte {bits}.*\n", output)
    end = output[output.index("\n\nmodel ") :]
    assert re.search(rf"\neng +33.5 k +{bits} .*  converted/eng\n", end)
    assert re.search(r"\n2 of 2 models converted in [\d:]+( s)?\nComplete log\(s\): /", end)


def test_a_score_comes_with_its_error_and_its_sample(tmp_path):
    """The default variant's: the one that has no file of its own."""
    (tmp_path / "model.main.safetensors").touch()
    variants = {"main": {"causal": {"value": 9.0}}, "ema": {"causal": {"value": 2.5, "standard_error": 0.0123}}}
    evaluation = {"metrics": described(["causal"]), "variants": variants, "documents": {"scored": 100, "of": 1234}}
    assert scores(evaluation, tmp_path) == "2.500 ± 0.012 causal (100 of 1,234 documents)"
    evaluation["documents"] = {"scored": 9, "of": 9, "changed": 2}
    assert scores(evaluation, tmp_path) == "2.500 ± 0.012 causal (the tokenizer changes 2 of 9)"


def test_messages_of_stages_and_of_snakemake_are_in_the_logs(built):
    output = (built / "output.txt").read_text()
    assert "M parameters" in (built / "logs/train/eng.log").read_text() and "M parameters" not in output
    (log,) = (built / ".snakemake/log").glob("*.log")
    for words in ("Building DAG", "Job stats", "reason: ", "Finished jobid", "2 of 2 models converted"):
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


def view_of_run(monkeypatch) -> RunView:
    """The view of a run that is no dry run."""
    monkeypatch.setenv(TERMINAL, "")  # which the view sets for the stages
    return RunView(dry_run=False, quiet=False, commands=False, verbose=False)


def event(name: str, number: int, rule: str, **more) -> logging.LogRecord:
    """An event of Snakemake about a job of the model eng."""
    about = {"event": name, "jobid": number, "rule_name": rule, "wildcards": {"model": "eng"}, "output": ["x"]}
    return logging.makeLogRecord(about | {"benchmark": None, "reason": "", "local": True} | more)


def test_a_job_that_was_killed_is_said_to_be(capfd, monkeypatch):
    """Its log knows nothing of it."""
    view = view_of_run(monkeypatch)
    for end in (
        "died with <Signals.SIGKILL: 9>.",
        "returned non-zero exit status 137.",
        "returned non-zero exit status 1.",
    ):
        text = f"RuleException:\nCalledProcessError in file \"/x/rules/train.smk\", line 36:\nCommand 'a\nb' {end}"
        view.show(logging.LogRecord("snakemake", logging.ERROR, "", 0, text, None, None))
    lines = [line.split(maxsplit=1)[1] for line in capfd.readouterr().err.splitlines()]
    assert lines == ["train was ended by SIGKILL", "train was ended by signal 9"]


def test_a_job_that_was_interrupted_stops_with_its_last_words_if_it_has_any(capfd, monkeypatch, tmp_path):
    view = view_of_run(monkeypatch)
    view.show(
        logging.LogRecord("snakemake", logging.WARNING, "", 0, "Terminating processes on user request", None, None)
    )
    for number, text in enumerate(("12:00:00 eng: loading\n", "")):
        (tmp_path / "log").write_text(text)
        view.show(event("job_info", number, "export"))
        view.show(event("job_error", number, "export", log=[str(tmp_path / "log")], rule_msg=""))
    output = [line.split("eng ")[1].strip() for line in capfd.readouterr().err.splitlines() if "stops" in line]
    assert output == ["stops: eng: loading", "stops"]


def test_a_training_without_its_gpu_says_so_once(capfd, monkeypatch):
    view = view_of_run(monkeypatch)
    for number, (rule, gpus) in enumerate([("train", 0), ("evaluate", 1), ("train", 1), ("train", 1)]):
        view.show(event("job_info", number, rule, resources=SimpleNamespace(gpu=gpus)))
    output = [line.split("eng ")[1].strip() for line in capfd.readouterr().err.splitlines()]
    note = "begins" if has_gpu() else "begins on the CPU: this machine has no GPU"
    assert output == ["begins", "begins", note, "begins"]


def test_every_stage_has_its_line(capfd, monkeypatch):
    view = view_of_run(monkeypatch)
    for number, (name, stage) in enumerate(STAGES_BY_NAME.items()):
        wildcards = dict.fromkeys(stage.wildcards, "1")
        assert AnnouncedJob.announced(event("job_info", number, name, wildcards=wildcards)).folder == stage.path(
            "1", ".".join("1" for each in stage.wildcards if each != stage.of)
        )
        view.show(event("job_info", number, name, wildcards=wildcards))
    lines = capfd.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == [*STAGES_BY_NAME]


def test_a_dry_run_says_after_which_step_training_goes_on(workspace, monkeypatch):
    monkeypatch.chdir(workspace.path)
    of_train, *others = (
        AnnouncedJob(stage, "eng", True, None, None, "Missing output files: x", 0)
        for stage in ("train", "export", "shards")
    )
    assert (
        would_run([of_train, others[0]]).splitlines()[1].endswith("eng: results not made yet, continues after step 8")
    )
    assert "continues" not in would_run([of_train, *others]), "its tokens are made again"


def jobs(reasons: dict[str, str]) -> list[AnnouncedJob]:
    """All stages of the models that are named, each with its model's reason."""
    return [
        AnnouncedJob(stage, model, True, None, None, reason, 0) for model, reason in reasons.items() for stage in STAGES
    ]


def test_a_dry_run_is_short_whatever_the_reasons_are():
    codes = [f"{first}{second}x" for first in "abcdefghi" for second in "abcde"]
    files = ", ".join(f"texts/{number}.txt" for number in range(100))
    different = {code: f"Updated input files: results/settings/{code}/a.json, {code}.txt, {files}" for code in codes}
    for reasons in (
        dict.fromkeys(codes, "Missing output files: a, b; Input files updated by another job: c"),
        different,
    ):
        table = would_run(jobs(reasons)).splitlines()
        assert len(table) <= 60 and max(map(len, table)) <= 110
        assert sum(int(line.split()[1]) for line in table[1:-1]) == 45 * len(STAGES)
    assert len(would_run(jobs({"eng": different["aax"]})).splitlines()) <= 25


def test_the_columns_of_a_dry_run_are_aligned():
    longest = AnnouncedJob("submission", "eng", True, None, None, "Missing output files: x", 0)
    lines = would_run([*jobs({"eng": "Missing output files: x"}), longest]).splitlines()[1:-1]
    assert len({line.index("1  eng: ") for line in lines}) == 1, lines


def test_a_dry_run_gives_reasons():
    settings = {model: f"Updated input files: results/settings/{model}/train.json" for model in ("eng", "deu")}
    (line,) = (line for line in would_run(jobs(settings)).splitlines() if line.startswith("  train "))
    assert line.split() == ["train", "2", "deu,", "eng:", "results/settings/*/train.json", "changed"]
    line = would_run(jobs({"eng": settings["eng"]})).splitlines()[1]
    assert line.endswith("eng: results/settings/eng/train.json changed")
    assert would_run(jobs({"eng": "Forced execution"})).splitlines()[1].endswith("eng: Forced execution")
    assert "`babelmill why`" in would_run(jobs(settings)) and "why" not in would_run(jobs({"eng": "Forced execution"}))


def test_a_run_that_leaves_gpus_idle_says_so(monkeypatch):
    """Not if it was given all, or sees none: a profile cannot know how many a machine has."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert idle_gpus(1).startswith(
        "this run uses 1 of this machine's 4 GPUs: to use all, put --resources gpu=4 at the end"
    )
    assert idle_gpus(4) == ""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert idle_gpus(0) == idle_gpus(1) == ""


def test_the_end_of_an_interrupted_run_is_announced_once(capsys, monkeypatch):
    """Snakemake says so at each look at its jobs; a second Ctrl-C is another thing."""
    view = view_of_run(monkeypatch)
    first, second = (
        "Will exit after finishing currently running jobs (scheduler).",
        "Terminating processes on user request",
    )
    for text in (first, first, second, first, second):
        view.show(logging.makeLogRecord({"msg": text, "levelno": logging.INFO}))
    assert capsys.readouterr().err.splitlines() == [first, second]
