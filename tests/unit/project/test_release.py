"""`make release` writes a number wherever it stands, and refuses what is no next release."""

from datetime import date

import pytest
import yaml

from helpers import ROOT
from scripts import release

pytestmark = pytest.mark.slow


def test_a_release_writes_its_number_wherever_it_stands_and_what_is_none_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "ROOT", tmp_path)
    module, citation, changes = (
        tmp_path / name for name in ("workflow/babelmill/__init__.py", "CITATION.cff", "CHANGELOG.md")
    )
    for path in (module, citation, changes):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((ROOT / path.relative_to(tmp_path)).read_bytes())
    text = changes.read_text().replace("## [Unreleased]\n", "")
    changes.write_text(text.replace("\n## [", "\n## [Unreleased]\n\n## [", 1))
    for words in ("init --quiet", "add --all", "-c user.name=A -c user.email=a@b.example commit --quiet --message All"):
        release.git(*words.split())
    release.git("tag", "v99.0.0")
    for version, reason in {"": "three numbers", "0.3.0": "a higher number", "99.0.0": "git has a tag v99.0.0"}.items():
        with pytest.raises(SystemExit, match=reason):
            release.refuse(version)
    release.refuse("98.0.0")
    release.write("98.0.0")
    today = date.today().isoformat()
    assert '__version__ = "98.0.0"\n' in module.read_text()
    said = yaml.safe_load(citation.read_text())
    assert (said["version"], said["date-released"]) == ("98.0.0", today)
    text = changes.read_text()
    assert f"\n## [98.0.0] - {today}\n" in text and "[Unreleased]" not in text
    with pytest.raises(SystemExit, match="git status lists changes"):
        release.refuse("98.0.0")
