"""The code digest: an edit that changes behaviour moves exactly the stages that run the edited code."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from babelmill.core import code_versions

STAGES = ["download", "corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert", "publish"]


def digests(package: Path) -> dict[str, str]:
    code = f"from babelmill import digest; print(*[code_versions.of_stage(stage) for stage in {STAGES}])"
    environment = {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return dict(zip(STAGES, done.stdout.split(), strict=True))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    copy = tmp_path_factory.mktemp("package") / "babelmill"
    shutil.copytree(code_versions.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def moved(package: Path, module: str, edit) -> set[str]:
    """The stages whose digest differs after an edit of a module's source."""
    path = package / module
    source = path.read_text()
    before = digests(package)
    path.write_text(edit(source))
    try:
        after = digests(package)
    finally:
        path.write_text(source)
    return {stage for stage in STAGES if before[stage] != after[stage]}


def statement(source):
    return source + "\nEDITED = True\n"


def comment(source):
    return "# a comment\n" + source + "\n\n# another\n"


MODULES = sorted(path.relative_to(code_versions.PACKAGE).as_posix() for path in code_versions.PACKAGE.rglob("*.py"))
# Who runs what. A new module has to be entered here, and so be thought about.
FOLDERS = {"corpus": {"corpus"}, "training": {"train"}, "model": {"train", "export"}, "hub": {"export"}}
SEVERAL = {
    "corpus/__init__.py": {"download", "corpus"},
    "corpus/formats.py": {"download", "corpus"},
    "revisions.py": {"download", "tokenizer"},
    "hub_source.py": {"download", "tokenizer"},
    "credentials.py": {"publish"},
    "documents.py": {"tokenizer", "shards", "evaluate"},
    "pieces.py": {"tokenizer", "shards", "export", "evaluate"},
    "tokenizer_file.py": {"tokenizer", "shards", "export", "evaluate"},
    "tokenizer_report.py": {"tokenizer", "evaluate"},
    "shard_file.py": {"shards", "train", "export", "evaluate"},
    "globs.py": {"corpus"},
    "scoring.py": {"evaluate"},
    "devices.py": {"train", "evaluate"},
    "prove.py": {"export"},
    "exported.py": {"export", "evaluate"},
    "card.py": {"convert"},
    "curve.py": {"convert"},
}
# Commands that are no stage, and what acts through the settings alone.
NONE = """__init__ by_hand clean config configuration digest ending files hub_client languages layers
lock manifest old_checkpoint plan schema show stage
status unlock why"""


def run_by(module: str) -> set[str]:
    if module in SEVERAL:
        return SEVERAL[module]
    folder = module.rpartition("/")[0]
    if folder:
        return FOLDERS[folder]
    stage = module.removesuffix(".py")
    if stage in STAGES:
        return {stage}
    assert stage in NONE.split(), "who runs this module?"
    return set()


@pytest.mark.parametrize("module", MODULES)
def test_an_edit_moves_the_stages_that_run_it(package, module):
    assert moved(package, module, statement) == run_by(module)


@pytest.mark.parametrize("module", ["train.py", "model/gpt_bert.py"])
def test_comments_and_docstrings_move_nothing(package, module):
    assert moved(package, module, comment) == set()
    assert moved(package, module, lambda source: source.replace('"""', '"""Other words. ', 1)) == set()
