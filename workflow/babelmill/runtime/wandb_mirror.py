"""Weights & Biases as a mirror of a run's record, in a process of its own that can neither stop nor delay the run.

It reads `metrics.jsonl` as it grows and sends what is new: online with a key, offline without one or when the server
does not answer. The run's id is made of the model's name and the fingerprint, so that it is the same after a resume.
Keys come from the environment alone. It ends when its standard input does: with the training, however that ends.
"""

import argparse
import json
import logging
import netrc
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)


class Mirror:
    """The process that mirrors, seen from the training."""

    PATIENCE = 15.0  # seconds after the training's end

    def __init__(self, name: str, folder: Path):
        """Send what will be added to the record of the run in `folder`, a run of model `name`."""
        sent = (folder / "metrics.jsonl").stat().st_size
        command = [sys.executable, "-m", "babelmill.runtime.wandb_mirror", name, str(folder), str(sent)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
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


def begin(name: str, folder: Path) -> "wandb.Run":
    """Begin the W&B run; offline if it has to be."""
    import wandb

    arguments: dict[str, Any] = {
        "id": f"{re.sub(r'[^A-Za-z0-9_-]', '-', name)}-{folder.name}",
        "name": name,
        "project": os.environ.get("WANDB_PROJECT", "babelmill"),
        "dir": str(folder),
        "config": json.loads((folder / "identity.json").read_text(encoding="utf-8"))["settings"],
        "resume": "allow",
        "settings": wandb.Settings(
            init_timeout=8.0, finish_timeout=6.0, console="off", silent=True, x_disable_stats=True
        ),
    }
    offline = "WANDB_MODE" not in os.environ and not (os.environ.get("WANDB_API_KEY") or has_netrc_key())
    try:
        return wandb.init(mode="offline" if offline else None, **arguments)  # None: W&B reads WANDB_MODE
    except Exception as error:
        print(f"{problem(error)}; recording offline in {folder}", flush=True)
        wandb.teardown()  # forgets that the run's id was used
        return wandb.init(mode="offline", **arguments)


def problem(error: Exception) -> str:
    """Return what keeps W&B from being used online, in a line."""
    from wandb.errors import AuthenticationError

    text = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, AuthenticationError) or re.search(r"permission denied|unauthori[sz]ed|\b40[13]\b", text, re.I):
        return f"the key was refused ({text}): correct WANDB_API_KEY"
    return f"not reachable ({text})"


def has_netrc_key() -> bool:
    """Whether `wandb login` was done on this machine."""
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def new_lines(path: Path, start: int) -> Iterator[str]:
    """Yield lines that are added to a file after byte `start`, until standard input ends."""
    with open(path, encoding="utf-8") as file:
        file.seek(start)
        rest, ended = "", False
        while not ended:
            ended = bool(select.select([sys.stdin], [], [], 0.5)[0])  # nothing is ever written to it
            *lines, rest = (rest + file.read()).split("\n")
            yield from lines


def flat(line: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested entries as (`languages/deu/loss`, value)."""
    for key, value in line.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def main() -> int:
    """Mirror until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of the model")
    parser.add_argument("folder", type=Path, help="of the run")
    parser.add_argument("sent", type=int, help="bytes of the record that were there before")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is for the training, which may have more to say
    try:
        run = begin(args.name, args.folder)
        for text in new_lines(args.folder / "metrics.jsonl", args.sent):
            line = json.loads(text)
            values = {f"{line['kind']}/{key}": value for key, value in flat(line) if isinstance(value, int | float)}
            run.log(values, step=line["step"])
        run.finish()
    except Exception as error:
        print(f"off for the rest of this run: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
