"""Measure whether gradients depend on the number of processes: the relative difference to one process.

    python benchmarks/agreement.py [--sharded] [--norbert4] [--optimizer muon] [--processes 2 3 4] [--save FILE.json]

This trains nothing. It computes the gradients of one step of 17 rows of a small model with dropout on 1, 2, 3 and 4
processes (gloo), with one thread each. It does so for three ratios of hybrid and for diffusion, for two precisions, and
for forward passes of at most 1, 3 and 16 rows, or 1, 3, 16 and 1 on the four processes ("mixed"). All gradients are
compared with those of one process that computes 16 rows at once. The model is a GPT-BERT, with `--norbert4` a NorBERT4
whose first layer sees six tokens to each side. With `--sharded`, the models are those of
transformers, spread over the processes, and some of them are frozen and have adapters. Their dropout (GPT-2's) depends
on the micro-batch. So micro-batches of 1, 3 and 16 rows are compared with one process that has the same ones. With
`--optimizer`, what is compared is not the gradients but what this optimizer makes of them: how far the weights move. Of
a GPT-BERT, all weights but the last vector that mixes layers are compared. A norm follows it, so the gradient of its
last number is 0 but for rounding. The first update of an optimizer makes a whole step of such a number.
"""

import argparse
import itertools
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
SHARDED = ("llama", "eurobert", "gpt2", "llama, adapters", "eurobert, adapters")


def gradients(optimizer: str | None, architecture: str) -> dict:
    """Return the gradients of each case, or what an optimizer makes of them, on the processes that torchrun started."""
    import torch

    from babelmill.runtime.processes import Processes
    from babelmill.train import make_network
    from babelmill.training.batches import TokenStream
    from babelmill.training.kernels.compilation import set_gpu_options
    from babelmill.training.plan.plan import Plan
    from babelmill.training.plan.rows import Packed
    from babelmill.training.trainer import Trainer
    from helpers.training.training_data import VOCABULARY, documents, section, train_settings, write_documents

    processes, found = Processes.start(threads=int(os.environ.get("LOCAL_WORLD_SIZE", 1))), {}
    set_gpu_options()
    with tempfile.TemporaryDirectory() as folder:
        shards = [write_documents(Path(folder) / f"{i}.safetensors", documents(80 >> i, seed=i)) for i in range(2)]
    counts = [Packed(shard.offsets) for shard in shards]
    model = section("model", architecture=architecture, local_global_ratio=2, local_window_length=6)
    for name in OBJECTIVES:
        for precision in PRECISIONS:
            objective = {"hybrid_ratio": name} if name in HYBRID else {"objective": name}
            objective |= {"optimizer": optimizer} if optimizer else {}
            train = section(
                "train", global_batch_tokens=32 * 17, max_steps=40, clip_norm=1e9, precision=precision, **objective
            )
            settings, plan = train_settings(["eng", "deu"], model, train), Plan(train, 1.0, counts)
            for rows in ROWS:
                if rows == "mixed" and processes.size == 1:
                    found[name, precision, rows] = found[name, precision, 1]
                    continue
                most = (1, 3, 16, 1)[processes.rank] if rows == "mixed" else rows
                tokens = TokenStream(shards, VOCABULARY, 7, processes.device, plan.objective)
                network = make_network(settings, VOCABULARY, None, processes)
                trainer = Trainer(settings, network, plan, tokens, (counts, tokens), processes, 32 * most)
                last = f"dwa_modules.alphas.{2 * model.num_hidden_layers - 1}"
                weights = [p for key, p in trainer.model.named_parameters() if not key.endswith(last)]
                before = [weight.detach().clone() for weight in weights]
                trainer.run_step(35)
                moved = [(p.detach() - old).flatten() for p, old in zip(weights, before, strict=True)]
                found[name, precision, rows] = torch.cat(moved) if optimizer else trainer._gradients.flat.clone()
    main = processes.main
    processes.stop()
    return found if main else {}


