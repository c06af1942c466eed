"""Measure which share of the time checkpoints take, if the run may save one after each step.

    python benchmarks/checkpoints.py FOLDER [--number 12]

This trains the first model of a folder that `quality.py` has made, with the default `run.checkpoint_share`, until it
has written `--number` checkpoints. It prints the step of each checkpoint, how long it took, and its share of the time
since the one before.
"""

import argparse
import json
import os
import shutil
import sys
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
    training = Path("results/of/hybrid_1/train").readlink().name
    run = json.loads(Path(f"results/settings/run/{training}.json").read_text())
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
    asked = Path("results/settings/train/benchmark.json")
    shutil.copy(asked.with_name(f"{training}.json"), asked)
    run_file = Path("results/settings/run/benchmark.json")
    run_file.write_text(json.dumps(run))
    sys.argv = ["train", str(asked)]
    try:
        train.main()
    finally:
        for path in (asked, run_file):
            path.unlink()
        shutil.rmtree("results/checkpoints/benchmark", ignore_errors=True)


if __name__ == "__main__":
    main()
