"""Mirror a run's record to Weights & Biases, in a separate process that can neither stop nor delay the run.

The process sends each line that is added to `metrics.jsonl`. If W&B cannot be online, for instance without a key, it
records offline. The run's id consists of the model's name and the fingerprint, so it stays the same after a resume. W&B
reads its own variables, such as `WANDB_API_KEY`, `WANDB_NAME`, `WANDB_PROJECT` and `WANDB_MODE`. The process ends when
its standard input is closed, which happens whenever the training ends, even after a kill.
"""

import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from babelmill.config.layers import flatten

log = logging.getLogger(__name__)
TIMEOUTS = {"WANDB_INIT_TIMEOUT": "8", "WANDB_FINISH_TIMEOUT": "6"}  # seconds
QUIET = {"WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "WANDB_X_DISABLE_STATS": "true"}


class Mirror:
    """The mirroring process, as the training sees it."""

    PATIENCE = 15.0  # seconds that `close` waits after the end of the training

    def __init__(self, name: str, folder: Path):
        """Start to send all lines that are added to the record of the run in `folder`; `name`: its model."""
        command = [sys.executable, "-m", __name__, folder, str((folder / "metrics.jsonl").stat().st_size)]
        ours = {"WANDB_RUN_ID": f"{name}-{folder.name}", "WANDB_RESUME": "allow", "WANDB_DIR": str(folder)}
        # Defaults; what the user has set; and what must be as it is.
        environment = {"WANDB_NAME": name, "WANDB_PROJECT": "babelmill"} | os.environ | ours | TIMEOUTS | QUIET
        options: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, text=True, start_new_session=True, env=environment, **options)
        self._messages = threading.Thread(target=self._pass_on, daemon=True)
        self._messages.start()

    def _pass_on(self) -> None:
        for line in self._process.stdout or ():
            log.warning("W&B: %s", line.rstrip())

    def close(self) -> None:
        """Wait at most `PATIENCE` seconds until the process has sent the last lines."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(self.PATIENCE)
        except subprocess.TimeoutExpired:
            log.warning("W&B did not finish in %d s; metrics.jsonl is complete", self.PATIENCE)
            self._process.kill()
            self._process.wait()
        self._messages.join(1)


def begin(folder: Path) -> Any:
    """Begin the W&B run, offline if it cannot be online."""
    import wandb

    config = json.loads((folder / "identity.json").read_text(encoding="utf-8"))["settings"]
    try:
        return wandb.init(config=config)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        print(f"not online ({reason}), see WANDB_API_KEY and the network; recording in {folder}", flush=True)
        wandb.teardown()  # forgets that the run's id was used
        return wandb.init(config=config, mode="offline")


def new_lines(path: Path, start: int) -> Iterator[str]:
    """Yield lines that are added to a file after byte `start`, until standard input ends."""
    with open(path, encoding="utf-8") as file:
        file.seek(start)
        rest, ended = "", []
        while not ended:
            ended, *_ = select.select([sys.stdin], [], [], 0.5)  # no data arrives: it is readable at its end alone
            *lines, rest = (rest + file.read()).split("\n")
            yield from lines


def main(folder: Path, sent: int) -> None:
    """Mirror the record of a run from byte `sent` on, until standard input ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the signal is meant for the training, which may still add lines
    try:
        run = begin(folder)
        for line in map(json.loads, new_lines(folder / "metrics.jsonl", sent)):
            values = {key.replace(".", "/"): value for key, value in flatten(line, f"{line['kind']}.").items()}
            run.log({key: value for key, value in values.items() if isinstance(value, int | float)}, step=line["step"])
        run.finish()
    except Exception as error:
        print(f"turned off for the rest of this run: {error}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
