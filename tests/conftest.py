"""Provide a small workflow that has really run, and functions to run it again after a change."""

import contextlib
import gc
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from babelmill.core.local_sources import matched
from helpers import ROOT
from helpers.programs.prepared import run_module, run_python, start_server

# Tests start many processes beside each other: none of them may take all cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # threads that spin take the cores of others, as in `rules/common.smk`
os.environ["PYTHONPATH"] = f"{ROOT / 'workflow'}:{ROOT / 'tests'}"
# Hundreds of processes would compile the package again, and each test process the tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

PYTHON = "BABELMILL_TEST_PYTHON"  # the variable that tells a test process the path of Python

# A model that trains in a second. Values in every section that the tests change are spelled out here.
SMALL = {
    "targets": ["eng", "deu"],
    "preset": "tiny",
    "tokenizer": {"vocab_size": 320},
    "model": {
        **{"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_hidden_layers": 2},
        "max_position_embeddings": 128,
    },
    "train": {"max_steps": 8, "global_batch_tokens": 256, "sequence_lengths": [16, 32, 64]},
    "evaluation": {"max_documents": 10},
    "run": {"micro_batch_tokens": 128, "log_every": 1, "checkpoint_every": 4},
    "languages": {
        "eng": {"corpus": {"files": ["texts/eng/*.txt"], "validation_share": 0.2}},
        "deu": {"corpus": {"files": ["texts/deu/*.txt"], "validation_share": 0.2}},
    },
}


def one_layer(train: dict, **run) -> dict:
    """Return the settings of such a model of one layer; `train`: more of that section, `run`: its own."""
    model = SMALL["model"] | {"num_hidden_layers": 1}
    return SMALL | {"model": model, "train": SMALL["train"] | train, "run": {"log_every": 1, **run}}


# Its weights grow a hundredfold at each step, until they are not finite.
EXPLODING = {"optimizer": "adamw", "learning_rate": 10.0, "weight_decay": 10.0, "warmup": 0.0, "max_steps": 40}

# Test modules of which one process has much to do, those that take longest first: no other process waits at the end.
# fmt: off
LONGEST = [
    "workflow_on_slurm", "interruptions", "transformers_models", "transformers_sources", "sharded", "life",
    "train_labels", "hub", "sharding", "replicas", "evaluate_labels", "compiling", "predict",
    "rehost_an_owner", "train_on_several", "datasets_of_the_guide", "canine", "snapshots", "suites", "train",
    "prompts", "one_code", "triton", "dataset_parts", "edits", "continue",
]
# fmt: on

WORDS = {
    "eng": "the quick brown fox jumps over a lazy dog while seven wizards boil warm water in large pots",
    "deu": "der schnelle braune Fuchs springt über einen faulen Hund, während sieben Zauberer Wasser kochen",
}


def pytest_configure(config) -> None:
    """Start one server of programs for all test processes, which are forks of it, too."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        sys.executable = os.environ[PYTHON]
    else:
        os.environ[PYTHON] = sys.executable
        python = start_server()
        config.option.tx = [f"{spec}//python={python}" for spec in config.option.tx or []]


def pytest_xdist_auto_num_workers(config) -> int:
    """Return as many processes as cores; with the slow tests two more, since those of SLURM mostly wait for time limits."""
    return len(os.sched_getaffinity(0)) + (0 if "not slow" in config.option.markexpr else 2)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items) -> None:
    """Have tests that share a fixture of their module run in one process, and begin with those that take longest."""
    for item in items:
        if item.path.parent.name in ("slurm", "anywhere"):
            item.add_marker(pytest.mark.slow)
        made = [each.scope for found in item._fixtureinfo.name2fixturedefs.values() for each in found]
        if "module" in made and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_collection_finish() -> None:
    """Exclude what exists by now from garbage collection: a full collection of it takes 0.4 s."""
    gc.freeze()


def write_texts(folder: Path, language: str, documents: int = 60) -> None:
    """Write different documents of ordinary words, which are the same on each call."""
    folder.mkdir(parents=True, exist_ok=True)
    words = WORDS[language].split()
    for number in range(documents):
        order = [words[(number * step + step * step) % len(words)] for step in range(1, 40)]
        (folder / f"{number:03}.txt").write_text(f"{number}. " + " ".join(order) + ".\n", encoding="utf-8")


class Workspace:
    """Holds a folder in which the workflow runs, like a user's checkout."""

    project = ROOT  # whose workflow it is
    environment: dict[str, str] | None = None  # None: that of the tests

    def __init__(self, path: Path):
        self.path = path

    @property
    def config_file(self) -> Path:
        return self.path / "config/config.yaml"

    def configure(self, values: dict) -> None:
        self.config_file.parent.mkdir(parents=True, exist_ok=True)
        self.config_file.write_text(yaml.safe_dump(values, sort_keys=False))

    def arguments(self, *arguments) -> list[str]:
        """Return the arguments of Snakemake to run the workflow here."""
        options = ["--snakefile", self.project / "Snakefile", "--cores", 1, "--resources", "gpu=0"]
        return [*map(str, [*options, "--directory", self.path, *arguments])]

    def command(self, *arguments) -> list[str]:
        """Return the command of Snakemake, for a test that starts it, signals it and waits for it."""
        return [sys.executable, "-m", "snakemake", *self.arguments(*arguments)]

    def snakemake(self, *arguments, check: bool = True) -> subprocess.CompletedProcess:
        return run_module("snakemake", *self.arguments(*arguments), environment=self.environment, check=check)

    def python(self, *arguments, check: bool = False) -> subprocess.CompletedProcess:
        """Run Python in this folder."""
        return run_python(*arguments, cwd=self.path, environment=self.environment, check=check)

    def babelmill(self, *arguments) -> str:
        """Return what a command prints."""
        return self.python("-m", "babelmill", *arguments, check=True).stdout

    def why(self, model: str) -> dict[str, str]:
        """Return what `babelmill why` says of each stage of a model."""
        return dict(line.split(None, 1) for line in self.babelmill("why", model).splitlines()[1:])

    def metrics(self, model: str) -> list[dict]:
        """Return the lines of a trained model's record."""
        lines = (self.path / f"results/of/{model}/train/metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def would_run(self, *arguments, targets=("converted/eng", "converted/deu")) -> set[tuple[str, str]]:
        """Return (rule, model or the label of the result) of each job that a dry run lists."""
        output = self.snakemake(*targets, "--dry-run", *arguments).stdout
        jobs = re.findall(r"^(?:local)?rule (\w+):\n(?: .*\n)*? +wildcards: \w+=([^,\n]+)", output, re.MULTILINE)
        return {(rule, re.sub(r"-[0-9a-f]{10}$", "", result)) for rule, result in jobs}


class Checkout(Workspace):
    """Holds a folder in which a copy of the project is used, as by somebody who changed the code or upgraded."""

    def __init__(self, project: Path, path: Path):
        """Copy the project to `project`; `path` is the folder that all commands run in."""
        super().__init__(path)
        self.project = project
        for name in ("workflow", "config", "profiles", "envs"):
            shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("*.egg-info"))
        for name in ("Snakefile", "CHANGELOG.md"):
            shutil.copy(ROOT / name, project / name)

    @property
    def environment(self) -> dict[str, str]:
        package = {"PYTHONPATH": f"{self.project / 'workflow'}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
        return {**os.environ, **package}

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that must be in a file exactly once."""
        source = (self.project / name).read_text(encoding="utf-8")
        assert source.count(old) == 1, f"{name} has {old!r} {source.count(old)} times"
        (self.project / name).write_text(source.replace(old, new), encoding="utf-8")

    def package(self, name: str, old: str, new: str) -> None:
        """Edit a module of the package."""
        self.edit(f"workflow/babelmill/{name}", old, new)


def made_once(tmp_path_factory, name: str, make) -> Path:
    """Return a folder of this name that `make` fills, once for all test processes."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{path}.lock"):
        if not Path(f"{path}.made").exists():
            shutil.rmtree(path, ignore_errors=True)
            make(path)
            Path(f"{path}.made").touch()
    return path


