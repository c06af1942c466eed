"""Do gradients depend on the number of processes? Relative difference to one process, over all gradients.

    python benchmarks/agreement.py [--processes 2 3 4] [--save FILE.json]

trains nothing: it makes the gradients of one step of 17 rows of a small model with dropout on 1, 2, 3 and 4 processes
(gloo), one thread each, for three ratios of hybrid and for diffusion, two precisions, and forward passes of at most 1,
3 and 16 rows, or 1, 3, 16 and 1 on the four processes ("mixed"). All are compared with one process that makes 16 rows
at once.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "tests")]

HYBRID = ("1/2", "2/5", "15/16")
OBJECTIVES, PRECISIONS, ROWS = (*HYBRID, "diffusion"), ("fp32", "bf16"), (1, 3, 16, "mixed")


def gradients() -> dict:
    """Return the gradients of each case, on the processes that torchrun started."""
    from babelmill.model.gpt_bert import GPTBertShape
    from babelmill.runtime.processes import Processes
    from babelmill.training.batches import TokenStream
    from babelmill.training.gpt_bert_network import GPTBertNetwork
    from babelmill.training.layouts import Packed
    from babelmill.training.plan import Plan
    from babelmill.training.trainer import Trainer
    from training_data import VOCABULARY, documents, section, train_settings, write_documents

    processes, found = Processes.start(threads=int(os.environ.get("LOCAL_WORLD_SIZE", 1))), {}
    with tempfile.TemporaryDirectory() as folder:
        shards = [write_documents(Path(folder) / f"{i}.safetensors", documents(80 >> i, seed=i)) for i in range(2)]
    counts = [Packed(shard.offsets) for shard in shards]
    model = section("model")
    shape = GPTBertShape(vocab_size=VOCABULARY.size, **model.shape())
    for name in OBJECTIVES:
        for precision in PRECISIONS:
            for rows in ROWS:
                most = (1, 3, 16, 1)[processes.rank] if rows == "mixed" else rows
                objective = {"hybrid_ratio": name} if name in HYBRID else {"objective": name}
                train = section(
                    "train", global_batch_tokens=32 * 17, max_steps=40, clip_norm=1e9, precision=precision, **objective
                )
                settings = train_settings(["eng", "deu"], model, train)
                plan = Plan(train, 1.0, counts)
                tokens = TokenStream(shards, VOCABULARY, 7, processes.device, plan.objective)
                network = GPTBertNetwork(shape, train, processes)
                trainer = Trainer(settings, network, plan, tokens, (counts, tokens), processes, 32 * most)
                trainer.run_step(35)
                found[name, precision, rows] = trainer._gradients.flat.clone()
    main = processes.main
    processes.stop()
    return found if main else {}


def main() -> None:
    """Measure all numbers of processes, and print the table."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 3, 4], help="numbers of them, 2 3 4 by default")
    parser.add_argument("--save", type=Path, help="all differences, as JSON")
    parser.add_argument("--gradients", type=Path, help=argparse.SUPPRESS)  # what each process is started with
    args = parser.parse_args()
    if args.gradients:
        if found := gradients():
            torch.save(found, args.gradients)
        return
    differences, os.environ["OMP_NUM_THREADS"] = {}, "1"
    with tempfile.TemporaryDirectory() as folder:
        files = {size: str(Path(folder) / f"{size}.pt") for size in (1, *args.processes)}
        for size, file in files.items():
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
            subprocess.run([*torchrun, __file__, "--gradients", file], check=True)
        alone = torch.load(files[1])
        for size in files:
            for case, gradient in torch.load(files[size]).items():
                reference = alone[*case[:2], 16]
                difference = (gradient - reference).norm() / reference.norm()
                differences[f"{size} processes, {case}"] = difference.item()
                assert gradient.norm() > 0
    print(
        "| processes | precision | "
        + " | ".join(f"ratio {name}" if name in HYBRID else name for name in OBJECTIVES)
        + " |"
    )
    print("|" + "---|" * (2 + len(OBJECTIVES)))
    for size in files:
        for precision in PRECISIONS:
            cells = (max(differences[f"{size} processes, {(name, precision, n)}"] for n in ROWS) for name in OBJECTIVES)
            print(f"| {size} | {precision} | " + " | ".join(f"{value:.1e}" for value in cells) + " |")
    if args.save:
        args.save.write_text(json.dumps(differences, indent=1))


if __name__ == "__main__":
    main()
