"""Content decides what runs, and times obey: results that were copied, restored, or made by a clock that is ahead."""

import copy
import itertools
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from babelmill import cli
from babelmill.config import loading
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.file_times import outputs_of, set_time_of_settings, time_of
from babelmill.graph import Job, explain, jobs_of
from babelmill.stages import STAGES
from conftest import ROOT, SMALL, Workspace, write_texts
from helpers.damage import flip_a_bit, without_rights
from helpers.programs.prepared import run_python
from helpers.results.finished import finish, finish_report

pytestmark = pytest.mark.slow

AFTER_TOKENIZER = {"tokenizer", "shards", "train", "export", "evaluate", "score", "convert"}
VALUES = copy.deepcopy(SMALL) | {
    "targets": ["two", "more"],
    "evaluation": {"documents": 10, "suites": ["english_basics"]},
    "models": {"two": {"languages": ["eng", "deu"]}, "more": {"languages": ["eng"], "model": {"source": "eng"}}},
}


@pytest.fixture
def tree(folder) -> Workspace:
    """A finished tree of a mixture, of a model that continues another one, and a report. Snakemake remembers nothing."""
    for language in ("eng", "deu"):
        write_texts(folder / "texts" / language, language, documents=3)
    workspace = Workspace(folder)
    workspace.configure(VALUES)
    finish(loading.load(), "two", "more")
    finish_report(loading.load(), "two+more")
    return workspace


def rewrite(folder: str, change) -> None:
    """Write a manifest with another content, as a run with other settings would have done."""
    path = Path(folder, manifest.NAME)
    content = manifest.read_sealed(path)
    change(content)
    manifest.write_sealed(path, content)


def other_vocabulary():
    rewrite("results/tokenizers/two", lambda content: content["settings"]["tokenizer"].update(vocab_size=300))


def other_rate_of_the_source():
    rewrite("results/models/eng", lambda content: content["settings"]["train"].update(learning_rate=0.5))


def tokenizer_again():
    rewrite("results/tokenizers/two", lambda content: content["figures"].update(seconds=1))


def shards_of_one_language_from_an_earlier_tokenizer():
    rewrite("results/shards/two/eng", lambda content: content["upstream"].update({"results/tokenizers/two": "0" * 64}))


def lost_intermediates():
    for folder in ("tokenizers/two", "shards/two", "suites", "exports/more"):
        shutil.rmtree(f"results/{folder}")


def lost_intermediates_and_other_settings():
    lost_intermediates()
    changed = {"train": SMALL["train"] | {"learning_rate": 0.5}, "tokenizer": {"vocab_size": 300}}
    Workspace(Path()).configure(VALUES | changed)


def suite_again_without_scores():
    """As after a run in which `score` failed: Snakemake deletes what a failed job made before."""
    rewrite("results/suites/english_basics/eng", lambda content: content["figures"].update(seconds=1))
    shutil.rmtree("results/scores/two")


def source_again_without_training():
    rewrite("results/models/eng", lambda content: content["figures"].update(seconds=1))
    shutil.rmtree("results/models/more")


def lost_manifest():
    Path("results/models/two/manifest.json").unlink()


SITUATIONS = {
    "nothing": (lambda: None, 100),
    "a changed key": (other_vocabulary, 40),
    "a changed key of the model that another one continues": (other_rate_of_the_source, 20),
    "an upstream result made again": (tokenizer_again, 20),
    "one language of a mixture is outdated": (shards_of_one_language_from_an_earlier_tokenizer, 40),
    "a suite made again, scores missing": (suite_again_without_scores, 20),
    "a source made again, training missing": (source_again_without_training, 20),
    "deleted intermediates": (lost_intermediates, 40),
    "deleted intermediates, changed keys": (lost_intermediates_and_other_settings, 20),
    "a deleted manifest": (lost_manifest, 20),
}


