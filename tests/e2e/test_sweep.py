"""A sweep from its entry to its page: four cells, of which two go on, and one is trained to the end."""

import copy
import csv
import shutil

import pytest

from babelmill.core import manifest
from babelmill.core.manifest import read_sealed
from conftest import SMALL, Workspace

pytestmark = pytest.mark.slow

RATES = {0.0001: "rate0p0001", 0.001: "rate0p001", 0.004: "rate0p004", 0.008: "rate0p008"}


def test_a_sweep_trains_the_best_cell_to_the_end(built, tmp_path):
    work = Workspace(shutil.copytree(built, tmp_path / "work", symlinks=True))
    sweep = {"base": "eng", "vary": {"train.learning_rate": [*RATES]}, "sweep": "halving"}
    work.configure(copy.deepcopy(SMALL) | {"experiments": {"rates": sweep}})
    output = work.snakemake("experiments/rates", "--logger", "babelmill").stderr

    bits, left = {}, [f"rates_{label}_s1" for label in RATES.values()]
    for number in "12":
        figures = {name: manifest.read(work.path / f"results/trials/{name}/{number}")["figures"] for name in left}
        bits[number] = {name: about["bits_per_byte"] for name, about in figures.items()}
        assert {about["step"] for about in figures.values()} == {3 * int(number)}
        (race,) = read_sealed(work.path / f"results/sweeps/rates/round{number}.json")["races"]
        left = sorted(left, key=bits[number].__getitem__)[: len(left) // 2]
        assert {cell["model"] for cell in race if cell["goes_on"]} == set(left)
    (best,) = left
    assert len(bits["2"]) == 2 and all(bits["2"][name] < bits["1"][name] for name in bits["2"])
    assert [path.name for path in (work.path / "results/models").iterdir() if path.name.startswith("rates")] == [best]
    assert "going on after step 6" in (work.path / f"logs/train/{best}.log").read_text()
    assert "2 of 4 cells go on" in output and "\n1 of 1 model converted" in output

    folder = work.path / "experiments/rates"
    assert {row["cell"] for row in csv.DictReader((folder / "results.csv").open())} == {best[6:-3]}
    assert "Not in the table: 3 cells dropped during training" in (folder / "table.md").read_text()
    page = (folder / "page.html").read_text()
    assert (
        '<h2 id="sweep">Sweep</h2>' in page and page.count("dropped at 1/3") == 2 and page.count("dropped at 2/3") == 1
    )
    assert all(f"{value:.3f}" in page for values in bits.values() for value in values.values())

    assert work.would_run(targets=["experiments/rates", "rates"]) == set()
    status = work.babelmill("status", "rates")
    assert status.count("dropped in round 1") == 2 and "1 converted, 3 dropped" in status
    runs = work.babelmill("runs")
    assert runs.count("3/8 dropped") == 2 and runs.count("6/8 dropped") == 1
    assert work.babelmill("clean").count("unused    results/checkpoints/rates") == 3

    work.configure(copy.deepcopy(SMALL) | {"experiments": {"renamed": sweep}})
    work.snakemake("results/sweeps/renamed/round2.json")
    logs = [path.read_text() for path in (work.path / "logs/trial").glob("renamed_*/*.log")]
    assert len(logs) == 6 and all("is the same: taking its result" in text for text in logs)
    assert {model for rule, model in work.would_run(targets=["renamed"]) if rule == "train"} == {
        best.replace("rates", "renamed")
    }
