"""`babelmill init`: a folder outside of any clone, in which everything works; rules that Snakemake fetches from GitHub."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from babelmill import __version__
from babelmill.commands import init
from babelmill.core.files import read_json
from conftest import ROOT, SMALL, write_texts
from helpers.programs.prepared import run_module


def run(*command, check=True, **environment) -> str:
    """What a command prints, in the working folder."""
    done = run_module(*map(str, command), environment={**os.environ, **environment}, check=check)
    return done.stdout + done.stderr


def jobs(*arguments, **environment) -> list[str]:
    output = run("snakemake", "--profile", "profiles/local", "--dry-run", *arguments, **environment)
    return re.findall(r"^((?!total|all)\w+) +\d+$", output, re.MULTILINE)


def git(folder: Path, *words: str) -> None:
    about = ["-c", "user.name=a", "-c", "user.email=a", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *about, *words], cwd=folder, check=True, capture_output=True)


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


TO_CONVERTED = ["corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert"]


@pytest.fixture
def study(folder, monkeypatch):
    """A new folder, which is the working folder."""
    run("babelmill", "init", "study")
    monkeypatch.chdir("study")
    return folder / "study"


def test_snakemake_and_the_commands_work_there_as_in_a_clone(study):
    """With the same settings files, so nothing runs again in it that a clone has made."""
    assert "\ntotal            9\n" in run("snakemake", "--profile", "profiles/demo", "--dry-run", "converted/eng")
    Path("config/config.yaml").write_text(yaml.safe_dump(SMALL | {"targets": ["eng"]}))
    write_texts(study / "texts/eng", "eng")
    assert jobs() == TO_CONVERTED, "a bare run builds the targets"
    settings = contents(study / "results/settings")
    assert jobs("--snakefile", ROOT / "Snakefile") == TO_CONVERTED
    assert settings == contents(study / "results/settings") != {}
    assert "corpus           has not run yet" in run("babelmill", "why", "eng")
    assert "did you mean" in run("snakemake", "--profile", "profiles/local", "-n", "converted/egn", check=False)


def test_what_is_there_stays_and_what_is_missing_comes_back(folder):
    own = folder / "here/config/config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("preset: tiny\n")
    assert "1 file of yours stayed" in run("babelmill", "init", "here")
    before = contents(folder / "here")
    assert before["config/config.yaml"] == "preset: tiny\n" and "profiles/slurm/profile.yaml" in before
    (folder / "here/Snakefile").write_text(before["Snakefile"] + "\n\nrule mine:\n    output: 'mine'\n")
    (folder / "here/config/demo.yaml").unlink()
    assert "here: 1 file written" in run("babelmill", "init", "here")
    after = contents(folder / "here")
    assert "rule mine" in after.pop("Snakefile") and after.items() <= before.items() and len(after) == len(before) - 1


@pytest.mark.parametrize("link", [False, True])
def test_what_is_no_file_or_another_workflows_is_refused_and_stays(folder, link):
    """A folder, or a link to a file that is yet to come."""
    own = folder / "here/config/config.yaml"
    own.parent.mkdir(parents=True)
    own.symlink_to("my/settings.yaml") if link else own.mkdir()
    output = run("babelmill", "init", "here", check=False)
    assert output.startswith("error: here/config/config.yaml: a file is expected, not a folder or a link")
    assert own.is_symlink() == link and not (folder / "here/Snakefile").exists()
    theirs = folder / "theirs/workflow/snakefile" if link else folder / "theirs/Snakefile"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("rule all:\n    output: 'b'\n")
    output = run("babelmill", "init", "theirs", check=False)
    assert re.fullmatch(rf"error: {theirs.relative_to(folder)} is another workflow's: .*\n", output)
    assert len(contents(folder / "theirs")) == 1


def test_the_settings_of_a_clone_are_not_those_of_its_users(tmp_path, monkeypatch):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("targets: [eng]\n")
    for words in ("init -q", "add config", "commit -qm First"):
        git(tmp_path, *words.split())
    (tmp_path / "config/config.yaml").write_text("publish: {username: ada}\n")
    monkeypatch.setattr(init, "ROOT", tmp_path)
    assert init.copied("config/config.yaml") == "targets: [eng]\n"


def test_what_the_copied_files_name_is_there(study):
    text = Path("config/config.yaml").read_text()
    links = re.findall(r"\$schema=(\S+)", text) + re.findall(r"from (\S+), which", text)
    links += [link.partition("#")[0] for link in re.findall(r"\]\((/[^)]+)\)", Path("profiles/README.md").read_text())]
    assert len(links) > 3 and all(Path(link).is_file() for link in links)


def test_presets_and_suites_of_ones_own_are_in_the_folder(study):
    """None hides one of Babelmill."""
    write_texts(study / "texts/eng", "eng")
    own = {
        "presets/mine.yaml": {"train": {"precision": "fp32", "learning_rate": 0.001}, "model": {"hidden_size": 48}},
        "suites/pairs.yaml": {"files": ["pairs.tsv"], "language": "eng", "good": "good", "bad": "bad"},
        "config.yaml": SMALL | {"preset": "mine", "evaluation": {"suites": ["pairs"]}},
    }
    for name, content in own.items():
        (study / "config" / name).parent.mkdir(exist_ok=True)
        (study / "config" / name).write_text(yaml.safe_dump(content))
    (study / "config/suites/pairs.tsv").write_text("good\tbad\nThe cats sleep.\tThe cats sleeps.\n")
    run("snakemake", "--profile", "profiles/local", "converted/eng", "--until", "suite")
    assert {"score", "train"} < set(jobs("converted/eng"))
    train = read_json(next(study.glob("results/settings/train/*.json")))["train"]
    assert (train["learning_rate"], train["precision"]) == (0.001, "fp32")
    (study / "config/presets/tiny.yaml").write_text("train: {epochs: 3}\n")
    refused = run("babelmill", "config", "eng", "--config", "preset=tiny", check=False)
    assert re.search(r"^error: config/presets/tiny.yaml: another file than Babelmill's", refused, re.MULTILINE)


# What `snakedeploy deploy-workflow https://github.com/babelmill/babelmill . --tag v1` writes.
DEPLOYED = """configfile: "config/config.yaml"
module babelmill:
    snakefile:
        github("babelmill/babelmill", path="workflow/Snakefile", tag="{tag}")
    config:
        config
