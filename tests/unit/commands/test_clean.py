"""`babelmill clean`: what no present setting asks for. (`tests/unit/test_graph.py` says what that is.)"""

from pathlib import Path

import pytest
import yaml

from babelmill import cli
from babelmill.config import loading
from babelmill.graph import Graph
from babelmill.runtime.run_lock import locked
from helpers.results.report_results import finish


@pytest.fixture
def listed(folder, capsys):
    """Return a function that runs the command in a folder with results of present and former settings."""

    def clean(*arguments) -> list[str]:
        assert cli.main(["clean", *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    Path("eng.txt").write_text("A text.\n")
    configure()
    finish(loading.load(overrides={"train": {"learning_rate": 0.5}}), "eng")
    finish(loading.load(), "eng")
    return clean


def configure(**values) -> None:
    Path("config").mkdir(exist_ok=True)
    text = {"languages": {"eng": {"corpus": {"files": ["eng.txt"]}}}}
    Path("config/config.yaml").write_text(yaml.safe_dump({"preset": "tiny"} | text | values))


def training(**overrides) -> str:
    return Graph(loading.load(overrides=overrides)).result("train", "eng").name


def test_former_results_are_listed_with_their_size_and_removed_on_request(listed):
    former, present = training(train={"learning_rate": 0.5}), training()
    for name in (former, present):
        Path("results/checkpoints", name).mkdir(parents=True)
        Path("results/checkpoints", name, "step-00000010.safetensors").write_bytes(bytes(3 * 2**20))
    lines = listed()
    assert f"       3.0 MiB  results/checkpoints/{former}" in lines
    assert any(line.endswith(f"results/train/{former}") for line in lines) and present not in "".join(lines)
    assert lines[-1].endswith("4 results unused: --remove deletes them") and lines[-1].startswith("       3.0 MiB")
    assert Path("results/train", former).exists() and listed() == lines
    assert any(present in line for line in listed("--config", "train={learning_rate: 0.5}"))
    Path("elsewhere").mkdir()
    Path("elsewhere/mine").write_text("mine")
    (link := Path("results/train/eng-0123456789")).symlink_to(Path("elsewhere").absolute())
    assert listed("--remove")[-1].endswith("5 results deleted")
    assert Path("elsewhere/mine").exists() and not link.is_symlink(), "links are not followed"
    left = {path.stem for pattern in ("*/*", "*/*/*.json") for path in Path("results").glob(pattern)}
    assert former not in left and present in left
    assert listed()[-1].endswith("0 results unused: --remove deletes them")


@pytest.mark.parametrize("folder_of", ["checkpoints", "unfinished/tune"])
def test_a_job_under_way_stays(listed, folder_of):
    run = Path("results", folder_of, training(train={"learning_rate": 0.5}))
    run.mkdir(parents=True)
    with locked(run):
        assert not any(folder_of in line for line in listed("--remove"))
    assert run.exists() and any(folder_of in line for line in listed())


def test_a_mistake_in_the_configuration_removes_nothing(listed, capsys):
    before = sorted(Path("results").rglob("*"))
    configure(models={"wrong": {"preset": "nosuch", "languages": ["eng"]}})
    assert cli.main(["clean", "--remove"]) == 1
    assert "nosuch" in capsys.readouterr().err and sorted(Path("results").rglob("*")) == before
