"""What runs when: a result that is missing, and nothing else (for each key, see `unit/config/test_settings_files.py`)."""

import base64
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from conftest import ROOT, SMALL, Workspace

AFTER_TRAIN = {"train", "export", "evaluate", "convert"}
ALL = AFTER_TRAIN | {"corpus", "tokenizer", "shards"}


def changed(section: str, **values) -> dict:
    """The small configuration with other values in a section of the model eng."""
    return SMALL | {"models": {"eng": {section: values}}}


def stages(jobs: set[tuple[str, str]]) -> set[str]:
    return {stage for stage, name in jobs if name == "eng"}


def result(workspace: Workspace, stage: str) -> Path:
    return (workspace.path / "results/of/eng" / stage).resolve()


def log_of_training(workspace: Workspace) -> str:
    return (workspace.path / f"logs/train/{result(workspace, 'train').name}.log").read_text()


def shuffle_times(path: Path) -> None:
    """Give all files other times, some of them in the future."""
    now = time.time()
    for number, each in enumerate(sorted(path.rglob("*"))):
        os.utime(each, (now, now + (number * 7919 % 13 - 6) * 3600), follow_symlinks=False)


def copied(path: Path) -> Path:
    subprocess.run(["cp", "-r", path, path.with_name("copy")], check=True)
    return path.with_name("copy")


@pytest.mark.parametrize("move", [lambda path: path, copied], ids=["here", "cp"])
def test_times_copies_and_what_snakemake_remembers_have_no_say(workspace, move):
    moved = Workspace(move(workspace.path))
    shuffle_times(moved.path)
    shutil.rmtree(moved.path / ".snakemake", ignore_errors=True)
    assert moved.would_run() == set()
    for profile in ("local", "slurm"):
        done = moved.snakemake("converted/eng", "-n", "--profile", ROOT / "profiles" / profile)
        assert "Nothing to be done" in done.stdout


def test_what_snakemake_calls_incomplete_runs_only_if_its_manifest_is_missing(workspace):
    """As after a kill of Snakemake between the end of a job and its own note of it."""
    train = result(workspace, "train").relative_to(workspace.path) / "manifest.json"
    marks = workspace.path / ".snakemake/incomplete"
    marks.mkdir(parents=True, exist_ok=True)
    (marks / base64.b64encode(str(train).encode()).decode()).touch()
    workspace.configure(changed("evaluation", max_documents=5))
    assert stages(workspace.would_run("--rerun-incomplete")) == {"evaluate", "convert"}
    workspace.configure(SMALL)
    assert workspace.would_run() == set()


def test_results_of_a_colleague_are_used_where_they_fit(workspace, tmp_path):
    mine = Workspace(tmp_path / "mine")
    mine.configure(SMALL | {"models": {"mine": {"languages": ["eng"], "train": {"seed": 7}}}})
    shutil.copytree(workspace.path / "texts", mine.path / "texts")
    shutil.copytree(workspace.path / "results", mine.path / "results", symlinks=True)
    assert mine.would_run(targets=["converted/eng"]) == {("convert", "eng")}
    assert stages(mine.would_run(targets=["converted/mine"])) == AFTER_TRAIN - {"convert"}


def test_shared_results_that_were_deleted_start_no_finished_model(workspace):
    for stage in ("corpus", "tokenizer", "shards", "train", "export", "evaluate"):
        shutil.rmtree(workspace.path / "results" / stage)
    assert workspace.would_run() == set()
    workspace.configure(SMALL | {"models": {"other": {"languages": ["eng"], "train": {"seed": 7}}}})
    jobs = workspace.would_run(targets=["converted/eng", "converted/other"])
    assert jobs == {(stage, "eng") for stage in ALL - {"convert"}} | {("convert", "other")}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-R", "train"], AFTER_TRAIN),
        (["-R", "shards", "--until", "shards"], {"shards"}),
        (["--force"], {"convert"}),
        (["--forceall"], ALL),
        (["--until", "train"], set()),
    ],
)
def test_snakemakes_own_options_do_what_they_say(workspace, arguments, expected):
    assert stages(workspace.would_run(*arguments, targets=["converted/eng"])) == expected


def test_an_interrupted_training_continues_though_it_is_forced(workspace):
    checkpoints = workspace.path / "results/checkpoints" / result(workspace, "train").name
    assert checkpoints.is_dir()
    workspace.snakemake("converted/eng", "--touch", "-R", "train")
    assert checkpoints.is_dir(), "nothing runs, so nothing begins anew"
    shutil.rmtree(result(workspace, "train"))  # as Snakemake does before each attempt
    workspace.snakemake("converted/eng", "-R", "train", "--until", "train")
    assert "already trained" in log_of_training(workspace)


