"""Remove the lock that a killed Snakemake left, unless another run is active in this folder.

    babelmill unlock

A Snakemake that was killed with -9 leaves its lock, and its jobs keep running: they are listed with their process ids.
`make demo` calls this first, so that it works after a kill. If another Snakemake runs in this folder, the lock stays,
which is not an error.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import psutil

from babelmill.commands.terminal.run_summary import leftovers
from babelmill.config.inputs import SETTINGS
from babelmill.core.files import UserError
from babelmill.runtime import slurm


def processes_here() -> dict[int, tuple[int, list[str]]]:
    """Return {process id: (parent's process id, command line)} of the other processes that work in this folder."""
    found = {}
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and Path(process.cwd()) == Path.cwd():
                found[process.pid] = (process.ppid(), process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def is_snakemake(command: list[str]) -> bool:
    """Return whether a command line is Snakemake's."""
    return any(Path(word).name == "snakemake" for word in command[:3]) or "snakemake" in command[1:4]


def snakemake_here(processes: dict[int, tuple[int, list[str]]]) -> int | None:
    """Return the process id of another Snakemake among some processes; None if there is none."""
    above = {parent.pid for parent in psutil.Process().parents()}  # `timeout 60 snakemake` is not another Snakemake
    found = [pid for pid, (_, command) in processes.items() if is_snakemake(command) and pid not in above]
    return next((pid for pid in found if processes[pid][0] not in found), None)


def who_holds_the_lock() -> str:
    """Return a message that says why this folder is locked, and what to do."""
    if pid := snakemake_here(processes_here()):
        return (
            f"another Snakemake, process {pid}, works on the same files in this folder: wait for it, or end it"
            " (after a kill -9, `babelmill unlock`)"
        )
    return (
        "this folder is locked, but no Snakemake runs in it on this machine: unless one runs on another machine, it was"
        " killed, and `babelmill unlock` removes its lock"
    )


def living_jobs(processes: dict[int, tuple[int, list[str]]]) -> dict[int, str]:
    """Return {process id: stage and name} of the jobs among some processes, without the processes that jobs started."""
    jobs = {}
    for pid, (_, command) in processes.items():
        settings = Path(command[command.index("--settings") + 1]) if "--settings" in command[:-1] else Path()
        if settings.parent.parent == SETTINGS:
            jobs[pid] = f"{settings.stem} {settings.parent.name}"
    return {pid: job for pid, job in jobs.items() if processes[pid][0] not in jobs}


def of_slurm(pid: int) -> bool:
    """Return whether a process belongs to a SLURM job; False if that is not visible, or the job is over."""
    try:
        job = psutil.Process(pid).environ().get("SLURM_JOB_ID")
    except psutil.Error:
        return False
    return job is not None and not slurm.is_left_over(job)


def refuse_beside_themselves(jobs: set[str]) -> None:
    """Raise a UserError if a job that a run would begin is running already: Snakemake would remove its log.

    SLURM jobs, which may be on this machine, do not count: a run cancels those that an earlier one left.
    """
    for pid, job in living_jobs(processes_here()).items():
        if job in jobs and not of_slurm(pid):
            raise UserError(
                f"{job}: a job of an earlier run is still doing this, process {pid}; wait for it, or end it with `kill`"
                " (training saves first)"
            )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--profile", help="a profile folder, as for Snakemake")


def run(args: argparse.Namespace) -> int:
    """Remove the lock if no Snakemake holds it; list the jobs that are still running."""
    processes = processes_here()
    if pid := snakemake_here(processes):
        print(f"Snakemake runs here, process {pid}: its lock stays.")
        return 0
    if jobs := living_jobs(processes):
        print(
            "Jobs of a killed Snakemake still run here. Wait for them, or end them with `kill` (training saves first):"
        )
        print("\n".join(f"  {job}: process {pid}" for pid, job in jobs.items()), flush=True)
    if jobs := leftovers():
        print(f"SLURM jobs of a killed Snakemake still run; the next run cancels them: {', '.join(jobs)}", flush=True)
    locks = Path(".snakemake/locks")
    if not (locks.is_dir() and any(locks.iterdir())):
        print("There is no lock here.")
        return 0
    profile = ["--profile", args.profile] if args.profile else []
    code = subprocess.call([sys.executable, "-m", "snakemake", "--unlock", "--quiet", "all", *profile])
    if code == 0:
        print("Removed the lock of a Snakemake that was killed: the same command continues from here.")
    return code
