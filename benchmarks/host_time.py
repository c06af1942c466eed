"""Measure how long the host needs to ask a GPU for a training step, without a GPU.

    python benchmarks/host_time.py [--layers 12] [--rounds 5]

If the host needs longer for a step than the GPU, the GPU waits. That happens to small models, whatever their kernels.
Here a CPU takes the path of a GPU: compiled blocks, and our kernels, whose launches do nothing. The model is as deep as
asked and so narrow that computing takes little time. It is compared with transformers' `BertForMaskedLM` of the same
shape with PyTorch's AdamW, not compiled. Both compute in bf16 on one core, in turns of one process.

Not included: launching itself, by estimate 20 us for a kernel of ours (the last column says how many there are) and 5
us for one of PyTorch's.
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from triton.runtime.jit import JITFunction

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "benchmarks")]

from step import laid_over, make_trainer  # noqa: E402

from babelmill.config.resolve import Configuration  # noqa: E402
from babelmill.model.gpt_bert import GPTBert  # noqa: E402
from babelmill.runtime.processes import Processes  # noqa: E402
from babelmill.training import between_blocks, dropout, fused_attention, geglu_triton  # noqa: E402
from babelmill.training.compilation import Compiler  # noqa: E402
from babelmill.training.gpt_bert_network import GPTBertNetwork  # noqa: E402
from babelmill.training.mixing_triton import FusedMixing  # noqa: E402

WIDTH, HEADS, VOCABULARY, ROWS, LENGTH = 64, 4, 128, 8, 32
STEPS = 10  # of a turn

launches = itertools.count()


def as_on_a_gpu(network: GPTBertNetwork, model: GPTBert, *_: object, **__: object) -> None:
    """Put into a model what training on a GPU puts there."""
    dropout.install(model, network.keys, dropout.KeyedAttention)
    fused_attention.install(model)
    geglu_triton.install(model)
    between_blocks.install(model, FusedMixing)
    network._needs_spans = True


def ours(layers: int) -> Callable[[], object]:
    """Return a function that does one of our steps."""
    configured = Configuration([("benchmark", {"preset": "small"})]).model("eng")
    sizes = dict(hidden_size=WIDTH, intermediate_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=layers)
    batch = dict(global_batch_tokens=ROWS * LENGTH, batch_reduction=1.0, max_steps=100_000, precision="bf16")
    train = laid_over(configured.train, sequence_lengths=[LENGTH], phase_starts=[0.0], **batch)
    alone = Processes(rank=0, size=1, local_size=1, device=torch.device("cpu"))
    GPTBertNetwork._install = as_on_a_gpu
    JITFunction.run = lambda *_, **__: next(launches)
    trainer = make_trainer(laid_over(configured.model, **sizes), train, VOCABULARY, alone, ROWS * LENGTH, Compiler())
    numbers = itertools.count()
    return lambda: trainer.run_step(next(numbers))


def bert(layers: int) -> Callable[[], object]:
    """Return a function that does a step of BERT."""
    from transformers import BertConfig, BertForMaskedLM

    sizes = dict(hidden_size=WIDTH, intermediate_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=layers)
    model = BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, **sizes)).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def milliseconds(step: Callable[[], object]) -> float:
    """Return the time of a step."""
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - began) / STEPS * 1e3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    steps = ours(args.layers), bert(args.layers)
    for step in steps:
        milliseconds(step)  # warms up
    before = next(launches)
    steps[0]()
    counted = next(launches) - before - 1
    found = [[milliseconds(step) for step in steps] for _ in range(args.rounds)]
    mine, other = (statistics.median(times) for times in zip(*found, strict=True))
    ratio = statistics.median(a / b for a, b in found)
    print("| layers | ours, ms | BERT, ms | ratio | launches of our kernels |\n|---|---|---|---|---|")
    print(f"| {args.layers} | {mine:.1f} | {other:.1f} | {ratio:.2f} | {counted} |")


if __name__ == "__main__":
    main()
