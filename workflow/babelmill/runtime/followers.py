"""Follow the record of a run in processes of their own, which can neither stop nor delay the run: W&B, and its picture.

Weights & Biases reads its own variables, such as `WANDB_API_KEY`, `WANDB_NAME`, `WANDB_PROJECT` and `WANDB_MODE`. If it
cannot be online, for instance without a key, it records offline. The run's id stays the same after a resume. W&B adds
to an online run. But an offline recording cannot be continued, so a resumed run's recording begins with the first line
of the record, and takes the place of the one before. This module is also the program that sends the lines.

`training_history.json` and `.png` are written by `release/card/training_history.py`, which takes about a second of one
core to draw the picture. For a run that ends before the first picture, only the stage `convert` draws it.
"""

import contextlib
import json
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE

from babelmill.config.layers import flatten
from babelmill.core.words import first_line

log = logging.getLogger(__name__)
PATIENCE = 15.0  # seconds to wait for a process after the end of the training
FIXED = {"WANDB_INIT_TIMEOUT": "8", "WANDB_FINISH_TIMEOUT": "6"}  # seconds
FIXED |= {"WANDB_RESUME": "allow", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "WANDB_X_DISABLE_STATS": "true"}


@contextlib.contextmanager
def mirror(name: str, folder: Path) -> Iterator[None]:
    """Send all lines that are added to the record of the run in `folder`; `name`: its model."""
    command = [sys.executable, "-m", __name__, folder]
    # Defaults, which the user's variables override, and what must be as it is.
    env = {"WANDB_NAME": name, "WANDB_PROJECT": "babelmill"} | os.environ | FIXED
    env |= {"WANDB_RUN_ID": f"{name}-{folder.name}", "WANDB_DIR": str(folder)}
    process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env, start_new_session=True)
    assert process.stdin and process.stdout

    def pass_on(output: Iterable[bytes]) -> None:
        for line in output:
            log.warning("W&B: %s", line.decode().rstrip())

    messages = threading.Thread(target=pass_on, args=[process.stdout], daemon=True)
    messages.start()
    try:
        yield
    finally:
        process.stdin.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            log.warning("W&B did not finish in %d s; metrics.jsonl is complete", PATIENCE)
            process.kill()
            process.wait()
        messages.join(1)


def send(folder: Path) -> None:
    """Send the lines of the record that W&B does not have, until standard input ends: a kill ends it, too."""
    import wandb

    config = json.loads((folder / "identity.json").read_text(encoding="utf-8"))["settings"]
    try:
        run = wandb.init(config=config)
    except Exception as error:
        print(f"not online ({first_line(error)}), see WANDB_API_KEY and the network; recording in {folder}", flush=True)
        wandb.teardown()  # forgets that the run's id was used
        run = wandb.init(config=config, mode="offline")
    if run.offline:
        remove_older(folder, Path(run.dir).parent, run.id)
    first = run.starting_step  # of a run that goes on, W&B has the steps before it
    with open(folder / "metrics.jsonl", encoding="utf-8") as record:
        rest, ended = "", []
        while not ended:
            ended, *_ = select.select([sys.stdin], [], [], 0.5)  # no data arrives: it is readable at its end alone
            *lines, rest = (rest + record.read()).split("\n")
            for line in map(json.loads, lines):
                if line["step"] < first:
                    continue
                values = {key.replace(".", "/"): value for key, value in flatten(line, f"{line['kind']}.").items()}
                run.log({k: value for k, value in values.items() if isinstance(value, int | float)}, step=line["step"])
    run.finish()


def remove_older(folder: Path, mine: Path, run_id: str) -> None:
    """Remove the older offline recordings of a run, which the one in `mine` contains."""
    for other in (folder / "wandb").glob(f"offline-run-*-{run_id}"):
        if other.resolve() != mine.resolve():
            shutil.rmtree(other, ignore_errors=True)


class History:
    """Updates the history files of a run at each validation; only the main process has one."""

    EVERY = 10.0  # seconds between two pictures

    def __init__(self, folder: Path, model: str):
        """Remember the run's `folder`, and the name of the `model` for the title of the picture."""
        self._folder, self._model = folder, model
        self._process: subprocess.Popen[str] | None = None
        self._drawn = time.monotonic()
        self._behind = False  # the record has a validation that is not in the files yet

    def update(self) -> None:
        """Update the files in the background; if the last update still runs, leave this one to the next call."""
        self._behind = True
        if self._process is None or self._process.poll() is not None:
            self._report()
            self._start()

    def close(self) -> None:
        """Wait at most `PATIENCE` seconds until the last validation is in the files."""
        end = time.monotonic() + PATIENCE
        while self._process is not None:
            try:
                self._process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return  # the process continues alone
            self._report()
            if self._behind:
                self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "babelmill.release.card.training_history", str(self._folder), self._model]
        if time.monotonic() - self._drawn >= self.EVERY:
            command.append("--draw")
            self._drawn = time.monotonic()
        self._behind = False
        null, pipe = subprocess.DEVNULL, subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, stdin=null, stdout=null, stderr=pipe, text=True, start_new_session=True
            )
        except OSError as error:
            log.warning("no training history: %s", error)

    def _report(self) -> None:
        """Log in one line why the process failed, if it failed."""
        process, self._process = self._process, None
        if process is None:
            return
        output = process.communicate()[1].strip().splitlines()
        if process.returncode:
            log.warning("no training history: %s", output[-1] if output else f"it ended with {process.returncode}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the signal is meant for the training, which may still add lines
    try:
        send(Path(sys.argv[1]))
    except Exception as error:
        print(f"turned off for the rest of this run: {error}", flush=True)
