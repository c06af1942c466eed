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
from babelmill.graph import MODELS_OF
from babelmill.runtime.cost import has_gpu
from babelmill.stages import STAGES

OF_A_MODEL = ["corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert"]


def test_a_line_as_each_stage_begins_and_ends(built):
    lines = (built / "output.txt").read_text().splitlines()
    assert len(lines) <= 45
    for model in ("eng", "deu"):
        for stage in OF_A_MODEL:
            name = model if stage == "convert" else rf"{model}-[0-9a-f]{{10}} \({model}\)"
            begins = [line for line in lines if re.search(rf"^[\d:]+ +{stage} +{name} +begins$", line)]
            end = rf"^[\d:]+ +\[\d+/14\] +{stage} +{name} +(\d+ s|\d+:\d\d)  \S"
            ends = [line for line in lines if re.search(end, line)]
            assert (len(begins), len(ends)) == (1, 1), (stage, model, lines)
    counts = [int(count) for count in re.findall(r"\[(\d+)/14\]", "\n".join(lines))]
    assert counts == list(range(1, 15))


def test_the_figures_are_those_of_the_results(built):
    output = (built / "output.txt").read_text()
    documents = json.loads((built / "results/of/eng/corpus/manifest.json").read_text())["figures"]["documents"]
    assert re.search(rf"corpus +eng-.* {documents['train']} documents, .*; {documents['validation']} for valid", output)
    loss = json.loads((built / "results/of/eng/train/metrics.jsonl").read_text().splitlines()[-1])["loss"]
    assert re.search(rf"train +eng-.* 8 steps, 2.0 k tokens, [0-9.k ]+ words, validation loss {loss:.3f}\n", output)
    scores = json.loads((built / "results/of/eng/evaluate/evaluation.json").read_text())["variants"]["ema"]
    shown = {mode: f"{score['value']:.3f} ± {score['standard_error']:.3f} {mode}" for mode, score in scores.items()}
    bits = f"{shown['causal']}, {shown['masked']}"
    assert re.search(rf"evaluate +eng-.* bits per byte {bits}.*\n", output)
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
    (log,) = (built / "logs/train").glob("eng-*.log")
    assert "M parameters" in log.read_text() and "M parameters" not in output
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
    """With the name of its result, and the models that ask for it."""
    view = view_of_run(monkeypatch)
    for number, (name, stage) in enumerate(STAGES.items()):
        monkeypatch.setitem(MODELS_OF, stage.path_of("eng-1"), ["eng", "more"])
        view.show(event("job_info", number, name, wildcards={"name": "eng-1"}))
    lines = capfd.readouterr().err.splitlines()
    assert [line.split()[1:] for line in lines] == [[name, "eng-1", "(eng,", "more)", "begins"] for name in STAGES]


def test_a_dry_run_is_short_however_many_jobs_there_are():
    codes = [f"{first}{second}x" for first in "abcdefghi" for second in "abcde"]
    jobs = [AnnouncedJob(stage, name, True, None, 0) for name in codes for stage in reversed(OF_A_MODEL)]
    heading, *lines, end = would_run(jobs).splitlines()
    assert heading == "315 jobs would run:" and "`babelmill why MODEL`" in end
    assert [line.split()[:2] for line in lines] == [[stage, "45"] for stage in OF_A_MODEL]
    assert max(map(len, lines)) <= 110 and len({line.index("aax, abx, ") for line in lines}) == 1
    assert all(re.search(r", \w\w\w and \d+ more$", line) for line in lines)
    assert would_run(jobs[:1]).splitlines()[1].split() == ["convert", "1", "aax"]


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
