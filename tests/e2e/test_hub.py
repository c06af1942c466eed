"""Exported folders in the versions of transformers that people have. The checks themselves are in `hub_checks.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from hub_data import Trained

HERE = Path(__file__).parent
# transformers 4 cannot share an environment with 5: it and what it must have in other versions go into a folder of
# their own, which is made once and put before everything else.
OLD = ["transformers==4.57.6", "tokenizers==0.22.2", "huggingface-hub==0.36.2"]


def installed(packages: list[str]) -> Path:
    """A folder with these packages alone, beside the environment that the tests run in."""
    folder = Path(sys.prefix) / packages[0].replace("==", "-")
    with FileLock(f"{folder}.lock"):
        if not (folder / ".complete").is_file():
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", folder]
            subprocess.run([*map(str, command), *packages], check=True)
            (folder / ".complete").touch()
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    trained = Trained(tmp_path_factory.mktemp("hub"))
    done = trained.export()
    assert done.returncode == 0, done.stderr
    return trained


@pytest.mark.parametrize("version", ["5.23.0", "4.57.6"])
def test_exported_folder(trained, version, tmp_path):
    first = [str(installed(OLD))] if version == "4.57.6" else []
    environment = os.environ | {
        "BABELMILL_EXPORT": str(trained.folder / "export"),
        "TRANSFORMERS_VERSION": version,
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(first),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "hub_checks.py"]
    done = subprocess.run(list(map(str, command)), env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