def build(path: Path) -> None:
    """Run the small workflow."""
    workspace = Workspace(path)
    workspace.configure(SMALL)
    for language in WORDS:
        write_texts(workspace.path / "texts" / language, language)
    output = workspace.snakemake("converted/eng", "converted/deu", "--profile", ROOT / "profiles/local").stderr
    (path / "output.txt").write_text(output)  # what a user sees


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """Return the folder of a workflow that has run for two models."""
    return made_once(tmp_path_factory, "built", build)


@pytest.fixture
def workspace(built, tmp_path) -> Workspace:
    """Return a copy of the built workflow with its file times, which a test may change."""
    shutil.copytree(built, tmp_path / "work", symlinks=True)
    return Workspace(tmp_path / "work")


@pytest.fixture(autouse=True)
def forget_files() -> None:
    """Have no test know files of another's folder: a process reads most files of the settings only once."""
    matched.cache_clear()


@pytest.fixture
def folder(monkeypatch, tmp_path) -> Path:
    """Return an empty folder, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextlib.contextmanager
def port_for_this() -> Iterator[int]:
    """Yield a port of this machine that nobody uses, where programs of the test can meet.

    It stays bound, but for them (they, too, set SO_REUSEADDR). So no other program gets it before they do.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        yield holder.getsockname()[1]


@pytest.fixture
def free_port() -> Iterator[int]:
    """Yield such a port until the test ends."""
    with port_for_this() as port:
        yield port


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Yield a Hub on this machine, which this process and all that it starts talk to, with an empty cache."""
    from helpers.hub.hub_server import hub_here

    with hub_here(monkeypatch, tmp_path / "cache") as server:
        yield server


@pytest.fixture(scope="session")
def exported(tmp_path_factory) -> Path:
    """Return a small model that knows three sentences by heart (`hub_data.py`), trained and exported."""
    from helpers.hub.hub_data import make_exported  # with PyTorch, which most tests do without

    return made_once(tmp_path_factory, "hub", make_exported)


@pytest.fixture(scope="session")
def exported_norbert4(tmp_path_factory) -> Path:
    """Return the exported folder of a NorBERT4 that knows the same sentences."""
    from helpers.hub.hub_data import make_exported

    return made_once(tmp_path_factory, "norbert4", make_exported) / "export"


@pytest.fixture
def trained(exported, tmp_path) -> Path:
    """Return a copy of it, which a test may change."""
    return shutil.copytree(exported, tmp_path / "work")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Return a run of the training stage that nothing disturbed (`training_data.py`)."""
    from helpers.training.training_data import Data, train_undisturbed

    return Data.at(made_once(tmp_path_factory, "finished", train_undisturbed))


@pytest.fixture(scope="session")
def labeller(tmp_path_factory) -> Path:
    """Return the exported folder of a small model of labels, hardly trained (`training_data.py`)."""
    from helpers.training.training_data import make_labeller

    return made_once(tmp_path_factory, "labeller", make_labeller) / "export"


@pytest.fixture
def data(finished, tmp_path):
    """Return the same data and settings in a separate folder, without any training."""
    from helpers.training.training_data import Data

    return Data.at(tmp_path / "data", finished)
