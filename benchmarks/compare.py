"""Check that `babelmill compare` finds the effect of more training: models of 200 and 1,000 steps on 2,000 pairs.

    python benchmarks/compare.py FOLDER [--steps 1000] [--cores N]

This trains two small causal models of the documentation of Python in FOLDER with the workflow, the first for a fifth of
the steps. The pairs are sentences of the validation text, and the same sentences with two neighbouring words swapped.
Then it prints the output of `babelmill compare`. Existing results in FOLDER are kept.
"""

import subprocess
import sys

import pyarrow.parquet as pq
from suites import swapped
from workflow_run import ENVIRONMENT, arguments, make

PAIRS = 2000
CORPUS = {"files": [], "builtin": "python-docs", "validation_share": 0.25}
SHAPE = {"hidden_size": 96, "intermediate_size": 256, "num_attention_heads": 4, "num_hidden_layers": 3}
TRAIN = {"objective": "causal", "global_batch_tokens": 512, "sequence_lengths": [64], "phase_starts": [0.0]}


def configuration(steps: int) -> dict:
    """Return both models, and the suite."""
    models = {
        f"steps_{count}": {
            "languages": ["eng"],
            "preset": "tiny",
            "model": SHAPE,
            "train": TRAIN | {"max_steps": count},
        }
        for count in (steps // 5, steps)
    }
    mine = {"files": ["pairs.tsv"], "language": "eng", "good": "good", "bad": "bad"}
    return {
        "models": models,
        "languages": {"eng": {"corpus": CORPUS}},
        "suites": {"swapped_words": mine},
        "evaluation": {"suites": ["swapped_words"]},
        "run": {"validate_every": 0},
        "resources": {"gpus": 0},
    }


def main() -> None:
    """Train, score, compare."""
    args = arguments(__doc__, steps=1000)
    folder, asked = args.folder, configuration(args.steps)
    path = folder / "pairs.tsv"
    if not path.exists():
        without = {key: value for key, value in asked.items() if key not in ("suites", "evaluation")}
        make(folder, without, asked["models"], args.cores, "corpus")
        texts = pq.read_table(folder / f"results/of/steps_{args.steps}/corpus/validation.parquet")["text"].to_pylist()
        path.write_text("good\tbad\n" + "".join(f"{good}\t{bad}\n" for good, bad in swapped(texts, PAIRS)))
    names = list(asked["models"])
    make(folder, asked, names, args.cores, "score", "evaluate")
    command = [sys.executable, "-m", "babelmill", "compare", *names]
    subprocess.run(command, cwd=folder, env=ENVIRONMENT, check=True)


if __name__ == "__main__":
    main()
