"""Compare the speed of a training step of GPT-BERT, NorBERT4 and BERT of the same width and depth: `make bench`.

    python benchmarks/step.py [--shapes 16x128 4x512 8x512] [--precisions fp32 bf16] [--dropouts 0.1 0] [--rounds 5]
    python benchmarks/step.py --propose [--precisions bf16]

Our step is a whole optimizer step of the preset `small`: plan, data and masking, forward, backward, clipping, LAMB and
moving average; half of the rows are causal. It is compared with `BertForMaskedLM` of transformers with the same
vocabulary, width, depth and feed-forward size, with PyTorch's SDPA and fused AdamW: forward with labels (15 % of the
tokens), backward, clipping and step, on a batch that is ready in memory. Each has its own process. They take turns of a
few seconds, and the ratio is the median over the rounds. GPT-BERT does about 1.28 times BERT's arithmetic per token.
With `--threads 1` on a CPU, seconds are CPU time, so that other programs matter little; the first line says so. The
share of data in a step is always one of elapsed time.

`--propose` measures only our step with growing `run.micro_batch_tokens`, and says which value to use on this device.
"""

import argparse
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from babelmill.config.resolve import Configuration  # noqa: E402
from babelmill.config.schema import Section  # noqa: E402
from babelmill.core.files import UserError  # noqa: E402
from babelmill.runtime.cost import has_gpu  # noqa: E402
from babelmill.tokens.shard_file import ShardFile, write_shard  # noqa: E402

TOKENS = 2_000_000
SECONDS = 4.0  # approximate length of a turn


def laid_over(section: Section, **values) -> Section:
    """Return a section of the settings with other values."""
    return type(section).model_validate(section.model_dump() | values)


def engine(
    preset: str,
    micro_batch: int,
    batch: int,
    length: int,
    precision: str,
    dropout: float,
    threads: int,
    architecture: str = "gpt_bert",
):
    """Return a function that does one of our training steps and reports it, and a description."""
    from babelmill.config.models import size_of
    from babelmill.runtime.cost import flops, peak_of
    from babelmill.runtime.processes import Processes
    from babelmill.runtime.watching import device_name, peak_memory
    from babelmill.training.kernels.compilation import Graphs, set_gpu_options

    configured = Configuration([("benchmark", {"preset": preset})]).model("eng")
    train = laid_over(
        configured.train,
        **dict(sequence_lengths=[length], phase_starts=[0.0], batch_reduction=1.0, max_steps=100_000),
        **dict(global_batch_tokens=batch, precision=precision),
    )
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = laid_over(configured.model, **drops, architecture=architecture)
    size = size_of(model, configured.tokenizer.vocab_size)
    processes = Processes.start(threads)
    set_gpu_options()
    graphs = Graphs() if processes.device.type == "cuda" else None
    trainer = make_trainer(model, train, configured.tokenizer.vocab_size, processes, micro_batch, graphs)
    numbers = itertools.count()

    def step() -> dict:
        outcome = trainer.run_step(next(numbers))
        rows = outcome.step.rows
        targets = int(rows.targets.sum())
        return {
            "tokens": len(rows) * length,
            "flops": flops(size, length, len(rows) * length, targets),
            "wait": outcome.norm.item,
        }

    return step, {"peak": peak_of(device_name(processes.device)), "memory": lambda: peak_memory(processes.device)}