@pytest.mark.parametrize(("happens", "draws"), SITUATIONS.values(), ids=SITUATIONS.keys())
def test_shuffled_times_change_nothing_of_what_runs(tree, happens, draws):
    """Snakemake's own graph, for times drawn at random; what `why` says is the same."""
    happens()
    configuration = loading.load()
    jobs = {job.folder: job for model in ("two", "more") for job in explain(configuration, model) if job.runs}
    assert bool(jobs) == (happens not in (SITUATIONS["nothing"][0], lost_intermediates, lost_manifest))
    program = ROOT / "tests/scripts/file_time_checks.py"
    done = run_python(program, draws, 7, ROOT / "Snakefile", "reports/two+more.html", cwd=tree.path, check=True)
    found, *others = re.findall(r"^\d+ draws: (.*)", done.stdout, re.MULTILINE)
    assert not others, done.stdout
    report = ["reports"] if jobs else []
    assert sorted(found.split()) == sorted([*report, *(job.folder.as_posix() for job in jobs.values())]), done.stdout


def test_a_part_of_the_tree_is_made_again_if_what_is_missing_would_be(tree):
    """Trained again, and then the export failed."""
    tree.configure(VALUES | {"train": SMALL["train"] | {"learning_rate": 0.5}})
    rewrite("results/models/two", lambda content: content["settings"]["train"].update(learning_rate=0.5))
    for path in Path("results/models/two").iterdir():
        path.touch()
    shutil.rmtree("results/exports/two")
    assert tree.would_run(targets=["results/evaluations/two/evaluation.json"]) == {
        ("export", "two"),
        ("evaluate", "two"),
    }


def restored(workspace: Workspace, folder: Path, copy_function=shutil.copy2) -> None:
    """Put results back from a copy."""
    for name in ("results", "converted"):
        shutil.rmtree(workspace.path / name)
        shutil.copytree(folder / name, workspace.path / name, copy_function=copy_function, symlinks=True)


def why(workspace: Workspace, model: str) -> set[str]:
    """The stages that run, according to the command."""
    return {stage for stage, reason in workspace.why(model).items() if not reason.endswith(("up to date", "is there"))}


@pytest.mark.parametrize("remembers", [True, False], ids=["with .snakemake", "without"])
def test_a_copy_without_times_runs_nothing(built, workspace, remembers):
    """Its new times are in the order of copying."""
    restored(workspace, built, shutil.copy)
    if not remembers:
        shutil.rmtree(workspace.path / ".snakemake")
    assert workspace.would_run() == set()
    assert why(workspace, "eng") == set()


def test_results_younger_than_the_clock_run_again_after_a_change(workspace):
    """And what is made from them is not older than they are, which Snakemake would refuse after the job."""
    soon = time.time() + 3600
    for path in [*(workspace.path / "results").rglob("*"), *(workspace.path / "converted").rglob("*")]:
        os.utime(path, (soon, soon))
    assert workspace.would_run() == set()
    workspace.configure(SMALL | {"tokenizer": {"vocab_size": 300}})
    assert {stage for stage, _ in workspace.would_run(targets=["converted/eng"])} == AFTER_TOKENIZER - {"score"}
    assert why(workspace, "eng") == AFTER_TOKENIZER - {"score"}
    workspace.snakemake("results/models/eng/manifest.json")
    assert why(workspace, "eng") == {"export", "evaluate", "convert"}


def test_results_put_back_after_another_setting_was_run(built, workspace):
    """Snakemake remembers the checksum of the settings file, which is that of the present settings."""
    workspace.configure(SMALL | {"tokenizer": {"vocab_size": 300}})
    workspace.snakemake("results/tokenizers/eng/manifest.json")
    restored(workspace, built)
    assert {stage for stage, _ in workspace.would_run(targets=["converted/eng"])} == AFTER_TOKENIZER - {"score"}
    workspace.configure(SMALL)
    assert workspace.would_run() == set()


def test_results_of_another_model_run_again(workspace):
    """Somebody copied them to the wrong place."""
    shutil.rmtree(workspace.path / "results/models/eng")
    shutil.copytree(workspace.path / "results/models/deu", workspace.path / "results/models/eng")
    assert {stage for stage, _ in workspace.would_run()} == {"train", "export", "evaluate", "convert"}


