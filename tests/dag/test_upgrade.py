"""What an upgrade, or an edit of one's own, makes again, on results that an earlier commit made (`released_results.py`)."""

import re
import shutil

import pytest

from babelmill.core import code_versions
from helpers.results.checkouts import Checkout
from scripts.released_results import RELEASES, SETTINGS, unpack

NUMBER = code_versions.newest("train").number
NOW, NEXT = f"train {NUMBER}", f"train {NUMBER + 1}"
AFTER_TRAIN = ["train", "export", "evaluate", "convert"]
LOSS = (
    "training/networks/loss.py",
    "weight * (1 + 2 * z_loss_weight * normalizer)",
    "weight * (1 + z_loss_weight * normalizer)",
)


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    return Checkout(tmp_path / "checkout", unpack(tmp_path / "work"))


@pytest.mark.parametrize("release", RELEASES)
def test_an_upgrade_repeats_nothing(tmp_path, release):
    """With all that Snakemake remembers of the results, and without; and the interrupted training goes on."""
    checkout = Checkout(tmp_path / "checkout", results := unpack(tmp_path / "work", release))
    kinds = ("converted/*", "predictions/*/*.csv", "submissions/*.json", "experiments/*", "reports/*.html")
    made = [path.relative_to(results) for kind in kinds for path in results.glob(kind)]
    assert checkout.would_run(*made) == []
    shutil.rmtree(results / ".snakemake")
    assert checkout.would_run(*made) == []
    assert "up to date" in (output := checkout.babelmill("why", "eng")) and "changed" not in output
    assert checkout.would_run("converted/deu") == AFTER_TRAIN
    assert re.search(r"^ +0\.0 MiB +would be freed", checkout.babelmill("clean"), re.MULTILINE), (
        "checkpoints are in use"
    )


def test_a_changed_licence_is_a_new_card_and_nothing_else(checkout):
    checkout.configure(SETTINGS | {"card": {"license": "cc-by-4.0"}})
    assert checkout.would_run("converted/eng") == ["convert"]


def test_what_changes_no_result_repeats_nothing_and_a_half_finished_run_goes_on(checkout):
    """Messages, waits, the table of GPUs, the record, the mirror, comments, annotations, docstrings."""
    checkout.package("runtime/cost.py", '"L4": 121e12', '"L4": 121e12, "B300": 2500e12')
    checkout.package("runtime/slurm.py", "COMPLETING_SECONDS = 120", "COMPLETING_SECONDS = 240")
    checkout.package("runtime/followers.py", "PATIENCE = 15.0", "PATIENCE = 20.0")
    checkout.package("runtime/record.py", "for line in path.read_text", "for line in  path.read_text")
    checkout.package("runtime/gpu_claims.py", "but of {len(available)} on this machine", "but of {len(available)} here")
    checkout.package(
        "training/loop.py", "left after step %d; the same command continues from there", "left after step %d"
    )
    checkout.package("training/plan/plan.py", "raise UserError(", "raise UserError('' +")
    checkout.package(
        "training/batches/masking.py", '"""Choose which tokens of a row are hidden', '"""Choose what of a row is hidden'
    )
    checkout.package(
        "training/batches/masking.py", "longest: int) -> torch.Tensor:", "longest: 'int') -> torch.Tensor:  # same"
    )
    assert checkout.would_run("converted/eng") == []
    assert checkout.would_run("converted/deu") == AFTER_TRAIN
    checkout.configure(SETTINGS | {"run": {"checkpoint_every": 1000}})
    checkout.snakemake("results/models/deu/manifest.json")
    log = (checkout.results / "logs/train/deu.log").read_text()
    assert (step := re.search(r"going on after step (\d+)", log)) and int(step[1]) >= 4


@pytest.mark.parametrize(
    ("edit", "module"),
    [
        (LOSS, "training.networks.loss"),
        (
            ("training/batches/masking.py", "action < masked, mask_id", "action <= masked, mask_id"),
            "training.batches.masking",
        ),
    ],
    ids=["loss", "mask"],
)
def test_an_edited_loss_or_mask_trains_again(checkout, edit, module):
    checkout.package(*edit)
    assert checkout.would_run("converted/eng") == AFTER_TRAIN
    output = checkout.babelmill("why", "eng")
    assert re.search(rf"^  train +source code of babelmill\.train changed in .*\b{module}\b", output, re.MULTILINE)
    assert "export           runs because train does" in output
    listed = checkout.babelmill("accept")
    assert re.search(r"train +edited, in no version: the next run makes its results again\n", listed)
    assert (
        "\nIf your edits change no result: babelmill accept train\nIf they do: babelmill accept --new train " in listed
    )


def test_a_new_key_at_its_neutral_value_repeats_nothing(checkout):
    checkout.package(
        "config/schema.py",
        "    min_characters: NonNegative\n",
        "    min_characters: NonNegative\n    min_lines: NonNegative = 0\n",
    )
    checkout.edit("config/defaults.yaml", "corpus:\n", "corpus:\n  min_lines: 0\n")
    assert checkout.would_run("converted/eng") == []
    assert "min_lines" not in (checkout.results / "results/settings/eng/corpus.json").read_text()
    checkout.configure(SETTINGS | {"corpus": {"min_lines": 3}})
    assert checkout.would_run("converted/eng")[0] == "corpus"
    assert "corpus           corpus.min_lines unset -> 3" in checkout.babelmill("why", "eng")
    checkout.configure(SETTINGS)
    assert checkout.would_run("converted/eng") == []


