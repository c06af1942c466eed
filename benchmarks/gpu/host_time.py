"""Measure how long the host needs for a step on a GPU, on a machine without a GPU.

    python benchmarks/gpu/host_time.py [--preset small] [--length 128] [--tokens 16384]

`null_gpu.c` takes the place of the driver: kernels do nothing, and all that the host does before a launch is real. The
script compares steps of ours, with recorded passes and without, with steps of transformers' BERT of the same shape.
`null_gpu.py` says what it needs.
"""

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks/gpu"), str(ROOT / "benchmarks"), str(ROOT / "workflow")]

import null_gpu  # noqa: E402
import torch  # noqa: E402
from step import laid_over, make_trainer  # noqa: E402

from babelmill.config.resolve import Configuration  # noqa: E402
from babelmill.runtime.processes import Processes  # noqa: E402
from babelmill.training.kernels import install  # noqa: E402
from babelmill.training.kernels.compilation import Graphs, set_gpu_options  # noqa: E402
from babelmill.training.trainer import Trainer  # noqa: E402

COUNTED = "kernels", "triton", "products", "waits", "to_host", "from_host", "recorded", "repeated", "refused"
STEPS, FIRST = 10, 8  # measured steps, and those before them: in these, passes are compiled and recorded


def ours(args: argparse.Namespace) -> Trainer:
    """Return a trainer, which uses all kernels and records passes: their results would be wrong here."""
    install.difference = lambda *_: 0.0
    configured = Configuration([("benchmark", {"preset": args.preset})]).model("eng")
    batch = dict(global_batch_tokens=args.tokens, batch_reduction=1.0, max_steps=100_000, precision="bf16")
    train = laid_over(configured.train, sequence_lengths=[args.length], phase_starts=[0.0], **batch)
    alone = Processes(rank=0, size=1, local_size=1, device=torch.device("cuda:0"))
    words = configured.tokenizer.vocab_size
    return make_trainer(configured.model, train, words, alone, args.tokens, Graphs())


def bert(args: argparse.Namespace) -> Callable[[int], None]:
    """Return a function that does a step of BERT."""
    from transformers import BertConfig, BertForMaskedLM

    configured = Configuration([("benchmark", {"preset": args.preset})]).model("eng")
    names = "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"
    sizes = {name: getattr(configured.model, name) for name in names}
    model = BertForMaskedLM(BertConfig(vocab_size=configured.tokenizer.vocab_size, **sizes)).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.zeros(args.tokens // args.length, args.length, dtype=torch.int64, device="cuda")

    def step(_: int) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure(name: str, step: Callable[[int], object]) -> None:
    """Print the host's time of a step, and how often it starts something, waits or copies."""
    null = ctypes.CDLL(os.environ["NULL_GPU"])
    null.null_gpu_count.restype = ctypes.c_long

    def counts() -> list[int]:
        return [null.null_gpu_count(which) for which in range(len(COUNTED))]

    for number in range(FIRST):
        step(number)
    before, times = counts(), []
    for number in range(FIRST, FIRST + STEPS):
        began = time.perf_counter()
        step(number)
        times.append(time.perf_counter() - began)
    per_step = dict(zip(COUNTED, [(new - old) / STEPS for old, new in zip(before, counts(), strict=True)], strict=True))
    launched = per_step["kernels"] + per_step["triton"] + per_step["products"]
    ms = 1e3 * sorted(times)[STEPS // 2]
    print(f"| {name} | {ms:.1f} | {launched:.0f} | {per_step['repeated']:.0f} | {per_step['waits']:.0f} |", flush=True)


def main() -> int:
    """Measure all three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=16384, help="of a step")
    args = parser.parse_args()
    if "NULL_GPU" not in os.environ:
        return null_gpu.run(sys.argv).returncode
    set_gpu_options()
    torch.set_num_threads(1)
    print("| step | ms | kernels | recordings | waits |\n|---|---|---|---|---|")
    trainer = ours(args)
    measure("ours", trainer.run_step)
    trainer._recorder._works = False
    measure("ours, without recordings", trainer.run_step)
    measure("BERT", bert(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
