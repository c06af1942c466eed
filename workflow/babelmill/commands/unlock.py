"""`babelmill unlock`: remove the lock that a killed Snakemake left, where no other run lives in this folder.

A Snakemake that was killed with -9 leaves its lock. `make demo` calls this first, so that the same line works again.
It refuses nothing: where another Snakemake runs in this folder the lock simply stays, and Snakemake says so.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import psutil


def lives_here(process: psutil.Process) -> bool:
    """Whether a process is a Snakemake that works in this folder."""
    try:
        command = process.cmdline()
        runs_snakemake = any(Path(word).name == "snakemake" for word in command[:3]) or "snakemake" in command[1:4]
        return runs_snakemake and process.pid != os.getpid() and Path(process.cwd()) == Path.cwd()
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--profile", help="a profile folder, as for Snakemake")


def run(args: argparse.Namespace) -> int:
    """Unlock if there is a lock and nobody who holds it."""
    locks = Path(".snakemake/locks")
    if not (locks.is_dir() and any(locks.iterdir())) or any(map(lives_here, psutil.process_iter())):
        return 0
    profile = ["--profile", args.profile] if args.profile else []
    return subprocess.call([sys.executable, "-m", "snakemake", "--unlock", "--quiet", "all", *profile])
