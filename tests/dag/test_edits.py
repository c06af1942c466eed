"""What an edit of the code, a raised version or results of an earlier release do to a folder of results."""

import re
import shutil

import pytest

from babelmill.core import manifest
from conftest import SMALL, Checkout

AFTER_TRAIN = {(stage, "eng") for stage in ("train", "export", "evaluate", "convert")}
EDITED = "training/networks/loss.py"
STAYS = "train: training/networks/loss.py was edited since; results stay (to make them again:"


@pytest.fixture
def checkout(workspace, tmp_path) -> Checkout:
    return Checkout(tmp_path / "checkout", workspace.path)


def edit_the_loss(checkout: Checkout) -> None:
    checkout.package(EDITED, "(1 + 2 * z_loss_weight * normalizer)", "(1 + z_loss_weight * normalizer)")


def dry_run(checkout: Checkout, *arguments, check: bool = True) -> str:
    done = checkout.snakemake(*arguments, "--dry-run", "--", "converted/eng", check=check)
    return done.stdout + done.stderr


@pytest.mark.parametrize("profile", ["local", None])
def test_an_edited_module_is_named_and_nothing_runs(checkout, profile):
    """Edits that change no result are not named."""
    checkout.package("runtime/slurm.py", "REQUEUE_SECONDS = 60", "REQUEUE_SECONDS = 90")
    checkout.package("commands/why.py", '"up to date: ', '"up  to date: ')
    checkout.edit("workflow/rules/tokenizer.smk", " --threads {threads}", "  --threads {threads}")
    options = ["--profile", checkout.project / "profiles" / profile] if profile else []
    assert " was edited" not in dry_run(checkout, *options) + checkout.babelmill("why", "eng")
    edit_the_loss(checkout)
    output = dry_run(checkout, *options)
    assert output.index("Nothing to be done") < output.index(STAYS)
    *_, last = checkout.babelmill("why", "eng").strip().splitlines()
    assert last.startswith(STAYS)


def test_a_run_that_continues_with_other_code_says_so(checkout):
    """Its results name the code with which it began."""
    edit_the_loss(checkout)
    trained = (checkout.path / "results/of/eng/train").resolve()
    for folder in ("results/of/eng/train", "results/of/eng/export", "converted/eng"):
        shutil.rmtree((checkout.path / folder).resolve())
    checkout.snakemake("converted/eng", "--until", "train")
    log = (checkout.path / f"logs/train/{trained.name}.log").read_text()
    assert "training/networks/loss.py was edited since this run began" in log
    assert STAYS in checkout.babelmill("why", "eng")


def test_a_raised_version_runs_the_stage_again_and_what_follows(checkout):
    checkout.package("stages.py", '    stage = "train"\n    version = 2\n', '    stage = "train"\n    version = 3\n')
    assert checkout.would_run(targets=["converted/eng"]) == AFTER_TRAIN
    assert re.search(r"^  train +version 2 -> 3$", checkout.babelmill("why", "eng"), re.MULTILINE)


def test_a_new_key_at_its_neutral_value_repeats_nothing(checkout):
    key = "    min_characters: NonNegative\n"
    checkout.package("config/schema.py", key, f"{key}    min_lines: NonNegative = 0\n")
    checkout.edit("config/defaults.yaml", "\ncorpus:\n", "\ncorpus:\n  min_lines: 0\n")
    assert checkout.would_run() == set()
    (settings,) = checkout.path.glob("results/settings/corpus/eng-*.json")
    assert "min_lines" not in settings.read_text()
    checkout.configure(SMALL | {"corpus": {"min_lines": 3}})
    assert ("corpus", "eng") in checkout.would_run()
    assert "corpus           corpus.min_lines unset -> 3" in checkout.babelmill("why", "eng")


def test_results_of_an_earlier_release_are_one_line(workspace):
    for path in workspace.path.glob("results/tokenizer/*/manifest.json"):
        manifest.write_sealed(path, manifest.read(path.parent) | {"version": "0.3.0"})
    line = "error: results/ holds results of Babelmill 0.x: keep them with the release that made them, or begin a new"
    dry = workspace.snakemake("converted/eng", "--dry-run", check=False)
    for done in (dry, *(workspace.python("-m", "babelmill", word) for word in ("why", "status"))):
        assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(line), done.stderr


def test_folders_with_brackets_and_braces(workspace, tmp_path):
    """Globs read brackets, and Snakemake formats commands: only a checkout in a folder with braces is refused."""
    results = workspace.path.rename(tmp_path / "wo{rk} [2] {model}")
    checkout = Checkout(tmp_path / "checkout [1]", results)
    checkout.configure(SMALL | {"evaluation": {"suites": ["english_basics"]}})
    checkout.snakemake("converted/eng", "--until", "suite")
    rules = {rule for rule, _ in checkout.would_run(targets=["converted/eng"])}
    assert "suite" not in rules and "score" in rules
    braces = Checkout(tmp_path / "check{out}", results)
    output = dry_run(braces, check=False).splitlines()
    assert output[-1].startswith("error: ") and "rename the folder" in output[-1]
    assert not any("NameError" in line for line in output)
