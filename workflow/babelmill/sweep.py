"""Decide a round of a sweep: which cells of an experiment are trained further (`experiments/halving.py`).

    python -m babelmill.sweep --settings results/experiments/rates/round1.json --round 1 \\
        --out results/sweeps/rates/round1.json

The trials of all cells of the round must be there, and the decision before it.
"""

import argparse
import logging
import sys
from pathlib import Path

from babelmill.core import manifest, stage_entry
from babelmill.core.files import read_json
from babelmill.experiments.halving import TRIALS, decide, decision_of, in_words

log = logging.getLogger("babelmill.sweep")


def run(args: argparse.Namespace) -> None:
    """Write the decision of a round."""
    asked, number = read_json(args.settings), args.round
    earlier = decision_of(asked["experiment"], TRIALS[TRIALS.index(number) - 1]) if number != TRIALS[0] else None
    decision = decide(asked, number, earlier)
    for race in decision["races"]:
        for cell in sorted(race, key=lambda cell: not cell["goes_on"]):
            what = "goes on" if cell["goes_on"] else "is dropped"
            log.info("%s %s: %s", cell["model"], what, in_words(cell["bits_per_byte"]))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_sealed(args.out, decision)


if __name__ == "__main__":
    parser = stage_entry.arguments(__doc__)
    parser.add_argument("--round", required=True, choices=TRIALS, help="the number of the round")
    parser.add_argument("--out", required=True, type=Path, help="the file of the decision")
    sys.exit(stage_entry.run(run, parser.parse_args()))