def test_a_run_that_the_lock_keeps_out_changes_no_settings(workspace):
    """The other run's jobs read them. Those of another model are written: the lock does not keep it out."""
    lock = workspace.path / ".snakemake/locks/0.output.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text("converted/eng\n")
    before = {name: named_settings(workspace, name) for name in ("eng", "deu")}
    workspace.configure(SMALL | {"card": {"license": "cc-by-4.0"}, "run": SMALL["run"] | {"log_every": 3}})
    assert workspace.would_run(targets=["converted/eng"]) == {("convert", "eng")}, "a dry run needs no lock"
    done = workspace.snakemake("converted/eng", check=False)
    assert done.returncode == 1 and "cannot be locked" in done.stdout + done.stderr
    assert named_settings(workspace, "eng") == before["eng"]
    workspace.snakemake("converted/deu")
    assert named_settings(workspace, "deu") != before["deu"] and named_settings(workspace, "eng") == before["eng"]
    lock.parent.mkdir(exist_ok=True)
    lock.write_text("converted/eng\n")  # a Snakemake that ends deletes all locks
    refused = workspace.python("-m", "babelmill", "clean", "--remove")
    assert refused.returncode == 1 and "a run works in this folder" in refused.stderr
    lock.unlink()
    workspace.babelmill("clean", "--remove")


def named_settings(workspace: Workspace, model: str) -> str:
    return (workspace.path / f"results/settings/convert/{model}.json").read_text()


def test_a_forced_training_begins_anew(workspace):
    before = (result(workspace, "train") / "manifest.json").read_text()
    workspace.snakemake("converted/eng", "-R", "train", "--profile", ROOT / "profiles/local")
    assert "already trained" not in log_of_training(workspace)
    assert (result(workspace, "train") / "manifest.json").read_text() != before and workspace.would_run() == set()


@pytest.mark.parametrize(
    ("stage", "name", "reader"),
    [("corpus", "train.parquet", "tokenizer"), ("export", "model.safetensors", "evaluate")],
)
def test_a_half_copied_result_is_one_line_that_names_the_folder_and_deleting_it_is_enough(
    workspace, stage, name, reader
):
    """A file of a result is cut, and something that reads it is asked for."""
    path = (folder := result(workspace, stage)) / name
    path.write_bytes(path.read_bytes()[:-1])
    shutil.rmtree(result(workspace, reader))
    workspace.configure(changed("card", description="another"))
    done = workspace.snakemake("converted/eng", "--force", "--profile", ROOT / "profiles/local", check=False)
    named = f"delete results/{stage}/{folder.name} and run the workflow again"
    assert done.returncode == 1 and named in done.stderr, done.stderr
    shutil.rmtree(folder)
    workspace.snakemake("converted/eng")
    assert workspace.would_run() == set()


def test_a_converted_model_that_lost_a_file_is_an_error(workspace):
    for content, problem in ((None, "missing"), ("{}", "not whole")):
        path = workspace.path / "converted/eng/config.json"
        path.write_text(content) if content else path.unlink()
        done = workspace.snakemake("converted/eng", check=False)
        line = f"error: converted/eng/config.json is {problem}; delete the folder converted/eng"
        assert done.returncode == 1 and line in done.stdout + done.stderr


@pytest.mark.slow
def test_a_training_that_could_not_keep_its_checkpoints_begins_nothing(workspace):
    """A package that only a later job would miss is missed before anything runs."""
    without_it = f'import sys\nsys.modules["s3fs"] = None  # as if it were not installed\ninclude: "{ROOT}/Snakefile"\n'
    (workspace.path / "Snakefile").write_text(without_it)
    elsewhere = {"run": SMALL["run"] | {"checkpoint_mirror": "s3://bucket/prefix"}}
    workspace.configure(changed("tokenizer", vocab_size=300) | elsewhere)
    eng, deu = (
        workspace.snakemake(f"converted/{model}", "--snakefile", workspace.path / "Snakefile", check=False)
        for model in ("eng", "deu")
    )
    line = "error: run.checkpoint_mirror: s3://bucket/prefix needs the package s3fs, in the environment of all jobs: pip install"
    assert eng.returncode == 1 and line in eng.stderr
    assert "rule tokenizer" not in eng.stdout + eng.stderr, "no job has begun"
    assert "Nothing to be done" in deu.stderr, "it is trained already"


def test_back_to_an_earlier_setting_runs_convert_alone(workspace):
    workspace.configure(changed("evaluation", max_documents=5))
    workspace.snakemake("converted/eng")
    workspace.configure(SMALL)
    assert workspace.would_run() == {("convert", "eng")}