def make_trainer(model: Section, train: Section, vocab_size: int, processes, micro_batch: int, graphs=None):
    """Return a trainer on random tokens."""
    from babelmill.config.schema import Mixture
    from babelmill.stages import TrainStage
    from babelmill.tokens.vocabulary import Vocabulary
    from babelmill.train import make_network
    from babelmill.training.batches import TokenStream
    from babelmill.training.plan.objectives import objective_of
    from babelmill.training.plan.plan import Plan
    from babelmill.training.plan.rows import Packed
    from babelmill.training.trainer import Trainer

    with tempfile.TemporaryDirectory() as folder:
        shard = documents(Path(folder) / "shard.safetensors", vocab_size)
        vocabulary = Vocabulary(vocab_size, bos=1, eos=2, pad=3, mask=4, special=tuple(range(16)))
        layouts = [Packed(shard.offsets)]
    labels = Configuration([("benchmark", {})]).model("eng").labels
    sections = {"model": model, "train": train, "labels": labels, "mixture": Mixture(weights="size")}
    settings = TrainStage(languages=["eng"], **sections)
    network = make_network(settings, vocabulary, None, processes, graphs)
    stream = TokenStream([shard], vocabulary, 0, processes.device, objective_of(train), graphs=network.compiled)
    plan = Plan(train, 1.0, layouts)
    trainer = Trainer(settings, network, plan, stream, (layouts, stream), processes, micro_batch)
    trainer.state.copy_from_main()
    return trainer


