"""The image of envs/babelmill.def, built by the real Apptainer: with `--sdm apptainer`, a model is made in it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from babelmill import __version__
from conftest import ROOT, SMALL, write_texts

pytestmark = pytest.mark.timeout(3600)


def run(*command, cwd: Path, path: Path) -> str:
    """What a command prints that succeeds; programs of the folder `path` come first."""
    environment = os.environ | {"PATH": f"{path}:{os.environ['PATH']}"}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def apptainer(tmp_path_factory, request):
    """A folder with the program (in bin/) and the image, which is a folder, too: to pack it takes minutes."""
    folder = tmp_path_factory.mktemp("apptainer")
    request.addfinalizer(lambda: shutil.rmtree(folder))  # 2 GB
    done = subprocess.run([Path(__file__).with_name("apptainer_up.sh"), folder], capture_output=True, text=True)
    if done.returncode:
        pytest.fail(done.stderr.strip(), pytrace=False)
    (torch,) = re.findall(r"^torch==\S+", (ROOT / "envs/lock-torch.txt").read_text(), re.MULTILINE)
    wheels = folder / "wheels/torch"  # an index with the build of PyTorch that the tests have
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels]
    run(*pip, "--only-binary", ":all:", "--python-version", "3.11", torch, cwd=folder, path=folder)
    (wheel,) = wheels.iterdir()
    (wheels / "index.html").write_text(f'<a href="{wheel.name.replace("+", "%2B")}">{wheel.name}</a>')
    arguments = {"BOOTSTRAP": "localimage", "BASE": folder / "base", "TORCH_INDEX": "file:///mnt"}
    command = ["apptainer", "build", "--sandbox", "--bind", f"{wheels.parent}:/mnt"]
    for name, value in arguments.items():
        command += ["--build-arg", f"{name}={value}"]
    run(*command, folder / "babelmill.sif", "envs/babelmill.def", cwd=ROOT, path=folder / "bin")
    return folder


def test_a_model_is_made_by_jobs_in_the_image(apptainer, tmp_path):
    (tmp_path / "babelmill.sif").symlink_to(apptainer / "babelmill.sif")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(yaml.safe_dump(SMALL | {"targets": ["eng"]}))
    write_texts(tmp_path / "texts/eng", "eng")
    snakemake = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile"]
    options = ["--profile", ROOT / "profiles/local", "--sdm", "apptainer"]
    assert "1 of 1 model converted" in run(*snakemake, *options, cwd=tmp_path, path=apptainer / "bin")
    assert (tmp_path / "converted/eng/README.md").is_file()


def test_its_commands_need_nothing_of_this_machine(apptainer, tmp_path):
    in_image = ["apptainer", "exec", "--containall", "--bind", tmp_path, "--pwd", tmp_path, apptainer / "babelmill.sif"]
    run(*in_image, "babelmill", "init", ".", cwd=tmp_path, path=apptainer / "bin")
    assert __version__ in run(*in_image, "babelmill", "--version", cwd=tmp_path, path=apptainer / "bin")
    dry_run = [*in_image, "snakemake", "--profile", "profiles/demo", "--dry-run", "converted/eng"]
    assert "9 jobs would run" in run(*dry_run, cwd=tmp_path, path=apptainer / "bin")
