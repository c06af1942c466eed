"""`make release` writes a number wherever it stands, and refuses what is no next release."""

import subprocess
from datetime import date

import pytest
import yaml

from babelmill.core.files import UserError
from helpers import ROOT
from scripts import release

pytestmark = pytest.mark.slow

NUMBERED = (
    "workflow/babelmill/__init__.py",
    "CITATION.cff",
    "CHANGELOG.md",
)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository that holds the files with a number."""
    for name in NUMBERED:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((ROOT / name).read_bytes())
    changes = tmp_path / "CHANGELOG.md"
    if "## [Unreleased]\n" not in (text := changes.read_text()):
        changes.write_text(text.replace("\n## [", "\n## [Unreleased]\n\n## [", 1))
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["release.py", "98.0.0"])
    git("init", "--quiet")
    git("add", "--all")
    for setting in (("user.name", "A"), ("user.email", "a@b.example"), ("commit.gpgsign", "false")):
        git("config", *setting)
    git("commit", "--quiet", "--message", "All")
    return tmp_path


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=release.ROOT, check=True, capture_output=True, text=True).stdout


def test_a_release_writes_its_number_wherever_it_stands(clone):
    texts = {path.relative_to(clone).as_posix(): text for path, text in release.replaced("98.0.0").items()}
    assert sorted(texts) == sorted(NUMBERED)
    assert '__version__ = "98.0.0"\n' in texts["workflow/babelmill/__init__.py"]
    citation = yaml.safe_load(texts["CITATION.cff"])
    assert (citation["version"], citation["date-released"]) == ("98.0.0", date.today().isoformat())
    assert f"\n## [98.0.0] - {date.today().isoformat()}\n" in texts["CHANGELOG.md"]
    assert "[Unreleased]" not in texts["CHANGELOG.md"]


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("", "three numbers"),
        ("0.3.0", "the next one has a higher number"),
        ("99.0.0", "git has a tag v99.0.0"),
    ],
)
def test_what_is_no_next_release_is_refused(clone, version, reason):
    git("tag", "v99.0.0")
    with pytest.raises(UserError, match=reason):
        release.refuse(version)
