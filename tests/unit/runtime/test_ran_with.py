"""What a training records about its processors and its code, so that a report can say it."""

import re
import shutil
import subprocess
import sys

import pytest

from babelmill import __version__
from babelmill.core.files import read_json
from babelmill.runtime.record import begin_attempt, ran_with
from babelmill.runtime.watching import processors
from helpers import ROOT

ONE = {"processors": "AMD EPYC, 2 threads", "code": "babelmill 1.0.0 at 0123456789ab"}
TWO = ONE | {"processors": "4 x NVIDIA H100"}


def begin(folder, ran: dict[str, str], done: int) -> None:
    begin_attempt(folder, 1, done, steps=10, tokens=100, device="cpu", precision="fp32", ran_with=ran)


def test_all_attempts_that_trained_are_named(tmp_path):
    """An attempt that was not continued has no part in the weights."""
    assert ran_with(tmp_path) == {}
    begin(tmp_path, TWO, done=0)
    begin(tmp_path, ONE, done=0)
    assert ran_with(tmp_path) == {"ran_with": [ONE]}
    for done in (4, 6):
        begin(tmp_path, TWO, done)
    assert ran_with(tmp_path) == {"ran_with": [ONE, TWO]}
    assert read_json(tmp_path / "attempt.json")["began_after_step"] == 6


def git(folder, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A repository with the modules that name the code."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("__init__.py", "core/__init__.py", "core/places.py", "runtime/__init__.py", "runtime/checkout.py"):
        path = folder / "workflow/babelmill" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "workflow/babelmill" / name, path)
    git(folder, "init", "-q")
    git(folder, "add", "workflow")
    git(folder, "commit", "-qm", "one")
    return folder


def named(folder) -> str:
    """What the package in a folder says about itself."""
    code = "import sys; sys.path[0] = 'workflow'; from babelmill.runtime import checkout; print(checkout.code())"
    command = [sys.executable, "-B", "-c", code]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_is_that_of_the_checkout(checkout):
    commit = git(checkout, "rev-parse", "HEAD")[:12]
    (checkout / "config.yaml").write_text("a user's own file\n")
    assert named(checkout) == f"babelmill {__version__} at {commit}"
    (checkout / "workflow/babelmill/own.py").write_text("edited = True\n")
    assert named(checkout) == f"babelmill {__version__} at {commit}, edited"


def test_a_package_that_is_no_checkout_has_no_commit(checkout, tmp_path):
    """Though it may stand in the checkout of another project."""
    shutil.copytree(checkout / "workflow", tmp_path / "site-packages/workflow")
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-qm", "another project", "--allow-empty")
    assert named(tmp_path / "site-packages") == f"babelmill {__version__}"


def test_the_processors_have_a_name():
    assert re.fullmatch(r"\d+ x \S.*|\S.*, \d+ threads?", processors())
