"""Measure how much the loss of masked diffusion varies with how tokens are hidden, and compare it with a masked model.

    python benchmarks/diffusion.py FOLDER [--steps 300] [--batches 200] [--cores N]

This trains two models of the preset `tiny` in FOLDER with the workflow, `diffusion` and `masked`, on the same tokens of
English (the documentation of Python). Existing results in FOLDER are kept. It prints their scores, and a text that the
first model generates. Then it computes the loss of this model on many batches of 32 rows of 128 tokens, in three ways,
and prints mean and standard deviation, and how far the gradient of a batch is from the mean of all (relative norm):

* LLaDA's: each row draws its own t, and each token is hidden with p = (1 - 0.001) t + 0.001 and counts 1 / p times;
* exact counts: of e tokens, k = 1 + floor(t e) are hidden and count e / k times; each row draws its own t;
* ours: the same, but t is spread over the rows of the batch by the golden ratio.

All three have the same expectation, so the way with the smallest deviation is the best.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from real_text import PYTHON, fetch
from safetensors.torch import load_file
from torch.nn import functional as F
from workflow_run import ENVIRONMENT, make

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from babelmill.model.gpt_bert import GPTBert, GPTBertShape, training_mask  # noqa: E402
from babelmill.tokens.shard_file import ShardFile  # noqa: E402
from babelmill.training.plan.objectives import GOLDEN_RATIO  # noqa: E402

ROWS, LENGTH, EPS = 32, 128, 1e-3
BOS, MASK = 1, 4


def run(folder: Path, steps: int, cores: int) -> None:
    """Train both models with the workflow."""
    objectives = {name: {"train": {"objective": name, "max_steps": steps}} for name in ("diffusion", "masked")}
    configuration = {
        "preset": "tiny",
        "models": {name: {"languages": ["eng"], **values} for name, values in objectives.items()},
        "languages": {"eng": {"corpus": {"files": [str(fetch(folder / "texts", PYTHON))]}}},
    }
    make(folder, configuration, objectives, cores)
    for name in objectives:
        show = [sys.executable, "-m", "babelmill", "show", f"converted/{name}"]
        show += ["--prompt", "The function returns", "--steps", "32"] if name == "diffusion" else []
        subprocess.run(show, cwd=folder, env=ENVIRONMENT, check=True)


def hidden(targets: torch.Tensor, way: str, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which of the targets [B, T] are hidden, and how often a target of each row counts, [B, 1]."""
    time = torch.rand(len(targets), 1, generator=generator)
    if way == "ours":
        time = (time[:1] + GOLDEN_RATIO * torch.arange(len(targets))[:, None]) % 1
    order = torch.rand(targets.shape, generator=generator).masked_fill(~targets, 2)
    if way == "LLaDA's":
        rate = (1 - EPS) * time + EPS
        return order < rate, 1 / rate
    every = targets.sum(1, keepdim=True)
    count = (1 + (time * every).long()).clamp(max=every)
    return order.argsort(1).argsort(1) < count, every / count


def vary(folder: Path, batches: int) -> None:
    """Measure the deviation of loss and gradient in each way."""
    config = json.loads((folder / "results/of/diffusion/train/config.json").read_text())
    model = GPTBert(GPTBertShape(**{name: config[name] for name in GPTBertShape.__dataclass_fields__})).eval()
    model.load_state_dict(load_file(folder / "results/of/diffusion/train/model.safetensors"))
    stream = torch.from_numpy(
        ShardFile.open(folder / "results/of/diffusion/shards/train.safetensors").tokens.astype("i8")
    )
    rows = stream[: len(stream) // LENGTH * LENGTH].view(-1, LENGTH)
    print("| way | mean loss | its deviation | of the gradient |\n|---|---|---|---|")
    for way in ("LLaDA's", "exact counts", "ours"):
        generator, losses, gradients = torch.Generator().manual_seed(0), [], []
        for _ in range(batches):
            tokens = rows[torch.randperm(len(rows), generator=generator)[:ROWS]]
            targets = tokens != BOS
            chosen, importance = hidden(targets, way, generator)
            shown = torch.where(chosen, MASK, tokens)
            given = torch.cat([torch.full_like(shown[:, :1], BOS), shown[:, :-1]], 1)
            segments = (given == BOS).cumsum(1)
            logits = model(given, training_mask(segments, torch.zeros(len(given), dtype=torch.bool)))
            entropies = F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none").view_as(tokens)
            loss = (entropies * chosen * importance).sum() / targets.sum()
            losses.append(loss.item())
            gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]))
        values, mean = torch.tensor(losses), sum(gradients) / batches
        noise = torch.stack([(gradient - mean).norm() for gradient in gradients]).mean() / mean.norm()
        print(f"| {way} | {values.mean():.3f} | {values.std():.3f} | {noise:.2f} |")


def main() -> None:
    """Train, show, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    args = parser.parse_args()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    run(folder, args.steps, args.cores)
    vary(folder, args.batches)


if __name__ == "__main__":
    main()
