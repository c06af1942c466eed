"""Remove the lock that a killed Snakemake left, unless another run is active in this folder.

    babelmill unlock

A Snakemake that was killed with -9 leaves its lock, and its jobs keep running: they are listed with their process ids.
`make demo` calls this first, so that it works after a kill. If another Snakemake runs in this folder, the lock stays,
which is not an error.
"""

import argparse
import shutil
from pathlib import Path

from babelmill.commands.progress.earlier_runs import living_jobs, processes_here, slurm_jobs, snakemake_among


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare nothing: the command has no arguments."""


def run(args: argparse.Namespace) -> int:
    """Remove the lock if no Snakemake holds it; list the jobs that are still running."""
    processes = processes_here()
    if pid := snakemake_among(processes):
        print(f"Snakemake runs here, process {pid}: its lock stays.")
        return 0
    if jobs := living_jobs(processes):
        print(
            "Jobs of a killed Snakemake still run here. Wait for them, or end them with `kill` (training saves first):"
        )
        print("\n".join(f"  {job}: process {pid}" for pid, job in jobs.items()), flush=True)
    if jobs := slurm_jobs():
        print(f"SLURM jobs of a killed Snakemake still run; the next run cancels them: {', '.join(jobs)}", flush=True)
    locks = Path(".snakemake/locks")
    if not (locks.is_dir() and any(locks.iterdir())):
        print("There is no lock here.")
        return 0
    # As `snakemake --unlock` does, which needs a Snakefile here and a configuration without mistakes.
    shutil.rmtree(locks)
    print("Removed the lock of a Snakemake that was killed: the same command continues from here.")
    return 0
