"""The stages `task` and `tune`: from a name in `evaluation.tasks` to scores, and what is not done twice."""

import copy
import random
import re
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from transformers import pipeline

from babelmill.core import manifest
from babelmill.core.files import read_json
from conftest import SMALL
from helpers.results.fields import undocumented
from helpers.stages import job_like

pytestmark = pytest.mark.slow

OWN = {
    "train": ["train.tsv"],
    "test": ["test.tsv"],
    "language": "eng",
    "text": "{sentence}",
    "label": "class",
    "tuning": {"epochs": 30, "batch": 16, "learning_rate": 0.01, "longest": 32, "held_out": 0.4},
}


def write_rows(folder, name: str, count: int, seed: int) -> None:
    """Sentences that tell of a fox or of wizards; the class says of whom."""
    lines, draw = ["sentence\tclass"], random.Random(seed)
    for _ in range(count):
        kind = draw.randrange(2)
        words = ["the", ("fox", "wizards")[kind], *draw.choices(["jumps", "over", "a", "lazy", "dog", "boil"], k=3)]
        label = ("animal", "person")[kind]
        lines.append(f"{' '.join(words)}\t{label}")
    (folder / name).write_text("\n".join(lines) + "\n")


def configured(*tasks, own=None, **evaluation) -> dict:
    values = copy.deepcopy(SMALL) | {"tasks": {"mine": OWN | (own or {})}}
    values["models"] = {"eng": {"evaluation": {"tasks": list(tasks), "max_documents": 10} | evaluation}}
    return values


@pytest.fixture
def rows(workspace):
    write_rows(workspace.path, "train.tsv", 96, 1)
    write_rows(workspace.path, "test.tsv", 40, 2)
    return workspace


def test_a_model_is_tuned_and_a_new_seed_repeats_nothing(rows):
    """In the small workflow, whose model of eng is built: scores, predictions, the card, and the rows of the dry run."""
    rows.configure(configured("mine", task_seeds=[1]))
    assert rows.would_run() == {("task", "mine_eng"), ("tune", "mine_eng"), ("convert", "eng")}
    rows.snakemake("converted/eng")
    folder = rows.path / "results/of/eng/tune/mine.1"
    assert manifest.read(folder)["figures"]["summary"] == "accuracy: eng 100.0 (most frequent class 42.5); 90 steps"
    shown = manifest.read(rows.path / "results/of/eng/task/mine.eng")["figures"]["summary"]
    assert shown == "96 rows to learn from, 40 to test, 2 classes"
    scores, predictions = read_json(folder / "scores.json"), pq.read_table(folder / "predictions.parquet")
    assert not undocumented(folder / "scores.json", "scores.json of a task")
    eng = scores["languages"]["eng"]
    assert scores["protocol"] == "sound" and eng["chosen_by"] == "held-out rows" and eng["majority"] is None
    assert eng["score"] == eng["metrics"]["accuracy"]["score"] == 1.0, "what can be learnt is learnt"
    assert eng["rows"] == {"train": 58, "chosen_by": 38, "scored": 40, "test": 40}
    assert predictions["prediction"].to_pylist() == predictions["label"].to_pylist() and len(predictions) == 40
    assert not (folder / "model").exists() and not [*(rows.path / "results/unfinished/tune").glob("*")]
    card = (rows.path / "converted/eng/README.md").read_text()
    assert "## Fine-tuning" in card and "| mine | English | sound" in card
    assert "100.0 (91.2 to 100.0), most frequent class 42.5, 1 seed of 90 steps, n = 40" in card
    assert "fine-tuned, sound protocol, 1 seed" in card, "the model-index"
    assert eng["test_rows_in_train"] > 0 and f"| {eng['test_rows_in_train']} of 40 test rows also trained on |" in card
    assert rows.would_run() == set()
    rows.configure(configured("mine", task_seeds=[1, 2]))
    dry = rows.snakemake("converted/eng", "--dry-run").stdout
    assert dry.count("rule tune:") == 1 and rows.would_run() == {("tune", "mine_eng"), ("convert", "eng")}


def test_killed_and_continued(rows):
    """Killed during the training: the same command goes on after the last epoch, to the same predictions."""
    rows.configure(configured("mine", task_seeds=[1]))
    rows.snakemake("converted/eng", "--until", "tune")
    whole = (rows.path / "results/of/eng/tune/mine.1/predictions.parquet").read_bytes()
    command = job_like(rows.path, "results/of/eng/tune/mine.1")
    process = subprocess.Popen([sys.executable, *command], cwd=rows.path, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "epoch 2:" in line:
            process.kill()
            break
    assert process.wait() == -signal.SIGKILL
    done = rows.python(*command)
    assert done.returncode == 0 and re.search(r"going on after epoch \d+ of 30", done.stderr)
    assert (rows.path / "results/tune/again/predictions.parquet").read_bytes() == whole


def test_report_and_experiment_show_tuned_scores(rows):
    """A mean over seeds beside the most frequent class; in an experiment, a column of its tables."""
    values = configured("mine", task_seeds=[1, 2])
    values["experiments"] = {"seeds": {"base": "eng", "seeds": 1}}
    rows.configure(values)
    rows.snakemake("reports/eng.html", "experiments/seeds")
    assert "accuracy, sound" in (rows.path / "reports/eng.html").read_text()
    (line,) = [line for line in (rows.path / "reports/eng.csv").read_text().splitlines() if ",mine," in line]
    assert line.startswith("eng,eng,mine,fine-tuned,all,all,1,share,40,1,1,0.425,2 seeds")
    assert "accuracy x 100, fine-tuned, sound" in (rows.path / "experiments/seeds/table.md").read_text()


def test_a_model_from_anywhere(rows):
    """As the stage does it: the same predictions for the converted folder, beside others; bad words in one line.

    A second time, finished seeds are left alone. The weights that the stage keeps load, and are the tuned ones.
    """
    rows.configure(configured("mine", task_seeds=[1], keep_tuned=True))
    rows.snakemake("converted/eng", "--until", "tune")
    command = ["-m", "babelmill", "tune", "converted/eng", "--task", "mine", "--seed", "1", "--trust-remote-code"]
    done = rows.python(*command)
    assert done.returncode == 0 and done.stdout.strip() == "tuned/eng/mine/1", done.stderr
    ours, theirs = (
        pq.read_table(rows.path / folder / "predictions.parquet")
        for folder in ("results/of/eng/tune/mine.1", "tuned/eng/mine/1")
    )
    assert ours["prediction"] == theirs["prediction"]
    again = rows.python(*command)
    assert again.stdout == done.stdout and "epoch" not in again.stderr
    assert "tuned/eng/mine/1 is finished" in again.stderr
    folder = rows.path / "results/of/eng/tune/mine.1/model/eng"
    classify = pipeline("text-classification", str(folder), trust_remote_code=True)
    texts = [line.split("\t")[0] for line in (rows.path / "test.tsv").read_text().splitlines()[1:]]
    assert [each["label"] for each in classify(texts)] == ours["prediction"].to_pylist()