def sharded_gradients(optimizer: str | None) -> dict:
    """Return what `gradients` returns, for models that are spread over the processes."""
    import torch

    from babelmill.runtime.processes import Processes
    from babelmill.training.batches import TokenStream
    from babelmill.training.kernels.compilation import set_gpu_options
    from babelmill.training.plan.plan import Plan
    from babelmill.training.plan.rows import Packed
    from babelmill.training.trainer import Trainer
    from helpers.models.transformers_models import model_section, network, train_section
    from helpers.training.training_data import VOCABULARY, documents, train_settings, write_documents

    processes, found = Processes.start(threads=int(os.environ.get("LOCAL_WORLD_SIZE", 1))), {}
    set_gpu_options()
    with tempfile.TemporaryDirectory() as folder:
        shard = write_documents(Path(folder) / "shard.safetensors", documents(80))
    lengths = {"sequence_lengths": [32], "phase_starts": [0.0], "global_batch_tokens": 32 * 17}
    for name, precision, rows in itertools.product(SHARDED, PRECISIONS, ROWS[:3]):
        more = {"batch_reduction": 1, "clip_norm": 1e9, "precision": precision, "micro_batch_tokens": 32 * rows}
        more |= {"optimizer": optimizer} if optimizer else {}
        kind, _, adapters = name.partition(", ")
        train = train_section(kind, **lengths, **more, lora_rank=4 if adapters else 0)
        plan = Plan(train, 1.0, [Packed(shard.offsets)])
        made = network(kind, processes, train)
        tokens = TokenStream([shard], VOCABULARY, 7, processes.device, plan.objective, made.in_place)
        settings = train_settings(["eng"], model_section(kind), train)
        trainer = Trainer(settings, made, plan, tokens, (plan.layouts, tokens), processes)
        before = {key: part.detach().clone() for key, part in made.trained().items()}
        trainer.run_step(3)
        parts = [
            (made.sharding.shapes[key], part.detach() - before[key] if optimizer else part.grad)
            for key, part in made.trained().items()
        ]
        found[name, precision, rows] = torch.cat([made.sharding.gather(p, shape).flatten() for shape, p in parts])
    main = processes.main
    processes.stop()
    return found if main else {}


def main() -> None:
    """Measure all numbers of processes, and print the table."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--processes", type=int, nargs="+", default=[2, 3, 4], help="numbers of processes (default: 2 3 4)"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--sharded", action="store_true", help="measure transformers models")
    kinds.add_argument("--norbert4", action="store_true", help="measure a NorBERT4")
    parser.add_argument("--optimizer", choices=["lamb", "adamw", "muon"], help="compare what this optimizer does")
    parser.add_argument("--save", type=Path, help="file to which all differences are written as JSON")
    parser.add_argument("--gradients", type=Path, help=argparse.SUPPRESS)  # starts one process
    args = parser.parse_args()
    if args.gradients:
        ours = "norbert4" if args.norbert4 else "gpt_bert"
        if found := sharded_gradients(args.optimizer) if args.sharded else gradients(args.optimizer, ours):
            torch.save(found, args.gradients)
        return
    differences, os.environ["OMP_NUM_THREADS"] = {}, "1"
    with tempfile.TemporaryDirectory() as folder:
        files = {size: str(Path(folder) / f"{size}.pt") for size in (1, *args.processes)}
        for size, file in files.items():
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
            asked = [*["--sharded"][: args.sharded], *["--norbert4"][: args.norbert4]]
            asked += ["--optimizer", args.optimizer] if args.optimizer else []
            subprocess.run([*torchrun, __file__, "--gradients", file, *asked], check=True)
        alone = torch.load(files[1])
        for size in files:
            for case, gradient in torch.load(files[size]).items():
                reference = alone[case if args.sharded else (*case[:2], 16)]
                difference = (gradient - reference).norm() / reference.norm()
                differences[f"{size} processes, {case}"] = difference.item()
                assert gradient.norm() > 0
    names, rows = (SHARDED, ROWS[:3]) if args.sharded else (OBJECTIVES, ROWS)
    columns = " | ".join(f"ratio {name}" if name in HYBRID else name for name in names)
    print(f"| processes | precision | {columns} |")
    print("|" + "---|" * (2 + len(names)))
    for size in files:
        for precision in PRECISIONS:
            cells = (max(differences[f"{size} processes, {(name, precision, n)}"] for n in rows) for name in names)
            print(f"| {size} | {precision} | " + " | ".join(f"{value:.1e}" for value in cells) + " |")
    if args.save:
        args.save.write_text(json.dumps(differences, indent=1))


if __name__ == "__main__":
    main()
