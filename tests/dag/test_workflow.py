"""The workflow as a whole: targets, profiles, names that do not exist, what parsing it costs, and as a module."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from babelmill.core.files import read_json
from conftest import ROOT, SMALL, Workspace, write_texts
from helpers.programs.prepared import run_module

RULES = {path.name: path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk")}


@pytest.fixture
def fresh(tmp_path):
    """A workspace in which nothing has been run; every language has text."""
    workspace = Workspace(tmp_path)
    workspace.configure({"corpus": {"builtin": "python-docs"}})
    return workspace


@pytest.mark.parametrize("entry", ["Snakefile", "workflow/Snakefile"])
def test_a_bare_run_builds_the_targets(fresh, entry):
    """By the file in the root, and by that which Snakemake's catalogue and `snakedeploy` look for."""
    options = ["--snakefile", ROOT / entry]
    assert {model for rule, model in fresh.would_run(*options, targets=[]) if rule == "convert"} == {"eng"}


def test_a_target_that_is_not_asked_for_stops_nobody(fresh):
    more = {"models": {"odd": {"preset": "small"}}, "groups": {"mine": ["odd"]}, "targets": ["odd"]}
    fresh.configure({"corpus": {"builtin": "python-docs"}} | more)
    assert ("convert", "eng") in fresh.would_run(targets=["converted/eng"])
    for target in ("all", "mine", "publish_all"):
        done = fresh.snakemake(target, "--dry-run", check=False)
        assert "models.odd" in done.stderr and "Traceback" not in done.stderr


def test_a_batch_is_published(fresh, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_none")
    fresh.configure({"targets": ["eng"], "corpus": {"builtin": "python-docs"}, "groups": {"mine": ["deu", "swe"]}})
    for target, models in (("publish_mine", {"deu", "swe"}), ("publish_all", {"eng"}), ("published/eng.json", {"eng"})):
        jobs = fresh.would_run(targets=[target])
        assert {model for rule, model in jobs if rule == "publish"} == models
        assert {model for rule, model in jobs if rule == "convert"} == models


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("converted/enf", ["no model 'enf'", "eng"]),
        ("results/shards/eng-0123456789/manifest.json", ["error: results/shards/eng-0123456789: no model asks for"]),
        ("eng", ["error: there is no target eng; did you mean converted/eng?"]),
        ("convertd/eng", ["error: there is no target convertd/eng; did you mean converted/eng?"]),
        ("tier4", ["error: there is no target tier4; did you mean", "tier1"]),
        ("converted/a?sig=1f", ["error: there is no model 'a?***'"]),  # as a key of an address
        ("converted/eng/config.json", ["error: there is no model 'eng/config.json'"]),
    ],
)
def test_a_name_that_does_not_exist_is_one_clear_line(fresh, target, words):
    done = fresh.snakemake(target, "--dry-run", check=False)
    assert done.returncode == 1
    lines = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("  Command:")]
    assert len([line for line in lines if all(word in line for word in words)]) == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_bad_value_stops_before_anything_runs(fresh):
    fresh.configure({"train": {"mask_rate_start": 1.5}, "corpus": {"builtin": "python-docs"}})
    done = fresh.snakemake("converted/eng", "--profile", ROOT / "profiles/local", check=False)
    assert done.returncode == 1
    first, _, error = done.stderr.splitlines()
    assert first.startswith("Using profile ") and not done.stdout
    assert error.startswith("error: config/config.yaml: train.mask_rate_start = 1.5")
    assert not (fresh.path / "results/corpus").exists()


def test_several_experiments_and_reports_in_one_run(fresh):
    """Snakemake lists a folder once: all their settings files are there before it looks for the first one."""
    experiment = {"base": "eng", "vary": {"train.epochs": [1, 2]}}
    fresh.configure({"corpus": {"builtin": "python-docs"}, "experiments": dict.fromkeys("ab", experiment)})
    pages = [("experiment", "a"), ("experiment", "b"), ("report", "eng"), ("report", "a+b")]
    targets = ["experiments/a", "experiments/b", "reports/eng.html", "reports/a+b.html"]
    assert {*pages} <= fresh.would_run(targets=targets)


def test_the_way_to_a_first_model(fresh, monkeypatch):
    """The cluster guide's lines do what it says of them: downloads alone first, then all of the group; and without a
    home that can be written, too.
    """
    fresh.configure({"corpus": {"revision": "0" * 40}})  # a commit needs no network
    guide = (ROOT / "profiles/README.md").read_text()
    cache, others = re.findall(r"`export (XDG_CACHE_HOME)=\S+ (\w+)=[^`]+`", guide)[0]
    monkeypatch.setenv("HOME", "/proc")  # where root cannot write either
    monkeypatch.setenv(cache, str(fresh.path / "cache"))
    monkeypatch.setenv(others, str(fresh.path / "cache"))
    lines = re.findall(r"^snakemake --profile profiles/slurm ([^#\n]+)", guide, re.MULTILINE)
    counted = []
    for line in lines:
        output = fresh.snakemake(*line.split(), "--dry-run", "--profile", ROOT / "profiles/slurm").stdout
        counted.append(dict(re.findall(r"^((?!total)\w+) +(\d+)$", output, re.MULTILINE)))
        assert len(output.splitlines()) <= 25, "a dry run is a table, by stage"
    rules = ("download", "corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert")
    assert counted == [{"download": "9"}, dict.fromkeys(rules, "9") | {"tier1": "1"}]


