"""Run the workflow for benchmarks: a configuration in a folder, and the targets to make there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}


def make(folder: Path, configuration: dict[str, Any], models: Iterable[str], cores: int, *until: str) -> None:
    """Write the configuration and make models without GPUs, or what they need up to some stages.

    Existing results are kept. What a model uses is then in `results/of/{model}/{stage}`.
    """
    (folder / "config.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", folder]
    command += ["--configfile", folder / "config.yaml", "--cores", cores, "--resources", "gpu=0", "--rerun-incomplete"]
    command += ["--until", *until] if until else []
    targets = [f"converted/{model}" for model in models]
    subprocess.run([*map(str, command), "--", *targets], env=ENVIRONMENT, check=True)


def write_job(folder: Path, stage: str, content: dict[str, Any]) -> str:
    """Write the settings file of a job in a folder. Return its path there; the result is `results/{stage}/out`."""
    path = f"results/settings/{stage}/out.json"
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(json.dumps(content), encoding="utf-8")
    return path