def documents(path: Path, vocab_size: int) -> ShardFile:
    """Write a shard of random tokens in documents of about 300 tokens. Lengths are log-normal, as in real text."""
    random = np.random.default_rng(0)
    lengths = np.maximum(3, random.lognormal(5.3, 0.9, TOKENS // 300)).astype(np.int64)
    ids = (np.array([1, *random.integers(16, vocab_size, length - 2), 2]) for length in lengths)
    write_shard(path, vocab_size, "none", ((tokens, np.array([len(tokens)]), None) for tokens in ids))
    return ShardFile.open(path)


def bert(preset: str, batch: int, length: int, precision: str, dropout: float, threads: int):
    """Return a function that does a training step of BERT, and a description."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    torch.set_num_threads(threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ours = Configuration([("benchmark", {"preset": preset})]).model("eng")
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
    config = BertConfig(
        vocab_size=ours.tokenizer.vocab_size,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        attn_implementation="sdpa",
        **{name: getattr(ours.model, name) for name in names},
    )
    model = BertForMaskedLM(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(16, config.vocab_size, (batch // length, length), device=device)
    labels = torch.where(torch.rand(tokens.shape, device=device) < 0.15, tokens, -100)

    def step() -> dict:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            loss = model(input_ids=tokens, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        return {"tokens": tokens.numel(), "wait": loss.item}

    return step, {}


def work(connection, make, arguments, clock=time.perf_counter) -> None:
    """Do steps on request, in a process. For each number of seconds received, send what `Worker.turn` returns."""
    try:
        step, about = make(*arguments)
        for _ in range(3):
            step()["wait"]()
        while (seconds := connection.recv()) is not None:
            began, tokens, work = clock(), 0, 0.0
            while (elapsed := clock() - began) < seconds:
                done = step()
                done["wait"]()
                tokens, work = tokens + done["tokens"], work + done.get("flops", 0.0)
            peak = about.get("peak")
            mfu = work / elapsed / peak if peak else None
            memory = about["memory"]() if "memory" in about else None
            connection.send((tokens / elapsed, mfu, memory))
    except Exception as error:  # for instance, out of memory
        connection.send(UserError(str(error).splitlines()[0] if str(error) else type(error).__name__))


class Worker:
    """Runs `work` in its own process."""

    def __init__(self, make, *arguments, clock=time.perf_counter):
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, make, arguments, clock), daemon=True)
        self._process.start()

    def turn(self, seconds: float):
        """Return tokens per second, MFU and peak memory (the last two if they are known)."""
        self._connection.send(seconds)
        try:
            result = self._connection.recv()
        except EOFError:
            raise UserError("killed, probably for its memory") from None
        if isinstance(result, UserError):
            raise result
        return result

    def stop(self) -> None:
        """End the process."""
        self._connection.send(None)
        self._process.join()


def in_cpu_time(args) -> bool:
    """Return whether seconds are those of the processor: with one thread, and without a GPU that works meanwhile."""
    return args.threads == 1 and not has_gpu()


def compare(args, batch: int, length: int, precision: str, dropout: float) -> None:
    """Print the line of a case."""
    tokens = batch * length
    ours = args.preset, tokens, tokens, length, precision, dropout, args.threads
    clock = time.process_time if in_cpu_time(args) else time.perf_counter
    workers = [Worker(engine, *ours, name, clock=clock) for name in ("gpt_bert", "norbert4")]
    workers.append(Worker(bert, args.preset, tokens, length, precision, dropout, args.threads, clock=clock))
    for worker in workers:
        worker.turn(0.1)
    rounds = [[worker.turn(SECONDS) for worker in workers] for _ in range(args.rounds)]
    speeds = [f"{statistics.median(each[i][0] for each in rounds):,.0f}" for i in range(len(workers))]
    to_bert, to_gpt_bert = ([each[i][0] / each[j][0] for each in rounds] for i, j in ((0, 2), (1, 0)))
    mfu = rounds[-1][0][1]
    ratios = [f"{statistics.median(each):.2f} ({min(each):.2f}-{max(each):.2f})" for each in (to_bert, to_gpt_bert)]
    line = [
        f"{batch} x {length}",
        precision,
        f"{dropout:g}",
        *speeds,
        *ratios,
        f"{mfu:.1%}" if mfu else "",
    ]
    print(f"| {' | '.join(line)} |", flush=True)
    for worker in workers:
        worker.stop()


def propose(args, precision: str) -> None:
    """Print speed and memory by `micro_batch_tokens`, and the smallest size that is as good as the best."""
    length, speed = 512, {}
    print("| micro_batch_tokens | tokens/s | MFU | memory (GiB) |\n|---|---|---|---|")
    size = 1024
    while size <= args.largest:
        # Dropout is off: on a GPU, attention dropout would make the result depend on the size.
        worker = Worker(engine, args.preset, size, args.largest, length, precision, 0.0, args.threads)
        try:
            worker.turn(0.1)
            speed[size], mfu, memory = worker.turn(SECONDS)
        except UserError as error:
            print(f"| {size} | {error} | | |")
            break
        worker.stop()
        print(f"| {size} | {speed[size]:,.0f} | {f'{mfu:.1%}' if mfu else ''} | {memory / 1024:.1f} |", flush=True)
        size *= 2
    if not speed:
        raise SystemExit("error: not even 1024 tokens fit into memory; choose a smaller --preset")
    best = next(size for size, value in speed.items() if value > 0.97 * max(speed.values()))
    print(f"for this device: run.micro_batch_tokens: {best}")


def shape(text: str) -> tuple[int, int]:
    """Turn 16x128 into (16, 128)."""
    rows, length = text.split("x")
    return int(rows), int(length)


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small")
    shapes = [(16, 128), (4, 512), (8, 512)]
    parser.add_argument("--shapes", nargs="+", type=shape, default=shapes, metavar="ROWSxLENGTH")
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--dropouts", nargs="+", type=float, default=[0.1, 0.0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--propose", action="store_true", help="say which micro_batch_tokens to use on this device")
    parser.add_argument(
        "--largest", type=int, help="largest micro_batch_tokens of --propose (default: 16384, on a GPU 262144)"
    )
    args = parser.parse_args()
    if args.largest is None:
        args.largest = 262144 if has_gpu() else 16384
    if args.propose:
        propose(args, args.precisions[-1])
        return
    clock = "CPU time of one thread" if in_cpu_time(args) else f"elapsed time, {args.threads} threads"
    print(f"tokens per second ({clock}), median of {args.rounds} rounds; ratios with their range\n")
    print(
        "| rows x length | precision | dropout | GPT-BERT | NorBERT4 | BERT | GPT-BERT / BERT | NorBERT4 / GPT-BERT"
        f" | MFU |\n{'|---' * 9}|"
    )
    for dropout in args.dropouts:
        for batch, length in args.shapes:
            for precision in args.precisions:
                compare(args, batch, length, precision, dropout)


if __name__ == "__main__":
    main()
