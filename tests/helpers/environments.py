"""Install packages in other versions than in the tests' environment, and packages that only a test uses.

Each set goes into a folder of its own beside the environment, which is made once and put before everything else.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

# transformers 4 cannot share an environment with 5; and what it must have in other versions.
TRANSFORMERS_4 = ["transformers==4.57.6", "tokenizers==0.22.2", "huggingface-hub==0.36.2"]
# What transformers' Trainer and adapters need.
TUNING = ["peft==0.21.2", "accelerate==1.15.0"]
# Evaluation suites, with what they import and the environment does not have. None of it asks for another PyTorch.
SUITES = ["lm_eval==0.4.13", "minicons==0.3.39", "accelerate==1.15.0", "chardet==6.0.0.post1", "colorama==0.4.6"]
SUITES += ["DataProperty==1.1.1", "datasets==5.2.0", "dill==0.4.1", "lxml==6.1.3", "mbstrdecoder==1.1.5"]
SUITES += ["multiprocess==0.70.19", "pathvalidate==3.3.1", "portalocker==4.4.2", "pytablewriter==1.2.1"]
SUITES += ["python-dateutil==2.9.0.post0", "pytz==2026.6", "sacrebleu==2.6.0", "six==1.17.0", "tabledata==1.3.5"]
SUITES += ["tcolorpy==0.1.7", "typepy==1.3.5", "wonderwords==3.0.1"]


def installed(packages: list[str]) -> Path:
    """Return a folder with only these packages, next to the environment of the tests."""
    folder = Path(sys.prefix) / packages[0].replace("==", "-")
    listed = folder / ".complete"
    with FileLock(f"{folder}.lock"):
        if not listed.is_file() or listed.read_text() != "\n".join(packages):
            # Compiling all modules takes pip ten seconds; Python compiles those that are imported.
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--upgrade"]
            subprocess.run([*command, "--target", str(folder), *packages], check=True)
            # At each start, lm_eval would read the 14,000 files of its own tasks, for 11 seconds. Tests bring theirs.
            for tasks in folder.glob("lm_eval/tasks/*/"):
                shutil.rmtree(tasks)
            listed.write_text("\n".join(packages))
    return folder


def debian(program: str, package: str) -> str:
    """Return the path of a program. If there is none, install Debian's package (as root, with apt-get)."""
    if not shutil.which(program):
        lock = ["-o", "DPkg::Lock::Timeout=300"]
        subprocess.run(["apt-get", "-qq", *lock, "update"], check=True)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "-qq", *lock, "install", "--no-install-recommends", package]
        subprocess.run(install, check=True, env=environment, stdout=subprocess.DEVNULL)
    found = shutil.which(program)
    assert found, f"there is no {program}, and apt-get did not install one"
    return found
