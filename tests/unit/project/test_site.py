"""The documentation site: it is built without a warning, fits a phone, needs no network, and its reference is complete."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from babelmill.cli import COMMANDS
from babelmill.config.entries import User
from babelmill.config.resolve import ROOT
from babelmill.config.schema import SECTIONS
from helpers.browser import Browser
from helpers.programs.prepared import run_python

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make site` builds it: a broken link or anchor, or a page that is in no menu, is an error."""
    folder = tmp_path_factory.mktemp("site")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    line = makefile.split("$(BIN)/sphinx-build ")[1].splitlines()[0].replace("build/site/new", f"{folder}/new")
    done = subprocess.run([sys.executable, "-m", "sphinx", *line.split()], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for earlier in ("0.0.9", "0.0.10"):
        (folder / earlier).mkdir()
        (folder / earlier / "README.html").touch()
    run_python("docs/site/versions.py", folder, cwd=ROOT, check=True)
    (new,) = {path.parent.name for path in folder.glob("*/README.html")} - {"0.0.9", "0.0.10"}
    return folder / new


def test_the_reference_has_every_setting_and_command(site):
    text = (site / "docs/settings.html").read_text(encoding="utf-8")
    keys = {f"{name}.{key}" for name, section in SECTIONS.items() for key in section.model_fields}
    for key in keys | (User.model_fields.keys() - SECTIONS.keys()):
        assert f'id="confval-{key}"' in text, f"{key} is missing"
        entry = text.split(f'id="confval-{key}"')[1]
        assert "<p>" in entry.split("</dl>")[1].split("<dt")[0], f"{key} is not explained"
    commands = (site / "docs/commands.html").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"usage: babelmill {command} " in commands.replace("</span>", ""), command


def test_pages_fit_a_phone_and_need_no_network(site):
    with Browser() as browser:
        for page in ("README", "docs/tutorial", "docs/gallery", "docs/settings", "docs/commands", "docs/fields"):
            browser.open(site / f"{page}.html", 360)
            assert browser.value("document.documentElement.scrollWidth") == 360, page
            assert not browser.errors, page
            assert {address.split(":")[0] for address in browser.requests} <= {"file", "data"}, page


def test_each_page_leads_to_the_other_versions_and_the_first_page_to_the_newest(site):
    with Browser() as browser:
        browser.open(site / "docs/tutorial.html", 1280)
        others = browser.value("document.querySelector('.sidebar-drawer .versions a').href")
        browser.open(Path(others.removeprefix("file://")), 1280)
        listed = browser.value("[...document.querySelectorAll('li')].map(each => each.innerText)")
    wanted = ["0.0.10", "0.0.9", site.name] if site.name == "development" else [site.name, "0.0.10", "0.0.9"]
    assert listed == wanted
    assert f'url={wanted[0]}/README.html"' in (site.parent / "index.html").read_text()


def test_the_notebook_is_the_tutorial():
    made = runpy.run_path(str(ROOT / "docs/site/notebook.py"))["contents"]()
    there = (ROOT / "docs/tutorial.ipynb").read_text(encoding="utf-8")
    assert made == there, "docs/tutorial.md has changed: run python docs/site/notebook.py"
