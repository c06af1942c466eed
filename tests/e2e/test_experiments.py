"""An experiment from its entry to its tables: what cells share is made once, and a name makes nothing again."""

import copy
import csv
import io
import re
import shutil
from pathlib import Path

import pytest

from babelmill import __version__
from babelmill.core.files import sha256
from conftest import ROOT, SMALL, Workspace

pytestmark = pytest.mark.slow

GRID = {
    "base": "eng",
    "vary": {"train.optimizer": ["lamb", "adamw"]},
    "seeds": 2,
    "compare_with": {"train.optimizer": "lamb"},
}
STAGES = ("tokenizer", "shards", "train", "export", "evaluate")


def configured(workspace: Workspace, **experiments: dict) -> None:
    workspace.configure(copy.deepcopy(SMALL) | {"experiments": experiments})


def taken(workspace: Workspace, name: str) -> dict[str, list[str]]:
    """Return for each stage the models of an experiment whose results were taken from another model."""
    found = {}
    for stage in STAGES:
        logs = (workspace.path / "logs" / stage).rglob("*.log")
        lines = {log.relative_to(workspace.path / "logs" / stage).parts[0]: log.read_text() for log in logs}
        models = {model.removesuffix(".log"): text for model, text in lines.items() if model.startswith(f"{name}_")}
        found[stage] = sorted(model for model, text in models.items() if "is the same: linking its files" in text)
    return found


@pytest.fixture(scope="module")
def ran(built, tmp_path_factory) -> Workspace:
    """A workspace whose experiment has run beside the model `eng`, of which one of its cells is a copy."""

    workspace = Workspace(shutil.copytree(built, tmp_path_factory.mktemp("experiment") / "work", symlinks=True))
    configured(workspace, optimizers=GRID)
    output = workspace.snakemake("experiments/optimizers", "--profile", ROOT / "profiles/local").stderr
    (workspace.path / "output.txt").write_text(output)
    return workspace


CELLS = [f"optimizers_{cell}_s{seed}" for cell in ("adamw", "lamb") for seed in (1, 2)]


def test_what_cells_share_is_made_once(ran):
    """The first seed of the base's own settings is the base."""
    alike = ["optimizers_lamb_s1"]
    assert taken(ran, "optimizers") == {
        "tokenizer": CELLS,
        "shards": CELLS,
        "train": alike,
        "export": alike,
        "evaluate": alike,
    }
    weights = {cell: sha256(ran.path / f"results/models/{cell}/model.safetensors") for cell in CELLS}
    assert len(set(weights.values())) == 4
    assert weights["optimizers_lamb_s1"] == sha256(ran.path / "results/models/eng/model.safetensors")


def test_the_terminal_says_what_was_not_made_again(ran):
    """A linked result took no work, and its line shows none."""
    lines = (ran.path / "output.txt").read_text().splitlines()
    found = {stage: [line for line in lines if re.search(rf"^[\d:]+ +\[\S+ +{stage} ", line)] for stage in STAGES}
    for stage, folder in {"train": "models", "evaluate": "evaluations", "shards": "shards"}.items():
        (line,) = [line for line in found[stage] if " optimizers_lamb_s1" in line]
        assert re.search(rf"  same as results/{folder}/\w+(/eng)?: linked$", line), line
    others = [line for line in found["train"] if " optimizers_lamb_s1" not in line]
    assert len(others) == 3 and not any("same as" in line for line in others)


def test_the_tables_have_all_cells_and_seeds(ran):
    folder = ran.path / "experiments/optimizers"
    rows = [*csv.DictReader(io.StringIO((folder / "results.csv").read_text()))]
    causal = {(row["cell"], row["seed"]): float(row["score"]) for row in rows if row["method"] == "causal"}
    assert set(causal) == {(cell, seed) for cell in ("lamb", "adamw") for seed in "12"}
    assert {row["train.optimizer"] for row in rows if row["cell"] == "adamw"} == {"adamw"}
    assert [*dict.fromkeys(row["cell"] for row in rows)] == ["lamb", "adamw"], "the order of the experiment"
    mean = (causal["adamw", "1"] + causal["adamw", "2"]) / 2
    assert re.search(rf"^\| adamw +\| \**{mean:.3f} ± ", (folder / "table.md").read_text(), re.MULTILINE)
    assert (
        "experiments/optimizers/table.md, .tex, results.csv and page.html compare the cells"
        in (ran.path / "output.txt").read_text()
    )
    assert r"\toprule" in (folder / "table.tex").read_text()
    page = (folder / "page.html").read_text()
    overview = page.partition("<h2>Models and languages")[2]
    assert overview.index("optimizers_lamb_s1") < overview.index("optimizers_adamw_s2")
    made_with = page.partition("<h2>Made with")[2]
    assert re.search(r">trained on</th><td>\S.* threads?</td>", made_with)
    assert re.search(rf">trained by</th><td>babelmill {re.escape(__version__)}[^<]*</td>", made_with)


def copied(ran: Workspace, tmp_path: Path) -> Workspace:

    return Workspace(shutil.copytree(ran.path, tmp_path / "work", symlinks=True))


@pytest.mark.parametrize(
    ("change", "new"),
    [
        ({"seeds": 3}, ["optimizers_adamw_s3", "optimizers_lamb_s3"]),
        ({"vary": {"train.optimizer": ["lamb", "muon", "adamw"]}}, ["optimizers_muon_s1", "optimizers_muon_s2"]),
    ],
)
def test_nothing_runs_again_and_a_seed_or_a_cell_more_runs_alone(ran, change, new):
    assert ran.would_run(targets=["experiments/optimizers"]) == {("experiment", "optimizers")}
    configured(ran, optimizers=GRID | change)
    jobs = ran.would_run(targets=["experiments/optimizers"])
    configured(ran, optimizers=GRID)
    assert jobs == {(stage, cell) for stage in (*STAGES, "convert") for cell in new} | {("experiment", "optimizers")}


def test_a_renamed_experiment_trains_nothing(ran, tmp_path):
    """Results are found by their settings; names only point to them."""
    work = copied(ran, tmp_path)
    configured(work, masks=GRID)
    work.snakemake("experiments/masks")
    renamed = [cell.replace("optimizers", "masks") for cell in CELLS]
    assert taken(work, "masks") == dict.fromkeys(STAGES, renamed)
    assert work.would_run(targets=["experiments/masks"]) == {("experiment", "masks")}
    ours, theirs = ((work.path / f"experiments/{name}/table.md").read_text() for name in ("masks", "optimizers"))
    assert ours.splitlines()[1:] == theirs.splitlines()[1:]
