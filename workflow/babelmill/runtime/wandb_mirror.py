"""Weights & Biases as a mirror of a run's record, in a process of its own that can neither stop nor delay the run.

It sends what is added to `metrics.jsonl`: online with a key, offline without one or when the server does not answer.
The run's id is the model's name and the fingerprint, the same after a resume. Keys come from the environment alone, and
`WANDB_NAME`, `WANDB_PROJECT`, `WANDB_MODE` and `WANDB_DISABLED` mean what they mean to W&B and to transformers. The
process ends when its standard input does: with the training, however that ends.
"""

import json
import logging
import os
import re
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


def turned_off() -> str | None:
    """Return the variable of the environment that turns W&B off; None if none does."""
    if os.environ.get("WANDB_DISABLED", "").lower() in ("1", "on", "true", "yes"):
        return "WANDB_DISABLED"
    return "WANDB_MODE" if os.environ.get("WANDB_MODE") == "disabled" else None


class Mirror:
    """The process that mirrors, seen from the training."""

    PATIENCE = 15.0  # seconds after the training's end

    def __init__(self, name: str, folder: Path):
        """Send what will be added to the record of the run in `folder`, a run of model `name`."""
        sent = (folder / "metrics.jsonl").stat().st_size
        command = [sys.executable, "-m", "babelmill.runtime.wandb_mirror", name, str(folder), str(sent)]
        quiet = os.environ | {"WANDB_SILENT": "true", "WANDB_CONSOLE": "off"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, text=True, start_new_session=True, env=quiet, **pipes)
        threading.Thread(target=self._pass_on, daemon=True).start()

    def _pass_on(self) -> None:
        for line in self._process.stdout or ():
            log.warning("W&B: %s", line.rstrip())

    def close(self) -> None:
        """Let it send what is left, for at most `PATIENCE` seconds."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(self.PATIENCE)
        except subprocess.TimeoutExpired:
            log.warning("W&B did not finish in %d s; metrics.jsonl is complete", self.PATIENCE)
            self._process.kill()
            self._process.wait()


def begin(name: str, folder: Path) -> Any:
    """Begin the W&B run; offline if it has to be."""
    import wandb

    run: dict[str, Any] = {
        "id": f"{name}-{folder.name}",
        "name": os.environ.get("WANDB_NAME", name),
        "project": os.environ.get("WANDB_PROJECT", "babelmill"),
        "dir": str(folder),
        "config": json.loads((folder / "identity.json").read_text(encoding="utf-8"))["settings"],
        "resume": "allow",
        "settings": wandb.Settings(init_timeout=8.0, finish_timeout=6.0, x_disable_stats=True),
    }
    try:
        online = "WANDB_MODE" in os.environ or wandb.login(prompt=False, verify=False)
        return wandb.init(mode=None if online else "offline", **run)  # None: W&B reads WANDB_MODE
    except Exception as error:
        print(f"{problem(error)}; recording offline in {folder}", flush=True)
        wandb.teardown()  # forgets that the run's id was used
        return wandb.init(mode="offline", **run)


def problem(error: Exception) -> str:
    """Return what keeps W&B from being used online, in a line."""
    text = str(error).partition("\n")[0]
    refused = re.search(r"permission denied|unauthori[sz]ed|api.key|\b40[13]\b", text, re.IGNORECASE)
    return f"the key was refused ({text}): correct WANDB_API_KEY" if refused else f"not reachable ({text})"


def new_lines(path: Path, start: int) -> Iterator[str]:
    """Yield lines that are added to a file after byte `start`, until standard input ends."""
    with open(path, encoding="utf-8") as file:
        file.seek(start)
        rest, ended = "", False
        while not ended:
            ended = bool(select.select([sys.stdin], [], [], 0.5)[0])  # nothing is ever written to it
            *lines, rest = (rest + file.read()).split("\n")
            yield from lines


def main(name: str, folder: Path, sent: int) -> None:
    """Mirror the record of a run from byte `sent` on, until standard input ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is for the training, which may have more to say
    try:
        run = begin(name, folder)
        for line in map(json.loads, new_lines(folder / "metrics.jsonl", sent)):
            values = {key.replace(".", "/"): value for key, value in flatten(line, f"{line['kind']}.").items()}
            run.log({key: value for key, value in values.items() if isinstance(value, int | float)}, step=line["step"])
        run.finish()
    except Exception as error:
        print(f"off for the rest of this run: {error}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