def test_a_manifest_that_was_edited_is_refused_where_it_is_needed(workspace):
    path = workspace.path / "results/evaluations/eng/manifest.json"
    path.write_text(path.read_text().replace('"bytes": ', '"bytes": 1', 1))
    done = workspace.snakemake("converted/eng", "--dry-run", check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: results/evaluations/eng/manifest.json: was changed after it was written")
    assert workspace.would_run(targets=["results/exports/eng", "converted/deu"]) == set()


def rule_of(stage) -> str:
    """The text of the rule of a stage, in a file that may have others."""
    text = (ROOT / f"workflow/rules/{stage.name}.smk").read_text()
    return re.search(rf"^rule {stage.name}:\n.*?(?=^rule |\Z)", text, re.MULTILINE | re.DOTALL)[0]


def test_the_outputs_of_the_rules_are_those_of_the_table(built, monkeypatch):
    """The table of stages says which files of a job Snakemake compares."""
    monkeypatch.chdir(built)
    configuration = loading.load()
    for job in jobs_of(configuration, "eng"):
        block = re.search(r"^    output:\n(.*?)^    \w+:", rule_of(job.stage), re.MULTILINE | re.DOTALL)[1]
        values = {"model": "eng", "language": "eng"}
        declared = {name.format(**values) for name in re.findall(r'"(results/[^"]+|converted/[^"]+)"', block)}
        assert declared == {path.as_posix() for path in outputs_of(job)}, job.stage.name
    for stage in STAGES.values():
        text = rule_of(stage)
        assert ("directory(" in text) == (stage.gives_folder or stage.folder_beside)
        (benchmark,) = re.findall(r'^    benchmark:\n +"(.*)"', text, re.MULTILINE)
        values = {"model": "eng", "language": "eng", "suite": "blimp", "input": "blimp", "task": "blimp", "seed": "1"}
        part = "blimp" if re.search("suite|input|task", stage.folder) else "eng"
        part += ".1" if "{seed}" in stage.folder else ""
        assert stage.benchmark("eng", part).as_posix() == benchmark.format(**values)


def test_a_dry_run_beside_a_running_stage(tree):
    """Its results have no manifest yet, and its temporary files come and go."""
    lost_manifest()
    job = next(job for job in jobs_of(loading.load(), "two") if job.stage.name == "train")
    passing = Path("results/models/two/.model.safetensors.4f1c-1-1.abcdefgh")
    passing.touch()
    found = [*outputs_of(job)]
    assert len(found) == 4 and passing not in found
    found[0].unlink()
    assert time_of(found[0]) <= time.time_ns()


def test_each_later_job_is_visited_once():
    """In a mixture of many languages, there are far more paths from a corpus to a model than jobs."""
    layers = [[Job(STAGES["train"], "", "", []) for _ in range(2)] for _ in range(50)]
    for above, below in itertools.pairwise(layers):
        for job in above:
            job.readers += below
    assert layers[0][0].later() == [job for layer in layers[1:] for job in layer]


@pytest.mark.skipif(os.getuid() != 0, reason="needs files of two users")
def test_results_of_somebody_else_that_may_not_be_written(tmp_path):
    settings = tmp_path / "train.json"
    settings.write_text("{}")
    cannot = pytest.raises(UserError, match=r"train.json: its file time .* cannot be set .*ask its owner")
    with without_rights(tmp_path), cannot:
        set_time_of_settings(settings, 0)


@pytest.mark.parametrize(
    "words", [["show"], ["compare", "converted/deu"], ["score"], ["score", "--words", "sentences.txt"], ["publish"]]
)
@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_no_command_uses_a_damaged_model(workspace, monkeypatch, capsys, words, file):
    monkeypatch.chdir(workspace.path)
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    Path("sentences.txt").write_text("a dog\n")
    flip_a_bit(Path("converted/eng", file))
    more = {"score": ["--suite", "english_basics"], "publish": ["--repo", "a/b"]}
    arguments = [words[0], "converted/eng", *words[1:], *(more.get(words[0], []) if len(words) == 1 else [])]
    assert cli.main(arguments) == 1
    assert f"error: converted/eng/{file}: damaged, its sha256 is not the one" in capsys.readouterr().err


def test_a_changed_figure_is_no_figure(workspace, monkeypatch, capsys):
    """A manifest is verified like the files that it lists."""
    monkeypatch.chdir(workspace.path)
    path = Path("converted/eng/manifest.json")
    digit = next(found for found in re.finditer(r'"value": \d\.\d*?(\d)', path.read_text()))
    text = path.read_text()
    path.write_text(text[: digit.start(1)] + str(9 - int(digit[1])) + text[digit.end(1) :])
    assert cli.main(["show", "converted/eng"]) == 1
    assert "manifest.json: was changed after it was written" in capsys.readouterr().err
