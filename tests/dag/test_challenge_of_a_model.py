"""A model of a challenge in the workflow: the jobs that one line of configuration gives, and what is refused."""

import json

import pytest

from babelmill.config.datasets import DATA
from babelmill.config.entries import columns_of
from babelmill.config.resolve import Configuration
from babelmill.config.submissions import submission_of
from babelmill.stages import LABEL
from conftest import Workspace, write_texts

pytestmark = pytest.mark.slow

CODE = "babylm_strict_small"
LOCAL = {"evaluation_data": "evaluation_data"}
WORD = "1\tfox\t_\tNOUN\t_\t_\t_\t_\t_\t_\n\n"  # CoNLL-U
LOCAL |= {"languages": {CODE: {"corpus": {"files": ["texts/eng/*.txt"], "validation_files": ["texts/dev/*.txt"]}}}}


def values(challenge=CODE, **entry) -> dict:
    return {"models": {"mine": {"preset": ["auto", challenge]} | entry}}


ONE_LINE = Configuration([("config/config.yaml", values())])


def write_tasks(folder, configuration):
    """Write files for a model's fine-tuning tasks, with their columns."""
    for name in configuration.model("mine").tuned:
        task = configuration.task(name)
        columns = {column: "" for text in (task.text, task.pair) if text for column in columns_of(text)}
        for pattern in task.train + task.test:
            for language in task.covered.values():
                path = folder / pattern.removeprefix(DATA).replace("{language}", language).replace("**", "made")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(columns | {str(task.label): 0}) + "\n" if task.kind != "tagging" else WORD)


@pytest.fixture
def fresh(tmp_path) -> Workspace:
    """A workspace in which nothing has been run, with text in place of the Hub's, and files in place of the tasks'."""
    for name in ("eng", "dev"):
        write_texts(tmp_path / "texts" / name, "eng", documents=3)
    for suite in ONE_LINE.model("mine").scored:
        for pattern in ONE_LINE.suite(suite).challenge_files_of("eng"):
            path = tmp_path / "evaluation_data" / pattern.replace("*", "made")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}\n")
    for challenge in ("babylm_strict_small", "babylm_multilingual"):
        write_tasks(tmp_path / "evaluation_data", Configuration([("config/config.yaml", values(challenge))]))
    return Workspace(tmp_path)


def test_one_line_of_configuration_trains_and_scores(fresh):
    fresh.configure(values() | LOCAL)
    suites, evaluation = list(ONE_LINE.model("mine").scored), ONE_LINE.model("mine").evaluation
    jobs = fresh.would_run(targets=["converted/mine"])
    stages = ("corpus", "tokenizer", "shards", "train", "export", "evaluate")
    assert jobs == {
        ("convert", "mine"),
        *((stage, CODE) for stage in stages),
        *((stage, f"{suite}_{CODE}"[:LABEL]) for stage in ("suite", "score") for suite in suites),
        *((stage, f"{task}_{CODE}"[:LABEL]) for stage in ("task", "tune") for task in evaluation.tasks),
    }
    assert "no snapshot" not in fresh.python("-m", "babelmill", "plan", "mine", check=True).stdout


def test_a_submission_is_one_command(fresh):
    fresh.configure(values() | LOCAL)
    converted = fresh.would_run(targets=["converted/mine"])
    assert fresh.would_run(targets=["submissions/mine.json"]) == converted | {("submission", "mine")}


def test_a_suite_of_ones_own_with_the_name_of_a_shipped_one_is_told_apart():
    suite = {"files": ["mine.tsv"], "language": "eng", "good": "good", "bad": "bad", "paradigm": "paradigm"}
    own = Configuration([("config/config.yaml", values() | {"suites": {"blimp_filtered": suite, "mine": suite}})])
    assert submission_of(own, "mine")["own"] == ["blimp_filtered"]
    assert "own" not in submission_of(ONE_LINE, "mine")


def test_a_run_that_ends_before_the_last_point_is_told_so(fresh):
    fresh.configure(values(train={"max_words": "30M"}) | LOCAL)
    plan = fresh.python("-m", "babelmill", "plan", "mine").stdout
    assert "mine: no snapshot chck_40M, chck_50M, chck_60M and 4 more: it reads about 30 million words." in plan


def test_a_mixture_reads_the_challenges_three_texts(fresh):
    fresh.configure(values("babylm_multilingual") | {"evaluation_data": "evaluation_data"})
    jobs = fresh.would_run(targets=["converted/mine"])
    codes = {f"babylm_multilingual_{code}" for code in ("eng", "nld", "zho")}
    assert {name for rule, name in jobs if rule == "download"} == codes
    assert {name for rule, name in jobs if rule == "corpus"} == codes
    assert {name for rule, name in jobs if rule == "train"} == {"+".join(sorted(codes))[:LABEL]}


def test_what_breaks_a_challenge_is_one_clear_error(fresh):
    fresh.configure(LOCAL | values() | {"evaluation_data": ""})
    done = fresh.snakemake("converted/mine", "--dry-run", check=False)
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    said = "evaluation_data = '': model mine needs files of the BabyLM challenge"
    assert (done.stdout + done.stderr).count(said) == 1 and "  rte ((Super)GLUE): full_eval/" in done.stderr
