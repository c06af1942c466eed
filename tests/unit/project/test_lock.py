"""The lock files list every package that the environment needs, as it is installed here, with hashes."""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from babelmill.config.resolve import ROOT

pytestmark = pytest.mark.slow

NAMES = ("lock.txt", "lock-tools.txt", "lock-torch.txt")
LOCKS = {name: (ROOT / "envs" / name).read_text(encoding="utf-8") for name in (*NAMES, "lock-release.txt")}


def packages(*names) -> list[Requirement]:
    """What lock files list."""
    lines = "".join(LOCKS[name] for name in names).splitlines()
    return [Requirement(line.rstrip(" \\")) for line in lines if "==" in line]


def here() -> list[Requirement]:
    """Those of PyPI that this Python needs."""
    return [each for each in packages("lock.txt", "lock-tools.txt") if each.marker is None or each.marker.evaluate()]


def test_the_locks_are_what_is_installed():
    for package in here():
        assert package.specifier.contains(distribution(package.name).version), f"{package}: run make setup"


def test_the_locks_have_every_pin():
    text = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = text["project"]["optional-dependencies"]

    def missing(pins, *locks) -> set[str]:
        have = {f"{package.name}{package.specifier}" for package in packages(*locks)}
        return {f"{canonicalize_name(pin.name)}{pin.specifier}" for pin in map(Requirement, pins)} - have

    to_run = text["project"]["dependencies"] + text["build-system"]["requires"]
    to_run += extras["slurm"] + extras["cluster"] + extras["s3"]
    assert not missing(to_run, "lock.txt", "lock-torch.txt"), "run make lock"
    assert not missing(extras["test"] + extras["docs"], *NAMES), "run make lock"
    assert not missing(extras["release"], "lock-release.txt"), "run make lock"


def test_what_packages_need_is_locked_too():
    """Also the other packages that PyTorch's CUDA builds need; which of them is installed depends on the machine."""
    locked = {package.name for package in packages(*NAMES)}
    for package in here():
        for needed in map(Requirement, distribution(package.name).requires or []):
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert canonicalize_name(needed.name) in locked, f"{package}: {needed}"


def test_the_licence_of_every_locked_package_that_is_installed_is_listed():
    listed = dict(line.split(": ", 1) for line in (ROOT / "envs/licences.txt").read_text().splitlines()[1:])
    assert listed.keys() == {package.name for package in here()} | {"torch"}, "run make lock"
    assert "unknown" not in listed.values()


def wheel(folder: Path, name: str, version: str) -> str:
    """Make a wheel with one empty module, and return its hash."""
    file, about = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as content:
        content.writestr(f"{name}.py", "")
        content.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        content.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        content.writestr(f"{about}/RECORD", "")
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("damaged", "said"), [("nothing", ""), ("wool-1", "DO NOT MATCH THE HASHES"), ("torch-2+cpu", "no hash")]
)
def test_only_files_with_their_hashes_are_installed_and_a_cpu_build_of_pytorch(tmp_path, damaged, said):
    """By envs/install.sh, with locks of three small packages, in an environment with this pip alone."""
    envs, wheels, environment = (tmp_path / name for name in ("envs", "wheels", "environment"))
    envs.mkdir()
    wheels.mkdir()
    shutil.copy(ROOT / "envs/install.sh", envs)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    for part in Path(sysconfig.get_path("purelib")).glob("pip*"):
        (site / part.name).symlink_to(part)
    pip = f"pip=={distribution('pip').version} --hash=sha256:{'0' * 64}\n"  # of this version: nothing is installed
    (envs / "lock-tools.txt").write_text(pip)
    (envs / "lock.txt").write_text(f"wool==1 \\\n    --hash=sha256:{wheel(wheels, 'wool', '1')}\n")
    cpu = wheel(wheels, "torch", "2+cpu")
    (envs / "lock-torch.txt").write_text(f"torch==2 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{cpu}\n")
    for path in wheels.glob(f"{damaged}-*"):
        with zipfile.ZipFile(path, "a") as content:
            content.writestr("worse.py", "")
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    settings |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    command = ["sh", envs / "install.sh", environment / "bin/python", "lock.txt"]
    done = subprocess.run(command, env=settings, capture_output=True, text=True)
    found = {path.name.removesuffix(".dist-info") for path in site.glob("*.dist-info") if not path.is_symlink()}
    assert (done.returncode == 0) == (found == {"torch-2+cpu", "wool-1"}) == (damaged == "nothing"), done.stderr
    assert said in done.stderr and damaged not in found
