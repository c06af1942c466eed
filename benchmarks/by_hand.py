"""Compare our own readers of text, LAMB and chunked loss with the libraries that could replace them.

    pip install --target FOLDER/libraries datasets pytorch-optimizer
    PYTHONPATH=FOLDER/libraries python benchmarks/by_hand.py FOLDER [--megabytes 50]

Each case runs in its own process on one thread. It prints the CPU time of the work (without imports and the creation of
data), and by how much the peak memory rose.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))

WORDS = ["a", "study", "of", "words", "in", "languages", "that", "few", "speak", "and", "fewer", "write", "down"]
VOCABULARY, WIDTH, TARGETS = 8192, 384, 4096  # preset small, a micro-batch of 32 causal rows


def write_text(folder: Path, megabytes: float) -> None:
    """Write documents of 20 to 400 words as .jsonl and .csv."""
    import csv

    with open(folder / "text.jsonl", "w") as lines, open(folder / "text.csv", "w", newline="") as table:
        rows = csv.writer(table)
        rows.writerow(["text"])
        for number in range(int(megabytes * 1e6 / 1200)):
            text = " ".join(WORDS[(number * i) % len(WORDS)] for i in range(20 + number * 7919 % 380))
            lines.write(json.dumps({"text": text}) + "\n")
            rows.writerow([text])


def readers(path: Path, ours: bool) -> Callable[[], object]:
    """Read all documents of a file, as streams."""
    if ours:
        from babelmill.config import schema
        from babelmill.corpus.reading import Reading, read
        from babelmill.corpus.tally import Tally

        reading = Reading(schema.Corpus.model_construct(text_column="text", document="file"))
        return lambda: sum(batch.num_rows for batch in read([path], reading, Tally()))
    import datasets

    kind = "json" if path.suffix == ".jsonl" else "csv"
    cache = str(path.parent / "cache")
    made = datasets.load_dataset(kind, data_files=str(path), split="train", streaming=True, cache_dir=cache)
    return lambda: sum(len(batch["text"]) for batch in made.iter(batch_size=1000))


def lamb(ours: bool) -> Callable[[], object]:
    """Make ten updates of 32 matrices of the preset base's feed-forward layers."""
    import torch

    parameters = [torch.nn.Parameter(torch.randn(768, 2048)) for _ in range(32)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    groups = [{"params": parameters, "weight_decay": 0.1}]
    if ours:
        from babelmill.training.optimization.optim import Lamb

        optimizer, finite = Lamb(groups, 0.01), torch.ones(())
        return lambda: [optimizer.update(0.01, finite) for _ in range(10)]
    from pytorch_optimizer import Lamb as TheirLamb

    their = TheirLamb(groups, lr=0.01, betas=(0.9, 0.98), eps=1e-8)
    return lambda: [their.step() for _ in range(10)]


def output_loss(way: str) -> Callable[[], object]:
    """Compute loss and gradients of the output layer."""
    import torch
    from torch.nn import functional as F

    from babelmill.training.networks.loss import loss

    features, matrix, bias = torch.randn(TARGETS, WIDTH), torch.randn(VOCABULARY, WIDTH) * 0.02, torch.zeros(VOCABULARY)
    targets, weights = torch.randint(VOCABULARY, (TARGETS,)), torch.full((TARGETS,), 1 / TARGETS)
    groups = torch.zeros(TARGETS, dtype=torch.int64)
    batch = SimpleNamespace(targets=targets, weights=weights, groups=groups, importance=None)
    inputs = [tensor.requires_grad_() for tensor in (features, matrix, bias)]

    def compute() -> None:
        if way == "ours":
            total = loss(*inputs, batch, 1e-4, 1)[0]  # type: ignore[arg-type]
        elif way == "plain":
            scores = F.linear(*inputs)
            total = F.cross_entropy(scores, targets) + 1e-4 * scores.logsumexp(1).square().mean()
        else:
            options = torch.nn.LinearCrossEntropyOptions()  # PyTorch chooses the chunks
            total = F.linear_cross_entropy(features, matrix, targets, linear_bias=bias, options=options)
        total.backward()

    return compute


CASES: dict[str, Callable[[Path], Callable[[], object]]] = {
    "readers, .jsonl: ours": lambda folder: readers(folder / "text.jsonl", True),
    "readers, .jsonl: datasets": lambda folder: readers(folder / "text.jsonl", False),
    "readers, .csv: ours": lambda folder: readers(folder / "text.csv", True),
    "readers, .csv: datasets": lambda folder: readers(folder / "text.csv", False),
    "LAMB: ours": lambda _: lamb(True),
    "LAMB: pytorch_optimizer": lambda _: lamb(False),
    "loss: ours": lambda _: output_loss("ours"),
    "loss: F.linear and F.cross_entropy, with z-loss": lambda _: output_loss("plain"),
    "loss: F.linear_cross_entropy, chunked, without z-loss": lambda _: output_loss("chunked"),
}


def measure(name: str, folder: Path) -> None:
    """Print the CPU time of a case, and by how much its peak memory rose."""
    work = CASES[name](folder)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    work()
    seconds = time.process_time() - began
    rise = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{name:<54} {seconds:7.2f} s  {rise / 1024:7.0f} MiB", flush=True)


def main() -> None:
    """Run all cases, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--case", choices=CASES, help="run only this case, in this process")
    args = parser.parse_args()
    if args.case:
        return measure(args.case, args.folder)
    args.folder.mkdir(parents=True, exist_ok=True)
    write_text(args.folder, args.megabytes)
    for name in CASES:
        command = [sys.executable, __file__, str(args.folder), "--case", name]
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
