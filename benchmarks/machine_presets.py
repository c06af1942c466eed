"""Compare the learning rate of the machine presets with that of the scripts whose shapes they have, on a small corpus.

    python benchmarks/machine_presets.py FOLDER [--steps 300] [--cores N]

This trains the preset `1gpu_standard` for `--steps` steps of 16 rows of 128 tokens of English (`real_text.py`: the help
of LibreOffice). Then it trains again with the values of microbert's script: AdamW, a rate of 3e-5, and warm-up for a
tenth of the steps.
"""

import json
from pathlib import Path

from real_text import fetch
from workflow_run import arguments, make

DOCUMENTED = {"optimizer": "adamw", "learning_rate": 3e-5, "warmup": 0.1, "betas": [0.9, 0.999], "clip_norm": 1.0}
MODELS = {"ours": {}, "documented": {"train": DOCUMENTED}}


def main() -> None:
    """Train, print."""
    args = arguments(__doc__)
    folder: Path = args.folder
    shared = {"languages": ["eng"], "preset": "1gpu_standard"}
    text = {"files": [str(fetch(folder / "texts", "en-us"))], "validation_share": 0.02, "budget": None}
    configuration = {
        "models": {name: shared | changed for name, changed in MODELS.items()},
        "languages": {"eng": {"corpus": text}},
        "train": {"max_steps": args.steps, "precision": "fp32"},
        "evaluation": {"documents": 100},
        "resources": {"gpus": 0},
        "run": {"log_every": 10, "validate_every": 0},
    }
    make(folder, configuration, MODELS, args.cores, "evaluate")
    print("| learning rate | bits per byte, last weights | averaged |\n|---|---|---|")
    for name in MODELS:
        evaluation = json.loads((folder / f"results/of/{name}/evaluate/evaluation.json").read_text(encoding="utf-8"))
        scores = {variant: found["masked"]["value"] for variant, found in evaluation["variants"].items()}
        print(f"| {name} | {scores['main']:.3f} | {scores['ema']:.3f} |")


if __name__ == "__main__":
    main()
