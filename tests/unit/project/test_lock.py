"""`envs/lock.txt` lists every package that the environment needs, as it is installed here."""

import runpy
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from babelmill.config.resolve import ROOT

LOCK = (ROOT / "envs/lock.txt").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="another Python needs other packages")
def test_the_lock_is_what_is_installed():
    assert runpy.run_path(str(ROOT / "envs/lock.py"))["text"]() == LOCK, "run make lock"


def test_the_lock_has_every_pin_but_pytorchs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = [pin for group in project["project"]["optional-dependencies"].values() for pin in group]
    pins = map(Requirement, [*project["project"]["dependencies"], *extras, *project["build-system"]["requires"]])
    wanted = {f"{canonicalize_name(pin.name)}{pin.specifier}" for pin in pins if pin.name not in ("torch", "triton")}
    assert wanted <= set(LOCK.splitlines())
    assert "torch==" not in LOCK and "nvidia-cu" not in LOCK


def test_the_licence_of_every_locked_package_is_listed():
    listed = dict(line.split(": ", 1) for line in (ROOT / "envs/licences.txt").read_text().splitlines()[1:])
    assert listed.keys() == {line.split("==")[0] for line in LOCK.splitlines()[1:]} | {"torch"}, "run make lock"
    assert "unknown" not in listed.values()