use rule * from babelmill
"""


def test_rules_from_github_use_the_installed_package_of_the_same_release(study):
    """By Snakemake's own provider; git finds a repository here in place of GitHub's."""
    repository = study.parent / "repository"

    for name in ("workflow/rules", "envs"):
        shutil.copytree(ROOT / name, repository / name)
    shutil.copy(ROOT / "workflow/Snakefile", repository / "workflow")
    version = repository / "workflow/babelmill/__init__.py"
    version.parent.mkdir()
    git(repository, "init", "-q", "-b", "main")
    for tag, release in (("v1", __version__), ("v2", "99.0")):
        version.write_text(f'__version__ = "{release}"\n')
        for words in ("add -A", f"commit -qm {tag}", f"tag {tag}"):
            git(repository, *words.split())
    redirected = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{repository}.insteadOf"}
    redirected |= {"GIT_CONFIG_VALUE_0": "https://github.com/babelmill/babelmill", "XDG_CACHE_HOME": f"{study}/cache"}
    Path("config/config.yaml").write_text(yaml.safe_dump(SMALL | {"targets": ["eng"]}))
    write_texts(study / "texts/eng", "eng")
    Path("Snakefile").write_text(DEPLOYED.format(tag="v1"))
    assert jobs(**redirected) == TO_CONVERTED, "a bare run builds the targets"
    run("snakemake", "--profile", "profiles/local", "converted/eng", "--until", "corpus", **redirected)
    assert re.search(r"corpus +up to date", run("babelmill", "why", "eng"))
    Path("Snakefile").write_text(DEPLOYED.format(tag="v2"))
    refused = run("snakemake", "--profile", "profiles/local", "--dry-run", check=False, **redirected)
    line = "^error: .*v2/workflow/rules needs babelmill 99.0 in the environment of Snakemake: install its wheel there$"
    assert re.search(line, refused, re.MULTILINE)
