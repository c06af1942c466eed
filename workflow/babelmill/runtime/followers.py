"""Follow the record of a run in threads, which can neither stop nor delay the run: W&B, and the run's picture.

Weights & Biases reads its own variables, such as `WANDB_API_KEY`, `WANDB_NAME`, `WANDB_PROJECT` and `WANDB_MODE`. If it
cannot be online, for instance without a key, it records offline. The run's id stays the same after a resume. W&B adds
to an online run. But an offline recording cannot be continued, so a resumed run's recording begins with the first line
of the record, and takes the place of the one before.
"""

import contextlib
import json
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from babelmill.config.layers import flatten
from babelmill.core.words import first_line
from babelmill.runtime.slurm import signals

log = logging.getLogger(__name__)
PATIENCE = 10.0  # seconds to wait for W&B after the end of the training
END = 15.0  # seconds after the end of the training when W&B's own process is killed, for which Python's exit waits
FIXED = {"WANDB_INIT_TIMEOUT": "8", "WANDB_FINISH_TIMEOUT": "6"}  # seconds
# W&B must not ask for a key on the terminal, and says nothing there: our log has what matters.
FIXED |= {"WANDB_RESUME": "allow", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "WANDB_X_DISABLE_STATS": "true"}


@contextlib.contextmanager
def mirror(name: str, folder: Path) -> Iterator[None]:
    """Send all lines of the record of the run in `folder` to W&B, and those that are added; `name`: its model."""
    os.environ |= {"WANDB_NAME": name, "WANDB_PROJECT": "babelmill"} | os.environ | FIXED
    os.environ |= {"WANDB_RUN_ID": f"{name}-{folder.name}", "WANDB_DIR": str(folder)}
    ended, given_up = threading.Event(), threading.Event()

    def follow() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signals())  # W&B's process inherits this: they are for the training
        try:
            send(folder, ended)
        except Exception as error:
            if not given_up.is_set():
                log.warning("W&B: turned off for the rest of this run: %s", first_line(error))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(PATIENCE)
        if thread.is_alive():
            given_up.set()
            log.warning("W&B did not finish in %d s; metrics.jsonl is complete", PATIENCE)
            killer = threading.Timer(END - PATIENCE, end_service)
            killer.daemon = True
            killer.start()


def send(folder: Path, ended: threading.Event) -> None:
    """Send the lines of the record that W&B does not have, until the run has ended."""
    import wandb

    config = json.loads((folder / "identity.json").read_text(encoding="utf-8"))["settings"]
    try:
        run = wandb.init(config=config)
    except Exception as error:
        log.warning(
            "W&B: not online (%s), see WANDB_API_KEY and the network; recording in %s", first_line(error), folder
        )
        wandb.teardown()  # forgets that the run's id was used
        run = wandb.init(config=config, mode="offline")
    if run.offline:
        remove_older(folder, Path(run.dir).parent, run.id)
    first = run.starting_step  # of a run that goes on, W&B has the steps before it
    with open(folder / "metrics.jsonl", encoding="utf-8") as record:
        rest, all_there = "", False
        while not all_there:
            all_there = ended.wait(0.5)
            *lines, rest = (rest + record.read()).split("\n")
            for line in map(json.loads, lines):
                if line["step"] < first:
                    continue
                values = {key.replace(".", "/"): value for key, value in flatten(line, f"{line['kind']}.").items()}
                run.log({k: value for k, value in values.items() if isinstance(value, int | float)}, step=line["step"])
    run.finish()
    wandb.teardown()  # waits until all is written


def remove_older(folder: Path, mine: Path, run_id: str) -> None:
    """Remove the older offline recordings of a run, which the one in `mine` contains."""
    for other in (folder / "wandb").glob(f"offline-run-*-{run_id}"):
        if other.resolve() != mine.resolve():
            shutil.rmtree(other, ignore_errors=True)


def end_service() -> None:
    """Kill W&B's own process."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "wandb" in child.name():
                child.kill()


class History:
    """Updates the history files of a run at each validation; only the main process has one.

    Drawing the picture takes about a second of one core. For a run that ends before the first picture, only the stage
    `convert` draws it.
    """

    EVERY = 10.0  # seconds between two pictures

    def __init__(self, write: Callable[[bool], object]):
        """Prepare to call `write`, which writes the files; its argument says whether to draw the picture, too."""
        self._write = write
        self._thread = ThreadPoolExecutor(1)
        self._drawn = time.monotonic()

    def update(self) -> None:
        """Update the files in the background."""
        if draws := time.monotonic() - self._drawn >= self.EVERY:
            self._drawn = time.monotonic()
        self._thread.submit(self._try, draws)

    def close(self) -> None:
        """Wait until the last validation is in the files."""
        self._thread.shutdown()

    def _try(self, draws: bool) -> None:
        try:
            self._write(draws)
        except Exception as error:
            log.warning("no training history: %s", first_line(error))
