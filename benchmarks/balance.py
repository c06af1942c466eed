"""Simulate from the schedules of the presets how much faster a run on several GPUs is, if only the work counts.

    python benchmarks/balance.py [--processes 2 4 8 16]

This takes every 20th step of a run of 10 epochs over 130 million tokens (`base`) or 13 million (`small`) in documents
of about 300 tokens, and adds up the floating-point operations of the process with the most work. It compares three
ways to divide a step: whole micro-batches of 16,384 tokens in turn, equal numbers of rows, and rows by their work, as
the trainer does. The last column says how much each process sends per step: megabytes of a ring all-reduce of fp32
gradients.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))

from babelmill.config.models import size_of
from babelmill.config.resolve import Configuration
from babelmill.runtime.cost import flops
from babelmill.training.plan import rows as dealing
from babelmill.training.plan.plan import Plan
from babelmill.training.plan.rows import Packed

TOKENS = {"base": 130_000_000, "small": 13_000_000}
MICRO_BATCH, EVERY = 16384, 20


def offsets(tokens: int) -> np.ndarray:
    """Return document starts of log-normal lengths, as in real text."""
    lengths = np.maximum(3, np.random.default_rng(0).lognormal(5.3, 0.9, tokens // 300)).astype(np.int64)
    return np.concatenate([[0], lengths.cumsum()])


def in_turn(costs: np.ndarray, size: int, processes: int) -> np.ndarray:
    """Return the process of each row, if processes get whole micro-batches of `size` rows in turn."""
    return np.arange(len(costs)) // size % processes


def simulate(preset: str, processes: list[int]) -> None:
    """Print a line for each number of processes."""
    configured = Configuration([("benchmark", {"preset": preset})]).model("eng")
    size_of_model = size_of(configured.model, configured.tokenizer.vocab_size)
    plan = Plan(configured.train, 1.0, [Packed(offsets(TOKENS[preset]))])
    total, longest = 0.0, {(way, size): 0.0 for way in ("whole", "rows", "work") for size in processes}
    for number in range(0, plan.steps, EVERY):
        step = plan.step(number)
        costs = flops(size_of_model, step.length, step.length, step.rows.targets)
        total += costs.sum()
        for size in processes:
            ways = {
                "whole": in_turn(costs, MICRO_BATCH // step.length, size),
                "rows": np.arange(len(costs)) % size,
                "work": dealing.deal(costs, size),
            }
            for way, process in ways.items():
                longest[way, size] += np.bincount(process, costs, size).max()
    gradient = 4 * size_of_model.parameters
    for size in processes:
        cells = [
            f"{total / longest[way, size]:.2f} ({total / longest[way, size] / size:.3f})"
            for way in ("whole", "rows", "work")
        ]
        sent = 2 * (size - 1) / size * gradient
        print(f"| {preset} | {size} | " + " | ".join(cells) + f" | {sent / 1e6:.0f} |")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4, 8, 16])
    args = parser.parse_args()
    print("| preset | processes | whole micro-batches | equal rows | by work | MB sent per step and process |")
    print("|---|---|---|---|---|---|")
    for preset in TOKENS:
        simulate(preset, args.processes)


if __name__ == "__main__":
    main()
