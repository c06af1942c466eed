"""An experiment from its entry to its tables: what cells share is made once, and a name makes nothing again."""

import csv
import re
import shutil
from pathlib import Path

import pytest

from babelmill.core.files import sha256
from conftest import ROOT, SMALL, Workspace

pytestmark = pytest.mark.slow

GRID = {"base": "eng", "vary": {"train.optimizer": ["lamb", "adamw"]}, "seeds": 2}
GRID |= {"compare_with": {"train.optimizer": "lamb"}}
AFTER_TRAIN = ("train", "export", "evaluate")


def configured(workspace: Workspace, **experiments: dict) -> None:
    workspace.configure(SMALL | {"experiments": experiments})


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

    def made(stage: str, *models: str) -> set[Path]:
        return {(ran.path / f"results/of/{model}/{stage}").resolve(strict=True) for model in models}

    for stage in ("corpus", "tokenizer", "shards"):
        assert made(stage, *CELLS) == made(stage, "eng")
    for stage in AFTER_TRAIN:
        assert len(made(stage, *CELLS)) == 4 and made(stage, "optimizers_lamb_s1") == made(stage, "eng")
    weights = {sha256(ran.path / f"results/of/{cell}/train/model.safetensors") for cell in CELLS}
    assert len(weights) == 4


def test_the_tables_have_all_cells_and_seeds(ran):
    folder = ran.path / "experiments/optimizers"
    rows = [*csv.DictReader((folder / "results.csv").read_text().splitlines())]
    causal = {(row["cell"], row["seed"]): float(row["score"]) for row in rows if row["method"] == "causal"}
    assert set(causal) == {(cell, seed) for cell in ("lamb", "adamw") for seed in "12"}
    assert {row["train.optimizer"] for row in rows if row["cell"] == "adamw"} == {"adamw"}
    assert [*dict.fromkeys(row["cell"] for row in rows)] == ["lamb", "adamw"], "the order of the experiment"
    mean = (causal["adamw", "1"] + causal["adamw", "2"]) / 2
    assert re.search(rf"^\| adamw +\| 2 .*\| \**{mean:.3f} ± ", (folder / "table.md").read_text(), re.MULTILINE)
    line = "experiments/optimizers/table.md, .tex, results.csv and page.html compare the cells"
    assert line in (ran.path / "output.txt").read_text()
    assert r"\toprule" in (folder / "table.tex").read_text()
    page = (folder / "page.html").read_text()
    overview = page.partition("<h2>Training")[2]
    assert overview.index("optimizers_lamb_s1") < overview.index("optimizers_adamw_s2")


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
    made = {(stage, "eng") for stage in AFTER_TRAIN} | {("convert", cell) for cell in new}
    assert jobs == made | {("experiment", "optimizers")}


def test_a_renamed_experiment_trains_nothing(ran, tmp_path):
    work = Workspace(shutil.copytree(ran.path, tmp_path / "work", symlinks=True))
    configured(work, masks=GRID)
    renamed = {("convert", cell.replace("optimizers", "masks")) for cell in CELLS}
    assert work.would_run(targets=["experiments/masks"]) == renamed | {("experiment", "masks")}
    work.snakemake("experiments/masks")
    ours, theirs = ((work.path / f"experiments/{name}/table.md").read_text() for name in ("masks", "optimizers"))
    assert ours.splitlines()[1:] == theirs.splitlines()[1:]