def test_an_accepted_edit_repeats_nothing(checkout):
    checkout.package(*LOSS)
    assert f"train: this code counts as {NOW} (" in checkout.babelmill("accept", "train")
    assert checkout.would_run("converted/eng") == []
    output = checkout.babelmill("accept")
    assert re.search(rf"train +{NOW} \(\w{{8}}\)\n", output) and output.endswith("there is nothing to accept.\n")


def test_a_new_version_trains_again_and_why_quotes_the_changelog(checkout):
    checkout.package(*LOSS)
    refused = checkout.babelmill("accept", "--new", "train", check=False)
    assert "--results" in refused and refused.count("\n") == 1
    checkout.babelmill("accept", "--new", "train", "--results", "the z-loss counts half")
    changelog = (checkout.path / "CHANGELOG.md").read_text()
    assert re.search(rf"^- Results: {NEXT} \(\w{{8}}\): the z-loss counts half$", changelog, re.MULTILINE)
    assert checkout.would_run("converted/eng") == AFTER_TRAIN
    output = checkout.babelmill("why", "eng")
    # In between there may be versions that are limited to models of other settings: nothing is said of these.
    assert re.search(rf"train +{NEXT} \(\w{{8}}\) instead of train \d+ \(\w{{8}}\): the z-loss counts half\n", output)
    # From then on the old code's results are the old ones, and the new code's edits can be accepted.
    checkout.package("training/batches/masking.py", "int((1 - hiding.keep) * 2**32)", "int(2**32 * (1 - hiding.keep))")
    assert NEXT in checkout.babelmill("accept", "train")
    assert NEXT in checkout.babelmill("why", "eng")


def test_a_limited_version_repeats_only_what_it_is_limited_to(checkout):
    checkout.package(*LOSS)
    limit = ["--when", "train.objective=causal"]
    checkout.babelmill("accept", "--new", "train", "--results", "causal runs are better", *limit)
    assert checkout.would_run("converted/eng") == []
    checkout.configure(SETTINGS | {"train": SETTINGS["train"] | {"objective": "causal"}})
    assert "causal runs are better" in checkout.babelmill("why", "eng")
    checkout.would_run("converted/eng")
    assert f'"code": "{NEXT}' in (checkout.results / "results/settings/eng/train.json").read_text()


@pytest.mark.parametrize("value", ["train.objective=causl", "train.objectiv=causal", "causal"])
def test_a_limit_that_holds_for_nobody_is_refused(checkout, value):
    """Otherwise new results would pass unseen."""
    checkout.package(*LOSS)
    output = checkout.babelmill("accept", "--new", "train", "--results", "other", "--when", value, check=False)
    assert output.startswith("error: ") and output.count("\n") == 1
    assert NEXT not in (checkout.path / "workflow/babelmill/code_versions.txt").read_text()


def test_a_limit_is_written_as_settings_files_write_it(checkout):
    checkout.package(*LOSS)
    checkout.babelmill("accept", "--new", "train", "--results", "other", "--when", "train.hybrid_ratio=8/16")
    assert '"train.hybrid_ratio": ["1/2"]' in (checkout.path / "workflow/babelmill/code_versions.txt").read_text()
    assert checkout.would_run("converted/eng") == AFTER_TRAIN


def test_results_that_an_edit_made_stay_when_it_is_accepted(checkout):
    checkout.package("shards.py", "MOST_BATCHES = 16", "MOST_BATCHES = 17")
    checkout.snakemake("results/shards/eng/eng/manifest.json")
    later = checkout.would_run("converted/eng")
    assert "shards" not in later
    assert "same results" in checkout.babelmill("accept", "shards")
    assert checkout.would_run("converted/eng") == later


def test_a_wrong_acceptance_can_be_taken_back(checkout):
    checkout.package(*LOSS)
    checkout.babelmill("accept", "train")
    checkout.babelmill("accept", "--new", "train", "--results", "the z-loss counts half")
    versions = (checkout.path / "workflow/babelmill/code_versions.txt").read_text()
    mine = [line for line in versions.splitlines() if line.startswith(f"{NEXT} ")]
    assert len(mine) == 2 and all(" began" in line for line in mine), "the code without labels/, and all of it"
    assert checkout.would_run("converted/eng") == AFTER_TRAIN
    again = checkout.babelmill("accept", "--new", "train", "--results", "again", check=False)
    assert again.startswith(f"error: train: this code already belongs to {NEXT}") and again.count("\n") == 1


@pytest.mark.parametrize("profile", ["demo", "local", "slurm", "slurm-multinode", None])
def test_an_edited_command_of_a_rule_repeats_nothing(checkout, profile):
    checkout.edit("workflow/rules/tokenizer.smk", "--threads {threads} --log", "--threads {threads}  --log")
    assert checkout.would_run("converted/eng", profile=profile) == []


def test_folders_with_brackets_and_braces(tmp_path):
    """Globs read brackets, and Snakemake formats commands: only a checkout in a folder with braces is refused."""
    checkout = Checkout(tmp_path / "checkout [1]", unpack(tmp_path / "wo{rk} [2] {model}"))
    checkout.configure(SETTINGS | {"evaluation": {"suites": ["english_basics"]}})
    checkout.snakemake("results/suites/english_basics/eng/manifest.json", "--configfile", "config/config.yaml")
    assert "suite" not in (runs := checkout.would_run("converted/eng", profile=None)) and "score" in runs
    braces = Checkout(tmp_path / "check{out}", checkout.results)
    output = braces.snakemake("converted/eng", "--dry-run", check=False).splitlines()
    assert (
        output[-1].startswith("error: ")
        and "rename the folder" in output[-1]
        and not any("NameError" in x for x in output)
    )
