"""Fine-tune a model for all its tasks in one job, several at once (rule `tune_all`; `run.tasks_at_once`).

    python -m babelmill.tasks.together --settings results/settings/eng/run.json \\
        --tunings results/settings/eng/tune.rte.42.json results/settings/eng/tune.mrpc.42.json \\
        --export results/exports/eng --out results/tuning/eng/123.done

A small fine-tuning takes minutes and leaves most of a GPU idle, so one cluster job for each would wait longer than it
works. Here each is a process of the stage `tune`, with its own checkpoints and log. Its results wait in
results/tuning/{model}/{task}/{seed}.made until the rule `tune` moves them to their place. What waits there is not made
again, so a job that was killed goes on, and one that fails spoils no other. `--tunings` are those without results in
their place.
"""

import argparse
import contextlib
import functools
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import NamedTuple

from babelmill.config.stage_settings import RunSettings, TuneSettings
from babelmill.core import manifest, stage_entry
from babelmill.core.files import UserError, write_json
from babelmill.core.words import plural
from babelmill.runtime import gpu_claims, slurm
from babelmill.runtime.launch import SHUTDOWN_SECONDS, end_with_launcher
from babelmill.runtime.slurm import EXIT_CODE, Stop
from babelmill.settings import read_settings
from babelmill.stages import STAGES

POLL_SECONDS = 0.5
LOGS = Path("logs/tune_all")

log = logging.getLogger("babelmill.tune")


class Tuning(NamedTuple):
    """A fine-tuning of the model: its settings file, what they say, and the folders of its rows, one per language."""

    path: Path
    settings: TuneSettings
    rows: list[Path]

    @property
    def name(self) -> str:
        """Return what the log calls it."""
        return f"{self.settings.task}, seed {self.settings.seed}"

    @property
    def checkpoints(self) -> Path:
        return Path("results/tuning", self.settings.name, self.settings.task, str(self.settings.seed))

    @property
    def made(self) -> Path:
        """Return the folder in which its results wait; not in that of the checkpoints, which is deleted at the end."""
        return self.checkpoints.with_name(f"{self.settings.seed}.made")

    @property
    def log(self) -> Path:
        return LOGS / self.settings.name / self.settings.task / f"{self.settings.seed}.log"

    def is_made(self, export: Path) -> bool:
        """Return whether its results wait: of these settings, this model and these rows. Delete what else is there."""
        upstream = [export, *self.rows]
        with contextlib.suppress(UserError):  # there is none, or it is damaged
            about = manifest.verify(self.made)
            manifest.verify_upstream(self.made, *upstream)
            if about["key"] == manifest.key_of("tune", self.settings.raw, upstream):
                return True
        if self.made.exists():
            shutil.rmtree(self.made)
        return False


def read(path: Path) -> Tuning:
    """Read the settings file of a fine-tuning."""
    settings = read_settings(path, TuneSettings)
    return Tuning(path, settings, [STAGES["task"].path(code, settings.task) for code in settings.covered])


def tune_all(tunings: list[Tuning], export: Path, at_once: int, threads: int) -> dict[int, list[Tuning]]:
    """Run fine-tunings, so many at once; after a signal, ask them to leave. Return {exit code: those with it}."""
    stop, left, ended = Stop(ask_slurm=False), Event(), dict[int, list[Tuning]]()
    each = max(1, threads // min(at_once, len(tunings)))
    with ThreadPoolExecutor(at_once) as pool:
        for tuning, code in pool.map(lambda tuning: (tuning, run_one(tuning, export, each, stop, left)), tunings):
            ended.setdefault(code, []).append(tuning)
    return ended


def run_one(tuning: Tuning, export: Path, threads: int, stop: Stop, left: Event) -> int:
    """Run a fine-tuning to its end, and return its exit code. The GPU is claimed already.

    `left`: is set once a fine-tuning has left before its end, since the job's time ends; then no other one begins.
    """
    if stop.signalled is not None or left.is_set():
        return EXIT_CODE
    tuning.log.parent.mkdir(parents=True, exist_ok=True)
    command = ["-m", "babelmill.tune", "--settings", tuning.path, "--export", export, "--tasks", *tuning.rows]
    command += ["--checkpoints", tuning.checkpoints, "--out", tuning.made, "--threads", threads]
    began = time.monotonic()
    with open(tuning.log, "wb") as messages:
        process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdout=messages,
            stderr=messages,
            env=os.environ | {gpu_claims.CLAIMED: "1"},
            start_new_session=True,  # so that Ctrl-C in a terminal reaches this process alone
            preexec_fn=functools.partial(end_with_launcher, os.getpid()),
        )
    asked = False
    while process.poll() is None:
        if stop.signalled is not None and not asked:
            process.terminate()
            asked = True
        if stop.signalled is not None and time.monotonic() > stop.signalled + SHUTDOWN_SECONDS:
            process.kill()
        time.sleep(POLL_SECONDS)
    seconds, code = time.monotonic() - began, process.returncode
    if asked and code in (-signal.SIGTERM, -signal.SIGKILL):  # it could not handle the signal
        code = EXIT_CODE
    if code == EXIT_CODE:
        left.set()
        log.info("%s: left before its end", tuning.name)
    elif code:
        log.error("%s: failed (exit code %d): %s", tuning.name, code, last_line(tuning.log))
    else:
        log.info("%s: made in %.0f s", tuning.name, seconds)
    return code


def last_line(path: Path) -> str:
    """Return the last line of a log, and its path."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return f"{lines[-1] if lines else 'it wrote no log'} ({path})"


def pending(tunings: list[Tuning], export: Path) -> Iterator[Tuning]:
    """Yield the fine-tunings that are not made yet."""
    for tuning in tunings:
        if tuning.is_made(export):
            log.info("%s: made already", tuning.name)
        else:
            yield tuning


def run(args: argparse.Namespace) -> int:
    """Make all fine-tunings of the model that are not made yet. Return the exit code."""
    at_once = read_settings(args.settings, RunSettings).run.tasks_at_once
    tunings = list(pending([read(path) for path in args.tunings], args.export))
    if tunings:
        gpu_claims.claim(args.gpus)
        log.info("%s to make, %d at once", plural(len(tunings), "fine-tuning"), at_once)
        ended = tune_all(tunings, args.export, at_once, args.threads)
        if EXIT_CODE in ended:  # also if others failed, of which a line above tells: the next attempt tries them again
            if args.requeue:
                slurm.requeue()
            return EXIT_CODE
        if failed := [tuning.name for code, ones in ended.items() if code for tuning in ones]:
            raise UserError(
                f"{len(failed)} of {plural(len(tunings), 'fine-tuning')} failed: {'; '.join(failed)}; the lines above"
                " say why. The others are kept"
            )
    write_json(args.out, {"made": [tuning.name for tuning in tunings]})
    return 0


if __name__ == "__main__":
    parser = stage_entry.arguments(__doc__)
    add = parser.add_argument
    add("--tunings", required=True, nargs="+", type=Path, help="the settings files of the stage `tune`")
    add("--export", **stage_entry.FOLDER, help="results/exports/{model}")
    add("--out", required=True, type=Path, help="the file that says that all are made")
    add("--threads", type=int, default=1)
    add("--gpus", type=int, default=0, help="1 for a GPU, 0 for the CPU")
    add("--requeue", type=int, default=0, help="1: requeue the SLURM job if it must end early")
    sys.exit(stage_entry.run(run, parser.parse_args()))
