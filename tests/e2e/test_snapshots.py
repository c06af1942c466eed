"""Weights that are kept while a model trains: from `run.snapshots` to branches on the Hub."""

import copy
import shutil
import signal

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from babelmill.core import manifest
from babelmill.core.files import read_json
from conftest import SMALL
from helpers.results.fields import undocumented

pytestmark = pytest.mark.slow

POINTS = [0.0002, 0.0004]
NAMES = [f"chck_{point:g}M" for point in POINTS]


def test_from_training_to_branches(workspace, hub, monkeypatch):
    values = copy.deepcopy(SMALL)
    values["run"]["snapshots"] = [*POINTS, 5]
    workspace.configure(values)
    assert workspace.would_run() == set(), "a finished run is not repeated"
    values["train"]["max_steps"] = 10
    values["models"] = {"eng": {"evaluation": {"snapshot_suites": ["english_basics"], "max_masked_items": 2}}}
    values["publish"] = {"username": "lab"}
    workspace.configure(values)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    workspace.snakemake("published/eng.json", "reports/eng.html")
    train = (workspace.path / "results/of/eng/train").resolve()
    log = (workspace.path / "logs/train" / f"{train.name}.log").read_text()
    assert "run.snapshots: 2 snapshots will be kept in" in log
    trained = read_json(train / "manifest.json")["figures"]
    text = read_json(workspace.path / "results/of/eng/corpus/manifest.json")["figures"]["words"]["train"]
    assert trained["words"] == pytest.approx(text * trained["epochs"], abs=1), "the words of the corpus, at each pass"
    ends = f"run.snapshots: chck_5M: the run ends after {trained['words'] / 1e6:.4g} million words"
    assert log.count(ends) == 1, "before the first step"
    assert trained["missing_snapshots"] == ["chck_5M"] and f"{trained['words']:,} words in all" in log
    assert manifest.read(train)["figures"]["summary"].endswith(", no snapshot chck_5M")
    about = ends.replace("after", "after about")
    assert f"eng: {about}" in workspace.babelmill("plan", "eng")

    converted = workspace.path / "converted/eng"
    card = " ".join((converted / "README.md").read_text().split())
    assert f"words of training they have read: {', '.join(f'`{name}`' for name in NAMES)}." in card
    path = workspace.path / "results/of/eng/score/english_basics/scores.json"
    scores = read_json(path)
    assert [each["name"] for each in scores["snapshots"]] == NAMES
    assert not undocumented(path, "scores.json of a suite")
    assert scores["snapshots"][0]["languages"]["eng"]["methods"]["causal"]["pairs"]["n"] == 200
    assert [each["million_words"] for each in scores["snapshots"]] == POINTS
    read = [each["words"] / each["tokens"] for each in scores["snapshots"]]
    assert read == pytest.approx([trained["words"] / trained["tokens"]] * 2, rel=0.01)
    receipt, (repository,) = read_json(workspace.path / "published/eng.json"), hub.repositories.values()
    assert receipt["branches"] == {name: repository.branches[name] for name in NAMES}
    main = repository.commits[repository.branches["main"]]
    assert not any(path.startswith("snapshots/") for path in main)
    for name in NAMES:
        files = dict(repository.commits[repository.branches[name]])
        folder = converted / "snapshots" / name
        assert files.pop(".gitattributes") and files == {path.name: path.read_bytes() for path in folder.iterdir()}
        assert f'revision="{name}"' in files["README.md"].decode()
        loaded = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
        kept = load_file(folder / "model.safetensors")
        assert all(torch.equal(value, kept[key]) for key, value in loaded.state_dict().items() if key in kept)
    first, second = (load_file(converted / f"snapshots/{name}/model.safetensors") for name in NAMES)
    assert any(not torch.equal(first[key], second[key]) for key in first)
    before = dict(repository.branches)
    workspace.snakemake("published/eng.json", "--forcerun", "publish")
    assert repository.branches == before, "nothing changed, so no branch has another commit"


def test_a_killed_run_keeps_the_same_snapshots(data):
    """As one that nothing disturbed; those that were passed before they were asked for are not kept."""
    points = [1e-4, 3e-4, 6e-4]
    data.settings(max_steps=30)
    data.run_settings(checkpoint_every=5, snapshots=points)
    data.train()
    (run,) = data.runs
    whole = {path.name: path.read_bytes() for path in (run / "snapshots").iterdir()}
    assert len(whole) == 2 * len(points)
    steps = [read_json(run / f"snapshots/chck_{point:g}M.json")["step"] for point in points]
    shutil.rmtree(run)

    data.interrupt(steps[1], signal.SIGKILL)
    data.train()
    assert {path.name: path.read_bytes() for path in (run / "snapshots").iterdir()} == whole


def test_a_run_of_so_many_words_ends_with_their_snapshot(workspace):
    """Alone by its own words, in a mixture by English-equivalent ones."""
    values = copy.deepcopy(SMALL)
    values["train"] |= {"max_steps": None, "max_words": "2.5k words"}
    values["models"] = {"two": {"languages": ["eng", "deu"]}}
    values["languages"]["deu"]["byte_premium"] = 2.0
    values["run"]["snapshots"] = [0.0025, 0.003]
    workspace.configure(values)
    workspace.snakemake("converted/eng", "converted/two", "--until", "train")
    models = [(workspace.path / f"results/of/{name}/train").resolve() for name in ("eng", "two")]
    for model in models:
        made = read_json(model / "manifest.json")
        figures, kept = made["figures"], workspace.path / "results/checkpoints" / model.name / "snapshots"
        assert 2500 <= figures["words"] < 2500 + 64, "within a row"
        assert [path.stem for path in kept.glob("*.json")] == ["chck_0.0025M"]
        assert figures["missing_snapshots"] == ["chck_0.003M"]
    premiums = read_json(models[1] / "manifest.json")["settings"]["bytes_per_word"]
    assert premiums == {"eng": pytest.approx(5.43), "deu": pytest.approx(10.86)}
    shards = [read_json(workspace.path / f"results/of/two/shards/{code}/manifest.json")["figures"] for code in premiums]
    rate = sum(made["bytes"]["train"] / size for made, size in zip(shards, premiums.values(), strict=True))
    tokens = sum(made["tokens"]["train"] for made in shards)
    assert figures["words"] == pytest.approx(figures["tokens"] * rate / tokens, rel=0.01)
