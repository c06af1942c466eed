"""Measure host memory and time to create, save and load a model of 1 GB.

    python benchmarks/host_memory.py FOLDER [--processes 1 2] [--layers 16]

This creates a Llama of 271 M parameters in fp32, with random weights and with those of a trained model (`source`). It
writes the weights as a checkpoint (without an average; there was no step, so the optimizer has no state) and reads them
again. It uses `--processes` processes (gloo, one thread each), whose shards are also in host memory. For each process
it prints, in MB, its memory afterwards, and how much more it had for a while (measured every 2 ms). Pages of a file
that is being read do not count, since the system takes them back when it needs memory.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "tests")]
SIZES = {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 2816}
ROWS = 32000  # number of rows of the embedding


def memory() -> int:
    """Return the bytes of memory that this process has for itself, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def measured(function: Callable[[], object]) -> dict[str, float]:
    """Run a function. Return its seconds, its memory afterwards in MB, and how much more it had before or meanwhile."""
    before, seen, ended = memory(), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.002):
            seen.append(memory())

    watcher, began = threading.Thread(target=watch), time.monotonic()
    watcher.start()
    function()
    seconds = time.monotonic() - began
    ended.set()
    watcher.join()
    after = memory()
    return {"seconds": seconds, "after": after / 1e6, "more": (max(seen) - max(before, after)) / 1e6}


def measure(folder: Path, layers: int, source: Path | None) -> None:
    """Create, save and load a model on the processes that torchrun started. Write the figures into the folder."""
    from babelmill.runtime.checkpoint import Checkpoints
    from babelmill.runtime.processes import Processes
    from babelmill.train import make_network
    from babelmill.training.batches import TokenStream
    from babelmill.training.networks.source_weights import load_weights
    from babelmill.training.plan.objectives import objective_of
    from babelmill.training.plan.plan import Plan
    from babelmill.training.plan.rows import Packed
    from babelmill.training.trainer import Trainer
    from helpers.training.training_data import VOCABULARY, documents, section, train_settings, write_documents

    config = {"model_type": "llama", **SIZES, "num_hidden_layers": layers}
    model = section("model", architecture="transformers", config=config, max_position_embeddings=64)
    train = section("train", objective="causal", optimizer="adamw", ema_decay=0, global_batch_tokens=1024)
    vocabulary = dataclasses.replace(VOCABULARY, size=ROWS)
    processes, found, trainers = Processes.start(int(os.environ["LOCAL_WORLD_SIZE"])), {}, []
    shard = write_documents(folder / f"{processes.rank}.safetensors", documents(60))
    plan = Plan(train, 1.0, [Packed(shard.offsets)])
    tokens = TokenStream([shard], VOCABULARY, 7, processes.device, objective_of(train))
    settings, checkpoints = train_settings(["eng"], model, train), Checkpoints(folder / "run", 1)

    def make() -> None:
        network = make_network(settings, vocabulary, source, processes)
        trainers.append(Trainer(settings, network, plan, tokens, (plan.layouts, tokens), processes))
        if source:
            load_weights(source / "model.safetensors", network)

    def save() -> None:
        state = trainers[0].state
        state.with_whole(state.tensors(), lambda shapes, load: checkpoints.save(1, shapes, {}, load))

    def load() -> None:
        trainers[0].state.restore(checkpoints.load(1, trainers[0].state.rows)[0])

    for name, function in (("begin", make), ("save", save), ("load", load)):
        found[name] = measured(function)
    found["bytes"] = sum(value.nbytes for value in trainers[0].state.tensors().values()) / 1e6
    (folder / f"found-{processes.rank}.json").write_text(json.dumps(found))
    processes.stop()


def main() -> None:
    """Measure all numbers of processes, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)  # each process is started with this
    args = parser.parse_args()
    if args.measure:
        return measure(args.folder, args.layers, args.source)
    from helpers.models.published_models import publish

    trained = publish("llama", args.folder / "llama", ROWS, **SIZES | {"num_hidden_layers": args.layers})
    print("| weights | processes | process | its weights | | seconds | memory afterwards | more for a while |")
    print("|" + "---|" * 8)
    for size, source in ((size, source) for source in (None, trained) for size in args.processes):
        begun = "source" if source else "random"
        folder = args.folder / f"{begun}-{size}"
        folder.mkdir(parents=True, exist_ok=True)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
        command = [*torchrun, __file__, str(folder), "--measure", "--layers", str(args.layers)]
        command += ["--source", str(source)] if source else []
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        for rank in range(size):
            found = json.loads((folder / f"found-{rank}.json").read_text())
            for name in ("begin", "save", "load"):
                seconds, *numbers = (
                    f"{found[name][key]:,.{key == 'seconds':d}f}" for key in ("seconds", "after", "more")
                )
                cells = [begun, size, rank, f"{found['bytes']:,.0f}", name, seconds, *numbers]
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
