"""Run the workflow for benchmarks: a configuration in a folder, and the targets to make there."""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}


def arguments(description: str | None, steps: int = 300) -> argparse.Namespace:
    """Return `folder`, `steps` and `cores` of a benchmark's command line. The folder is created."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=lambda text: Path(text).resolve())
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    return args


def make(folder: Path, configuration: dict[str, Any], targets: list[str], cores: int) -> None:
    """Write the configuration and run Snakemake without GPUs. Existing results are kept."""
    (folder / "config.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", folder]
    command += ["--configfile", folder / "config.yaml", "--cores", cores, "--resources", "gpu=0", "--rerun-incomplete"]
    subprocess.run([*map(str, command), "--", *targets], env=ENVIRONMENT, check=True)
