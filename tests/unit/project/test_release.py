"""`make release` writes a number wherever it stands, and refuses what is no next release."""

from datetime import date

import pytest
import yaml

from helpers import ROOT
from scripts import release

pytestmark = pytest.mark.slow


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository that holds the files with a number, and a tag."""
    monkeypatch.setattr(release, "ROOT", tmp_path)
    for name in ("workflow/babelmill/__init__.py", "CITATION.cff", "CHANGELOG.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((ROOT / name).read_bytes())
    changes = tmp_path / "CHANGELOG.md"
    if "## [Unreleased]\n" not in (text := changes.read_text()):
        changes.write_text(text.replace("\n## [", "\n## [Unreleased]\n\n## [", 1))
    release.git("init", "--quiet")
    release.git("add", "--all")
    release.git("-c", "user.name=A", "-c", "user.email=a@b.example", "commit", "--quiet", "--message", "All")
    release.git("tag", "v99.0.0")
    return tmp_path


def test_a_release_writes_its_number_wherever_it_stands(clone):
    release.refuse("98.0.0")
    release.write("98.0.0")
    assert '__version__ = "98.0.0"\n' in (clone / "workflow/babelmill/__init__.py").read_text()
    citation = yaml.safe_load((clone / "CITATION.cff").read_text())
    assert (citation["version"], citation["date-released"]) == ("98.0.0", date.today().isoformat())
    changes = (clone / "CHANGELOG.md").read_text()
    assert f"\n## [98.0.0] - {date.today().isoformat()}\n" in changes and "[Unreleased]" not in changes
    with pytest.raises(SystemExit, match="git status lists changes"):
        release.refuse("98.0.0")


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("", "three numbers"),
        ("0.3.0", "the next one has a higher number"),
        ("99.0.0", "git has a tag v99.0.0"),
    ],
)
def test_what_is_no_next_release_is_refused(clone, version, reason):
    with pytest.raises(SystemExit, match=reason):
        release.refuse(version)
