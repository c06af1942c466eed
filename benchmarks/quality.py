"""Check that the training learns: curves of hybrid, masked and causal runs on real English text.

    python benchmarks/quality.py FOLDER [--steps 1000] [--seeds 3] [--cores N]

This writes a configuration to FOLDER, with 12 MB of English (`real_text.py`: the help of LibreOffice and the
documentation of Python), a model of the preset `tiny` for each objective and seed, and three short runs of `SHORT`
steps. It trains them with the workflow (existing results are kept; two cores need about an hour and a half), draws the
validation curves into benchmarks/quality.png, and prints a table.

Bits per byte are those of the validation split: loss x targets / bytes. Each token is a target once, and contexts are
those of training (128 tokens). In masked rows, the mask rate is the last one, which hides 15 % of the tokens. The loss
of the unigram distribution is the same for both objectives: a model that reads no context would end there.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import yaml
from real_text import PYTHON, fetch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from babelmill.tokens.shard_file import ShardFile  # noqa: E402

OBJECTIVES = {"hybrid": "C0", "masked": "C1", "causal": "C2"}
SHORT = 200


def configure(folder: Path, steps: int, seeds: int) -> list[str]:
    """Write the configuration. Return the names of the models."""
    texts = [str(fetch(folder / "texts", name)) for name in ("en-us", PYTHON)]
    runs = [(f"{objective}_{seed}", objective, seed, steps) for objective in OBJECTIVES for seed in range(1, seeds + 1)]
    runs += [(f"short_{seed}", "hybrid", seed, SHORT) for seed in range(1, seeds + 1)]
    models = {
        name: {"languages": ["eng"], "train": {"objective": objective, "seed": seed, "max_steps": length}}
        for name, objective, seed, length in runs
    }
    configuration = {
        "preset": "tiny",
        "models": models,
        "languages": {"eng": {"corpus": {"files": texts, "validation_share": 0.01}}},
        "train": {"global_batch_tokens": 2048},
        "run": {"validate_every": 100},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
    return list(models)


def train(folder: Path, models: list[str], cores: int) -> None:
    """Run the workflow in `folder`."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", folder]
    command += ["--configfile", folder / "config.yaml", "--cores", cores, "--set-threads", "train=1", "--keep-going"]
    command += ["--resources", "gpu=0", "--rerun-incomplete", "--until", "train", "--"]
    targets = [f"converted/{model}" for model in models]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    subprocess.run([*map(str, command), *targets], env=environment, check=True)


def unigram(folder: Path, model: str) -> tuple[float, float]:
    """Return the validation text's nats per token under the token frequencies of training, and its bytes per token."""
    shards = folder / f"results/of/{model}/shards"
    train, validation = (ShardFile.open(shards / f"{split}.safetensors") for split in ("train", "validation"))
    frequency = np.bincount(train.tokens, minlength=train.vocab_size) + 1.0
    tokens = validation.tokens[validation.tokens != 1]  # `<s>` is not a target
    nats = -np.log(frequency / frequency.sum())[tokens].mean()
    text = pq.read_table(folder / f"results/of/{model}/corpus/validation.parquet", columns=["text"])["text"].to_pylist()
    return nats, sum(len(document.encode()) for document in text) / len(tokens)


def validation(folder: Path, model: str) -> list[dict]:
    """Return the validations of a run."""
    with open(folder / f"results/of/{model}/train/metrics.jsonl", encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if line["kind"] == "validation"]


def draw(curves: dict[str, list[dict]], unit: float, level: float, target: Path) -> None:
    """Draw a panel for each objective's loss, with a line for each run."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    for axis, objective in zip(axes, ("causal", "masked"), strict=True):
        key = f"ema_loss_{objective}"
        for model, lines in curves.items():
            name, _, seed = model.rpartition("_")
            if name not in OBJECTIVES or lines[-1].get(key) is None:
                continue
            points = [(line["step"], line[key] * unit) for line in lines if line["step"]]
            label = f"{name} model" if seed == "1" else None
            axis.plot(*zip(*points, strict=True), color=OBJECTIVES[name], linewidth=1.2, alpha=0.8, label=label)
        axis.axhline(level, color="grey", linestyle=":", linewidth=1.2, label="unigram")
        axis.set(title=f"{objective} prediction", xlabel="step")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
    axes[0].set_ylabel("validation, bits per byte (averaged weights)")
    figure.savefig(target, dpi=110, metadata={"Software": None})


def main() -> None:
    """Train, draw, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    args = parser.parse_args()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    models = configure(folder, args.steps, args.seeds)
    train(folder, models, args.cores)

    nats, bytes_per_token = unigram(folder, models[0])
    unit = 1 / math.log(2) / bytes_per_token
    curves = {model: validation(folder, model) for model in models}
    print(f"{bytes_per_token:.2f} bytes per token; unigram {nats * unit:.3f} bits per byte")
    print("| run | loss | raw weights, by seed | averaged weights, by seed | averaged / raw |")
    print("|---|---|---|---|---|")
    for name, steps in {**dict.fromkeys(OBJECTIVES, args.steps), "short": SHORT}.items():
        for objective in ("masked", "causal"):
            last = [curves[model][-1] for model in models if model.rpartition("_")[0] == name]
            if last[0].get(f"loss_{objective}") is None:
                continue
            raw, average = ([line[f"{prefix}loss_{objective}"] * unit for line in last] for prefix in ("", "ema_"))
            cells = [" ".join(f"{value:.3f}" for value in values) for values in (raw, average)]
            ratio = " ".join(f"{b / a:.4f}" for a, b in zip(raw, average, strict=True))
            print(f"| {name}, {steps:,} steps | {objective} | {cells[0]} | {cells[1]} | {ratio} |")
    draw(curves, unit, nats * unit, ROOT / "benchmarks/quality.png")


if __name__ == "__main__":
    main()
