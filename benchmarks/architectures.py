"""Compare GPT-BERT with GPT-2 and BERT of its size: scores, speed and memory on the same text, in fp32.

    python benchmarks/architectures.py FOLDER [--steps 300] [--cores N]

This trains the presets `small`, `gpt2_30m` and `bert_30m` in FOLDER with the workflow, each for 300 steps of 16 rows of
128 tokens of English (`real_text.py`: the help of LibreOffice and the documentation of Python). It loads each converted
folder of a transformers model as its users do, without `trust_remote_code`, and prints a table. Existing results in
FOLDER are kept. Speed is the median of the record's lines, and memory is their maximum. If the machine was busy, use
only the scores, and measure the speed again with `--steps 30` in another folder.
"""

import json
import statistics
from pathlib import Path

from real_text import PYTHON, fetch
from workflow_run import arguments, make

MODELS = {"gpt_bert": "small", "gpt2": "gpt2_30m", "bert": "bert_30m"}
AUTO_CLASSES = {"gpt2": "AutoModelForCausalLM", "bert": "AutoModelForMaskedLM"}
TRAIN = {"global_batch_tokens": 2048, "sequence_lengths": [128], "phase_starts": [0.0], "precision": "fp32"}


def run(folder: Path, steps: int, cores: int) -> None:
    """Train, evaluate and convert the models with the workflow."""
    texts = [str(fetch(folder / "texts", name)) for name in ("en-us", PYTHON)]
    configuration = {
        "models": {name: {"languages": ["eng"], "preset": preset} for name, preset in MODELS.items()},
        "languages": {"eng": {"corpus": {"files": texts, "validation_share": 0.01}}},
        "train": TRAIN | {"max_steps": steps, "micro_batch_tokens": 2048},
        "evaluation": {"documents": 100},
        "run": {"log_every": 10, "validate_every": 0},
        "resources": {"gpus": 0},
    }
    make(folder, configuration, MODELS, cores)


def load(folder: Path, name: str) -> None:
    """Load a converted folder without running code of the folder."""
    import transformers

    cls = getattr(transformers, AUTO_CLASSES[name])
    _, report = cls.from_pretrained(folder / "converted" / name, output_loading_info=True)
    assert not report["missing_keys"], report


def row(folder: Path, name: str) -> str:
    """Return a model's line of the table."""
    with open(folder / f"results/of/{name}/train/metrics.jsonl", encoding="utf-8") as file:
        lines = [line for line in map(json.loads, file) if line["kind"] == "train"]
    evaluation = json.loads((folder / f"results/of/{name}/evaluate/evaluation.json").read_text(encoding="utf-8"))
    figures = json.loads((folder / f"results/of/{name}/train/manifest.json").read_text(encoding="utf-8"))["figures"]
    scores = evaluation["variants"]["ema"]
    shown = ", ".join(f"{metric} {score['value']:.3f}" for metric, score in scores.items())
    speed = statistics.median(line["tokens_per_second"] for line in lines)
    memory = max(line["memory"] for line in lines)
    return f"| {name} | {figures['parameters'] / 1e6:.1f} M | {shown} | {speed:,.0f} | {memory:,.0f} |"


def main() -> None:
    """Train, load, print."""
    args = arguments(__doc__)
    folder: Path = args.folder
    run(folder, args.steps, args.cores)
    for name in AUTO_CLASSES:
        load(folder, name)
    print("| model | parameters | bits per byte | tokens/s | peak MiB |\n|---|---|---|---|---|")
    for name in MODELS:
        print(row(folder, name))


if __name__ == "__main__":
    main()
