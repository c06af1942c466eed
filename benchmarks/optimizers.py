"""Measure which share of a training step each optimizer takes: CPU time on one thread, or seconds on a GPU.

    python benchmarks/optimizers.py [--preset small] [--rows 16] [--length 128] [--precisions fp32 bf16] [--rounds 3]

A step of a GPT-BERT is measured in two parts: forward and backward passes, and the update of the weights. The
optimizers take turns in one process, and the table has the medians. `one by one` is Muon as PyTorch has it
(`torch.optim.Muon`, always in bf16), beside the same AdamW: one matrix after the other. Larger batches make the share
of an update smaller.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "workflow"), str(Path(__file__).parent)]

import torch  # noqa: E402
from step import laid_over, make_trainer  # noqa: E402

from babelmill.config.resolve import Configuration  # noqa: E402
from babelmill.runtime.processes import Processes  # noqa: E402
from babelmill.training.optimization.optim import Muon  # noqa: E402

OPTIMIZERS = ("lamb", "adamw", "muon", "one by one")


class OneByOne(Muon):
    """Updates as `Muon`, with PyTorch's update of the matrices."""

    def __init__(self, muon: Muon, rate: float):
        self.__dict__ = muon.__dict__
        matrices = [matrix for matrices, _ in self._batches for matrix in matrices]
        self._theirs = torch.optim.Muon(matrices, rate, weight_decay=self._decay, adjust_lr_fn="match_rms_adamw")

    def update(self, learning_rate: float, finite: torch.Tensor) -> None:
        """See `FusedAdamW.update`."""
        super(Muon, self).update(learning_rate, finite)
        self._theirs.step()


def seconds(device: torch.device) -> float:
    """Return the CPU time so far; on a GPU, the time when all its work is done."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def main() -> None:
    """Measure all optimizers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--rows", type=int, default=16, help="rows of a step")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row")
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    processes, tokens = Processes.start(1), args.rows * args.length
    configured = Configuration([("benchmark", {"preset": args.preset})]).model("eng")
    print("| optimizer | precision | passes (s) | update (s) | share of the step |\n|---|---|---|---|---|")
    for precision in args.precisions:
        values = {"sequence_lengths": [args.length], "phase_starts": [0.0], "batch_reduction": 1.0, "max_steps": 1000}
        values |= {"global_batch_tokens": tokens, "precision": precision, "learning_rate": 1e-3}
        trainers, found = {}, {name: ([], []) for name in OPTIMIZERS}
        for name in OPTIMIZERS:
            train = laid_over(configured.train, **values, optimizer="muon" if name == "one by one" else name)
            trainers[name] = make_trainer(
                configured.model, train, configured.tokenizer.vocab_size, processes, min(tokens, 2048)
            )
            if name == "one by one":
                trainers[name]._optimizer = OneByOne(trainers[name]._optimizer, 1e-3)
        for number in range(1 + args.rounds):
            for name, trainer in trainers.items():
                step, began = trainer.plan.step(number), seconds(processes.device)
                trainer.model.train()
                trainer.network.begin_step(number)
                trainer._learn_share(step)
                passed = seconds(processes.device)
                trainer._optimizer.update(1e-3, torch.ones((), device=processes.device))
                if number:  # the first step makes the optimizer's state
                    found[name][0].append(passed - began)
                    found[name][1].append(seconds(processes.device) - passed)
        for name, (passes, updates) in found.items():
            both = statistics.median(passes), statistics.median(updates)
            print(f"| {name} | {precision} | {both[0]:.2f} | {both[1]:.3f} | {both[1] / sum(both):.1%} |", flush=True)


if __name__ == "__main__":
    main()
