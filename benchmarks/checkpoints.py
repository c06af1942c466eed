"""Measure which share of the time checkpoints take, if the run may save one after each step.

    python benchmarks/checkpoints.py FOLDER [--number 12]

This trains the first model of a folder that `quality.py` has made, with the default `run.checkpoint_share`, until it
has written `--number` checkpoints. It prints the step of each checkpoint, how long it took, and its share of the time
since the one before.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from babelmill import train  # noqa: E402
from babelmill.training.loop import Loop  # noqa: E402


def main() -> None:
    """Train, and measure the time of each checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--number", type=int, default=12)
    args = parser.parse_args()
    os.chdir(args.folder)
    settings = "results/settings/hybrid_1"
    run = json.loads(Path(settings, "run.json").read_text())
    run["run"] |= {"checkpoint_every": 1, "validate_every": 0}
    ended, seconds, write = [time.monotonic()], [], Loop._save

    def timed(self, done: int) -> None:
        began = time.monotonic()
        write(self, done)
        seconds.append(time.monotonic() - began)
        print(
            f"step {done}: {seconds[-1]:.3f} s, {seconds[-1] / (began - ended[-1]):.2%} of the time since", flush=True
        )
        ended.append(time.monotonic())
        if len(seconds) == args.number:
            print(f"all but the first: {sum(seconds[1:]) / (ended[-1] - ended[1]):.2%}", flush=True)
            sys.exit()

    Loop._save = timed
    with tempfile.TemporaryDirectory() as temporary:
        Path(temporary, "run.json").write_text(json.dumps(run))
        sys.argv = ["train", "--settings", f"{settings}/train.json", "--run", f"{temporary}/run.json"]
        sys.argv += ["--tokenizer", "results/tokenizers/hybrid_1", "--shards", "results/shards/hybrid_1/eng"]
        sys.argv += ["--checkpoints", f"{temporary}/checkpoints", "--out", f"{temporary}/model"]
        train.main()


if __name__ == "__main__":
    main()
