"""`babelmill clean` in a folder with checkpoints of present and former settings."""

import os
import subprocess
import sys

import pytest
import yaml
from babelmill.settings import settings_of

from babelmill.commands import clean as command
from babelmill.config.loading import load
from babelmill.core.files import read_json, write_json
from babelmill.runtime.record import fingerprint, identity
from babelmill.runtime.run_lock import Lock
from helpers.damage import without_rights
from helpers.training.training_data import Data


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project folder with data for the model `eng`."""
    data = Data(tmp_path / "data")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(yaml.safe_dump({"preset": "tiny"}))
    for source, target in (("tokenizer", "tokenizers/eng"), ("shards/eng", "shards/eng/eng")):
        (tmp_path / "results" / target).parent.mkdir(parents=True)
        (data.folder / source).rename(tmp_path / "results" / target)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_run(project, overrides=None, model="eng"):
    """A run's folder, as the trainer names it for these settings."""
    settings = settings_of(load(overrides=overrides or {}), "eng", "train")
    results = project / "results"
    run_identity = identity(settings, results / "tokenizers/eng", [results / "shards/eng/eng"])
    folder = results / "checkpoints" / model / fingerprint(run_identity)
    folder.mkdir(parents=True)
    write_json(folder / "identity.json", run_identity)
    (folder / "step-00000010.safetensors").write_bytes(bytes(3 * 2**20))
    return folder


def clean(*arguments) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "babelmill", "clean", *arguments], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_no_setting_uses_is_listed_and_removed_on_request(project):
    present, former = make_run(project), make_run(project, {"train": {"learning_rate": 0.5}})
    stranger = make_run(project, {"train": {"seed": 3}}, model="no_such_model")
    listed = "\n".join(clean())
    assert f"in use    results/checkpoints/eng/{present.name}\n" in listed
    edit = "an edit away: train.learning_rate 0.5 -> 0.01"
    assert f"unused    results/checkpoints/eng/{former.name}  {edit}\n" in listed
    assert f"unused    results/checkpoints/no_such_model/{stranger.name}  no model has this name\n" in listed
    assert "6.0 MiB  would be freed by --remove" in listed and former.exists()
    assert "6.0 MiB  freed" in "\n".join(clean("--remove"))
    assert present.exists() and not former.exists() and not stranger.exists()


def test_fine_tunings_that_no_setting_asks_for_are_removed(project):
    task = {"train": ["a.tsv"], "test": ["a.tsv"], "language": "eng", "text": "{a}"}
    asked = {"preset": "tiny", "tasks": {"mine": task}, "evaluation": {"tasks": ["mine"], "task_seeds": [1]}}
    (project / "config/config.yaml").write_text(yaml.safe_dump(asked))
    folders = [project / "results/tuning/eng/mine" / name for name in "12"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(bytes(2**20))
    with Lock(folders[1]):
        assert "held by process" in "\n".join(clean("--remove")) and all(folder.exists() for folder in folders)
    listed = "\n".join(clean("--remove"))
    assert "removed   results/tuning/eng/mine/2  eng is not tuned for it" in listed and "1.0 MiB  freed" in listed
    assert [folder.exists() for folder in folders] == [True, False]


def test_what_is_further_away_than_an_edit_is_told_apart(project):
    of_data, of_code = make_run(project), make_run(project, {"train": {"seed": 3}})
    many = make_run(project, {"train": {"seed": 4, "eps": 0.1, "clip_norm": 3, "weight_decay": 0.2}})
    path = of_code / "identity.json"
    recorded = read_json(path)
    write_json(path, recorded | {"settings": recorded["settings"] | {"version": 0}})
    recorded = read_json(of_data / "identity.json")
    other = of_data.rename(of_data.with_name("0123456789abcdef"))
    write_json(
        other / "identity.json", recorded | {"data": recorded["data"] | {"eng": {"train": "0", "validation": "0"}}}
    )
    strange = make_run(project, {"train": {"seed": 5}})
    (strange / "identity.json").write_text("[]")
    messages = {line.split()[3].split("/")[-1]: line.split(maxsplit=4)[4] for line in clean()[:-1]}
    assert messages[other.name] == "made with the present settings, but other data: eng"
    assert messages[of_code.name].startswith("made by version 0 of stage train, now 1")
    assert messages[many.name] == "4 settings differ"
    assert messages[strange.name].endswith("identity.json has no record of settings and data")


def test_the_configuration_of_the_command_line_counts(project):
    present, former = make_run(project), make_run(project, {"train": {"learning_rate": 0.5}})
    clean("--remove", "--config", "train={learning_rate: 0.5}")
    assert former.exists() and not present.exists()


def test_a_run_in_progress_stays(project):
    former = make_run(project, {"train": {"learning_rate": 0.5}})
    with Lock(former):
        assert any("held by process" in line for line in clean("--remove"))
    assert former.exists()


def test_where_the_data_is_missing_the_settings_decide(project):
    present, former = make_run(project), make_run(project, {"train": {"learning_rate": 0.5}})
    (project / "results/shards/eng/eng/manifest.json").unlink()
    clean("--remove")
    assert present.exists() and not former.exists()


def test_hard_links_are_counted_once(project):
    """As of a model whose training was taken from another one: only the last name that goes frees the bytes."""
    present, former = make_run(project), make_run(project, {"train": {"learning_rate": 0.5}})
    stranger = make_run(project, {"train": {"seed": 3}}, model="no_such_model")
    (weights,) = former.glob("*.safetensors")
    for folder, kept in ((stranger, weights), (weights, weights)):
        name = folder / weights.name if folder.is_dir() else folder.with_name("step-00000020.safetensors")
        name.unlink(missing_ok=True)
        os.link(kept, name)
    lines = clean()
    assert [line.split()[0] for line in lines if "MiB  unused" in line] == ["3.0", "3.0"]
    assert lines[-2].endswith("  3.0 MiB of it are hard links to files of a folder above")
    assert lines[-1].strip().startswith("3.0 MiB  would be freed")
    os.link(weights, present / "step-00000020.safetensors")
    assert clean()[-1].strip().startswith("0.0 MiB  would be freed"), "a folder in use has a name of them"
    assert clean("--remove")[-1].strip().startswith("0.0 MiB  freed")
    assert (present / "step-00000020.safetensors").stat().st_nlink == 1


def test_checkpoints_in_a_store_stay_and_are_named(project):
    (project / "config/config.yaml").write_text(
        yaml.safe_dump(
            {
                "targets": ["eng"],
                "run": {"checkpoints": "s3://bucket/mine/"},
                "models": {
                    "deu": {"run": {"checkpoints": "file:///kept"}},
                    "wrong": {"preset": "no such preset", "languages": ["eng"]},
                },
            }
        )
    )
    make_run(project)
    listed = clean("--remove")
    assert listed[-2].startswith(
        "s3://bucket/mine: not looked at; delete there what you no longer need (s3://bucket/mine/"
    )
    assert listed[-3].startswith("file:///kept: not looked at"), listed


def test_what_cannot_be_removed_is_said_and_links_are_not_followed(project, capsys):
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("mine")
    results = project / "results"
    results.mkdir(exist_ok=True)
    left = results / ".a.abcdefgh.tmp"  # a folder that a killed process left
    left.mkdir()
    (left / ".lock").touch()
    (left / "link").symlink_to(elsewhere)
    configuration = load()
    with without_rights(project):
        command.clean(configuration, remove=True)
    assert f"could not be removed  results/{left.name}" in capsys.readouterr().out
    assert f"removed   results/{left.name}" in "\n".join(clean("--remove"))
    assert (elsewhere / "mine").exists() and not left.exists()
