"""`babelmill unlock`: remove the lock that a killed Snakemake left, where no other run lives in this folder.

A Snakemake that was killed with -9 leaves its lock, and its jobs live on: they are named with their process ids. `make
demo` calls this first, so that the same line works again. It refuses nothing: where another Snakemake runs in this
folder the lock simply stays, and Snakemake says so.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import psutil

from babelmill.commands.run_summary import leftovers
from babelmill.config.inputs import SETTINGS


def processes_here() -> dict[int, tuple[int, list[str]]]:
    """Return {process id: (its parent's, command line)} of what works in this folder, without this process."""
    found = {}
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and Path(process.cwd()) == Path.cwd():
                found[process.pid] = (process.ppid(), process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def is_snakemake(command: list[str]) -> bool:
    """Whether a command line is Snakemake's."""
    return any(Path(word).name == "snakemake" for word in command[:3]) or "snakemake" in command[1:4]


def living_jobs(processes: dict[int, tuple[int, list[str]]]) -> list[str]:
    """Describe the jobs among some processes; of one that has started others, it alone is named."""
    jobs = {}
    for pid, (_, command) in processes.items():
        settings = Path(command[command.index("--settings") + 1]) if "--settings" in command[:-1] else Path()
        if settings.parent.parent == SETTINGS:
            jobs[pid] = f"{settings.stem} {settings.parent.name}: process {pid}"
    return [job for pid, job in jobs.items() if processes[pid][0] not in jobs]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--profile", help="a profile folder, as for Snakemake")


def run(args: argparse.Namespace) -> int:
    """Unlock if there is a lock and nobody who holds it; name the jobs that live on."""
    processes = processes_here()
    if any(is_snakemake(command) for _, command in processes.values()):
        return 0
    if jobs := living_jobs(processes):
        print("Jobs of a killed Snakemake live on here. Wait for them, or end them with `kill` (training saves first):")
        print("\n".join(f"  {job}" for job in jobs), flush=True)
    if jobs := leftovers():
        print(f"SLURM jobs of a killed Snakemake live on; the next run cancels them: {', '.join(jobs)}", flush=True)
    locks = Path(".snakemake/locks")
    if not (locks.is_dir() and any(locks.iterdir())):
        return 0
    profile = ["--profile", args.profile] if args.profile else []
    return subprocess.call([sys.executable, "-m", "snakemake", "--unlock", "--quiet", "all", *profile])
