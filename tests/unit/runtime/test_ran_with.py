"""What a training records about its processors and its code, so that a report can say it."""

import re
import shutil
import subprocess
import sys

import pytest

from babelmill import __version__
from babelmill.runtime import run_folder
from babelmill.runtime.run_folder import attempts_of, begin_attempt
from babelmill.runtime.watching import processors
from helpers import ROOT


def test_all_attempts_that_trained_are_named(tmp_path, monkeypatch):
    """An attempt that was not continued has no part in the weights."""
    for processor, done in (("B", 0), ("A", 0), ("B", 4), ("B", 6)):
        monkeypatch.setattr(run_folder, "processors", lambda name=processor: name)
        begin_attempt(tmp_path, 1, done, {"steps": 10})
    attempt = attempts_of(tmp_path)
    assert [ran["processors"] for ran in attempt["ran_with"]] == ["A", "B"]
    assert attempt["ran_with"][0]["code"].startswith(f"babelmill {__version__}")
    assert (attempt["began_after_step"], attempt["steps"]) == (6, 10)


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


def test_the_processors_have_a_name():
    assert re.fullmatch(r"\d+ x \S.*|\S.*, \d+ threads?", processors())