@pytest.mark.parametrize("profile", sorted((ROOT / "profiles").glob("*/")), ids=lambda path: path.name)
def test_profiles_name_rules_that_exist(profile):
    """Snakemake ignores resources of a misspelt rule without a word. A profile `default` would override all others."""
    assert profile.name != "default"
    values = yaml.safe_load((profile / "profile.yaml").read_text())
    rules = {*re.findall(r"^(?:rule|checkpoint) (\w+):", "".join(RULES.values()), re.MULTILINE)}
    for key in ("set-resources", "set-threads", "set-scatter"):
        assert set(values.get(key) or {}) <= rules
    assert values["rerun-incomplete"] is values["show-failed-logs"] is True and values["rerun-triggers"] == "mtime"
    assert values["max-checksum-file-size"] == 0 and values["logger"] == ["babelmill"]


def test_jobs_import_nothing_from_the_working_folder(fresh):
    """With a Python of their own: `python -m` itself imports contextlib."""
    fresh.configure({"languages": {"eng": {"corpus": {"files": ["texts/*.txt"], "validation_share": 0.2}}}})
    write_texts(fresh.path / "texts", "eng")
    for name in ("contextlib", "random", "queue"):
        (fresh.path / f"{name}.py").write_text("raise SystemExit('not the library')")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    command = [Path(sys.executable).with_name("snakemake"), *fresh.arguments("converted/eng", "--until", "corpus")]
    subprocess.run(command, cwd=fresh.path, env=environment, check=True)
    assert (fresh.path / "results/of/eng/corpus/manifest.json").is_file()


def test_every_rules_file_is_documented_and_runs_its_settings_file():
    for path, text in RULES.items():
        assert text.startswith('"""'), f"{path} does not say what it takes and gives"
        # Snakemake does not track `{config[...]}`, globals in shell and `run:`, and params by order and repr alone.
        assert not re.search(r"config\[|^\s+(run|params):", text, re.MULTILINE), path
        commands = re.findall(r"python -m babelmill\.\w+ {input\.settings:q} --threads {threads}", text)
        assert len(commands) == text.count("    shell:"), path


def test_values_of_the_command_line_are_the_same_to_snakemake_and_to_the_commands(fresh):
    options = ("--config", "train={seed: 16, max_steps: 1e3}", "card={authors: [no], description: '010'}")
    fresh.would_run(*options)
    names = ("train/eng-*", "convert/eng")
    train, card = (read_json(*(fresh.path / "results/settings").glob(f"{name}.json")) for name in names)
    assert (train["train"]["seed"], train["train"]["max_steps"]) == (16, 1000)
    assert (card["card"]["authors"], card["card"]["description"]) == (["no"], "010")
    lines = fresh.python("-m", "babelmill", "config", "eng", *options).stdout
    values = {"train.seed": 16, "train.max_steps": 1000, "card.authors": r"\['no'\]", "card.description": "010"}
    for key, value in values.items():
        assert re.search(rf"^  {key} +{value} +--config$", lines, re.MULTILINE)


def test_what_the_rules_import_is_light(fresh):
    """Of what Snakemake imports itself, pandas among it, we ask for nothing."""
    imports = re.findall(r"^from babelmill.*import.*", "".join(RULES.values()), re.MULTILINE)
    assert imports
    heavy = {"torch", "transformers", "tokenizers", "huggingface_hub", "wandb", "numpy", "pandas", "pyarrow"}
    written = f"Graph(loading.load()).write_settings('eng'); import sys; print({heavy} & set(sys.modules))"
    code = "; ".join([*imports, written])
    done = subprocess.run([sys.executable, "-c", code], cwd=fresh.path, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_pins_of_the_conda_environment_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((ROOT / "envs/babelmill.yaml").read_text())
    pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert pip == project["dependencies"]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", pin) for pin in pip)


def test_a_part_of_a_batch(fresh):
    """The last part is another matter: Snakemake wants the others built before."""
    parts = [fresh.would_run("--batch", f"tier1={part}/3", targets=["tier1"]) for part in (1, 2)]
    models = [{model for rule, model in jobs if rule == "convert"} for jobs in parts]
    assert [len(part) for part in models] == [3, 3]
    assert not set.intersection(*models)


@pytest.mark.slow
def test_another_workflow_takes_this_one_as_a_module(tmp_path):
    """Snakemake's own triggers, which a module must not change, count the inputs that a finished result has no more."""
    guide = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "Snakefile").write_text(code.replace("../babelmill/Snakefile", str(ROOT / "Snakefile")))
    write_texts(tmp_path / "texts/eng", "eng")
    values = {key: SMALL[key] for key in SMALL if key != "targets"}
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump({"title": "A study", "babelmill": values}))
    done, refused = (
        run_module("snakemake", "--dry-run", *options, cwd=tmp_path)
        for options in (("--profile", ROOT / "profiles/local"), ("--cores", "1"))
    )
    assert done.returncode == 0, done.stderr
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", done.stdout + done.stderr, re.MULTILINE))
    stages = ("corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert")
    assert jobs == dict.fromkeys((*stages, "figures"), "1") | {"total": "8"}
    assert refused.returncode == 1 and "error: --rerun-triggers: mtime is expected" in refused.stderr
