"""Measure how much more memory and time training needs for a larger corpus: streams of 1e8, 1e9 and 1e10 tokens.

    python benchmarks/large_streams.py FOLDER [--tokens 1e8 1e9 1e10] [--steps 20]

Each stream is a sparse file with documents of 480 tokens. Only its offsets take disk space (2 % of 20 GB). A process
opens it as `train` does, and runs some causal steps of 64 rows of 128 tokens with a tiny model. The table has the
seconds until the first step begins; the memory that the process then has for itself, without that of PyTorch and the
model (pages of the files do not count); the milliseconds of the median step, and of these, the milliseconds to make its
rows and to plan it; and the time to verify the file, at the first start and at the next one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [os.environ.get("PACKAGE", str(ROOT / "workflow")), str(ROOT / "tests")]
DOCUMENT = 480  # tokens
ROWS, LENGTH = 64, 128


def memory() -> int:
    """Return the bytes of memory that this process has for itself, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def write_stream(path: Path, tokens: int) -> None:
    """Write a shard whose tokens are a hole in the file."""
    documents = tokens // DOCUMENT
    tokens = documents * DOCUMENT
    begin = (documents + 1) * 8
    header = {
        "__metadata__": {"tokenizer_sha256": "none", "vocab_size": "96"},
        "offsets": {"dtype": "I64", "shape": [documents + 1], "data_offsets": [0, begin]},
        "tokens": {"dtype": "U16", "shape": [tokens], "data_offsets": [begin, begin + 2 * tokens]},
    }
    text = json.dumps(header).encode().ljust(1016)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for first in range(0, documents + 1, 1 << 22):
            file.write((np.arange(first, min(documents + 1, first + (1 << 22)), dtype="<i8") * DOCUMENT).tobytes())
        file.truncate(1024 + begin + 2 * tokens)


def measure(path: Path, steps: int) -> dict[str, float]:
    """Train for some steps on a stream, in this process; see the table in the module's docstring."""
    from babelmill.model.gpt_bert import GPTBertShape
    from babelmill.runtime.processes import Processes
    from babelmill.tokens.shard_file import ShardFile
    from babelmill.training.batches import TokenStream
    from babelmill.training.networks.gpt_bert import GPTBertNetwork
    from babelmill.training.plan.objectives import objective_of
    from babelmill.training.plan.plan import Plan
    from babelmill.training.plan.rows import Packed
    from babelmill.training.trainer import Trainer
    from helpers.training.training_data import VOCABULARY, section, train_settings

    processes = Processes.start(1)
    train = section(
        "train",
        objective="causal",
        max_steps=None,
        epochs=1,
        global_batch_tokens=ROWS * LENGTH,
        sequence_lengths=[LENGTH],
        phase_starts=[0.0],
    )
    model = section("model")
    if path.stat().st_size > 1e10:  # a run may not have so many steps
        train = train.model_copy(update={"max_steps": 1_000_000})
    network = GPTBertNetwork(GPTBertShape(VOCABULARY.size, **model.shape()), train, processes)
    before, began = memory(), time.monotonic()
    shard = ShardFile.open(path)
    plan = Plan(train, 1.0, [Packed(shard.offsets)])
    stream = TokenStream([shard], VOCABULARY, 7, processes.device, objective_of(train))
    trainer = Trainer(train_settings(["eng"], model, train), network, plan, stream, (plan.layouts, stream), processes)
    plan.step(0)
    found, whole, rows, planning = {"ready": time.monotonic() - began}, [], [], []
    for number in range(steps):
        began = time.monotonic()
        trainer.run_step(number)
        whole.append(time.monotonic() - began)
        began = time.monotonic()
        step = plan.step(steps + number)
        planning.append(time.monotonic() - began)
        began = time.monotonic()
        stream.micro_batch(step.rows, LENGTH, step.weights)
        rows.append(time.monotonic() - began)
    found["memory"] = memory() - before
    times = {"step": whole, "rows": rows, "plan": planning}
    return found | {name: 1000 * statistics.median(values) for name, values in times.items()}


def verify(folder: Path) -> float:
    """Return the seconds that `train` needs to verify the stream."""
    from babelmill.core import manifest

    began = time.monotonic()
    manifest.verify(folder, "train.safetensors", remember=True)
    return time.monotonic() - began


def main() -> None:
    """Measure each size in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=float, nargs="+", default=[1e8, 1e9, 1e10])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--verify", action="store_true", help="hash the files, too: half a terabyte takes minutes")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.folder, args.steps)))
        return
    print("| tokens | file | ready | memory | step | rows | plan | verified | again |")
    print("|" + "---|" * 9)
    for tokens in map(int, args.tokens):
        folder = args.folder / f"{tokens:.1e}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "train.safetensors"
        write_stream(path, tokens)
        command = [sys.executable, __file__, str(path), "--measure", "--steps", str(args.steps)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        cells = [f"{tokens:.1e}", f"{path.stat().st_size / 1e9:.1f} GB", f"{found['ready']:.2f} s"]
        cells += [f"{found['memory'] / 1e6:.0f} MB", *(f"{found[name]:.2f} ms" for name in ("step", "rows", "plan"))]
        cells += verification(folder) if args.verify else ["", ""]
        print(f"| {' | '.join(cells)} |", flush=True)
        path.unlink()


def verification(folder: Path) -> list[str]:
    """Return the times of verifying a stream at the first start, and at the next."""
    from babelmill.core import manifest

    manifest.write(folder, manifest.StageRequest("shards", "eng", {}), ["train.safetensors"])
    return [f"{verify(folder):.2f} s" for _ in range(2)]


if __name__ == "__main__":
    main()
