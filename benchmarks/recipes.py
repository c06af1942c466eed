"""Compare recipes of training: the configuration behind "Recipes" in benchmarks/README.md.

    git clone https://github.com/moritzlad/BabyLM-Tiny
    python benchmarks/recipes.py FOLDER --clone BabyLM-Tiny [--blimp]
    snakemake --profile profiles/local experiments/ten experiments/one --configfile FOLDER/config.yaml
    snakemake --profile profiles/local experiments/tuned experiments/tuned_once --configfile FOLDER/config.yaml
    snakemake --profile profiles/local experiments/big_ten --configfile FOLDER/config.yaml
    snakemake --profile profiles/local experiments/small_ten experiments/small_once --configfile FOLDER/config.yaml

This writes texts and `config.yaml` into FOLDER and trains nothing. The texts are of five kinds in equal shares, words
from eight places of each (all words for `small_ten` and `small_once`). `ten` are ten epochs of 75,000 words, `one` is
one epoch of 650,000 words, both with 1.2 M parameters (preset `tiny`): each model takes two to three minutes of CPU
time. `lengths` varies the lengths of rows on the text of `ten`, `masks` the shares of masked tokens. `big_ten` are
ten epochs of 300,000 words with 3.7 M parameters. `tuned` (on the same text, also with a quarter of the rows masked)
and `tuned_once` (on that of `one`) compare these recipes with the published one at this size and with six seeds: a
training takes about 20 minutes of CPU time (4 of `tuned_once`). `small_ten` and `small_once` do so with three seeds
of the preset `small` on 2.3 million words, for a GPU. With `--blimp`, the larger models are also scored on pairs of
BLiMP, which come from the Hub.
"""

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

KINDS = ("bnc_spoken", "childes", "gutenberg", "open_subtitles", "simple_wiki")
TEXTS = {  # the file's suffix, places, and words of each kind; "full" has all words
    "ten": ("", 8, 15_000),
    "big_ten": ("", 8, 60_000),
    "one": ("", 8, 130_000),
    "full": ("", 1, 10_000_000),
    "validation": ("_dev", 2, 4_000),
}
DOCUMENT = 250  # words
SEQUENCE = 12

MUON, NO_DROPOUT = (
    {"train.optimizer": "muon"},
    {"model.hidden_dropout_prob": 0.0, "model.attention_probs_dropout_prob": 0.0},
)


def muon(learning_rate: float, weight_decay: float, **train: Any) -> dict[str, Any]:
    """Return a cell of an experiment that is trained by Muon."""
    asked = {"learning_rate": learning_rate, "weight_decay": weight_decay, **train}
    return MUON | {f"train.{key}": value for key, value in asked.items()}


BEST = muon(0.005, 2.0, order="documents") | NO_DROPOUT  # of ten epochs with 1.2 M parameters
CELLS = {
    "ten": [
        {},
        {"train.learning_rate": 0.02},
        {"train.weight_decay": 0.01},
        {"train.weight_decay": 1.0},
        NO_DROPOUT,
        NO_DROPOUT | {"train.learning_rate": 0.02},
        NO_DROPOUT | {"train.learning_rate": 0.02, "train.order": "documents"},
        *(muon(*each) for each in ((0.005, 2.0), (0.01, 2.0), (0.005, 4.0), (0.01, 1.0))),
        *(muon(*each) | NO_DROPOUT for each in ((0.005, 2.0), (0.0035, 3.0))),
        BEST,
    ],
    "one": [
        {},
        NO_DROPOUT,
        NO_DROPOUT | {"train.learning_rate": 0.02},
        *(muon(*each) | NO_DROPOUT for each in ((0.01, 0.1), (0.02, 0.1), (0.01, 2.0), (0.005, 2.0))),
        muon(0.01, 2.0, order="documents") | NO_DROPOUT,
    ],
    "lengths": [
        {},
        {"train.sequence_lengths": [128], "train.phase_starts": [0.0]},
        {"train.sequence_lengths": [64, 128, 256, 512], "train.phase_starts": [0.0, 0.35, 0.7, 0.9]},
    ],
    "masks": [BEST, BEST | {"train.mask_rate_end": 0.3}, BEST | {"train.mask_rate_start": 0.15}],
    "big_ten": [
        {},
        muon(0.005, 2.0, order="documents") | NO_DROPOUT,
        *(muon(*each, order="documents") for each in ((0.005, 2.0), (0.005, 0.5), (0.005, 0.2), (0.0025, 1.0))),
        NO_DROPOUT | {"train.learning_rate": 0.02, "train.order": "documents"},
        *(
            {"train.order": "documents"} | cell  # of LAMB, as published but for this
            for cell in (
                {},
                {"train.learning_rate": 0.007},
                {"train.learning_rate": 0.014},
                {"train.weight_decay": 0.03},
                {"train.weight_decay": 0.3},
                {"model.hidden_dropout_prob": 0.2, "model.attention_probs_dropout_prob": 0.2},
            )
        ),
        {"train.hybrid_ratio": "1/4"},
        {"preset": ["tiny", "tuned"], "train.hybrid_ratio": "1/4", "train.mask_rate_end": 0.3},
        {"preset": ["tiny", "tuned"], "train.mask_rate_end": 0.05},
    ],
    "tuned": [{}, {"preset": ["tiny", "tuned"]}, {"preset": ["tiny", "tuned"], "train.hybrid_ratio": "1/4"}],
    "tuned_once": [{}, {"preset": ["tiny", "tuned_once"]}],
    "small_ten": [{}, {"preset": ["small", "tuned"]}],
    "small_once": [{}, {"preset": ["small", "tuned_once"]}],
}
SEEDS = {
    "lengths": 1,
    "masks": 1,
    "big_ten": 1,
    "tuned": 6,
    "tuned_once": 6,
    "small_ten": 3,
    "small_once": 3,
}  # else 2
BASES = {
    "lengths": "ten",
    "masks": "ten",
    "tuned": "big_ten",
    "tuned_once": "big_one",
}  # of experiments without a text of their own

# Steps; of the models of 1.2 M parameters, a third.
VALIDATE_EVERY = {
    "ten": 220,
    "one": 193,
    "big_ten": 250,
    "big_one": 100,
    "small_ten": 250,
    "small_once": 50,
}
BIG = {
    "tokenizer": {"vocab_size": 4096},
    "model": {"hidden_size": 192, "intermediate_size": 512, "num_attention_heads": 6, "num_hidden_layers": 6},
}


def text_of(clone: Path, name: str) -> str:
    """Return a file of the text's repository, as it is in the commit that is checked out."""
    show = ["git", "-C", clone, "show", f"HEAD:datasets/BabyLM_dataset/train_600k/{name}"]
    done = subprocess.run(show, capture_output=True)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1]
        raise SystemExit(f"error: --clone {clone} is no clone of https://github.com/moritzlad/BabyLM-Tiny: {reason}")
    return done.stdout.decode()


def sequences(words: list[str]) -> set[tuple[str, ...]]:
    """Return all sequences of SEQUENCE words in a row."""
    return set(zip(*(words[first:] for first in range(SEQUENCE)), strict=False))


def documents(words: list[str]) -> list[list[str]]:
    """Cut words into documents."""
    return [words[first : first + DOCUMENT] for first in range(0, len(words), DOCUMENT)]


def write_text(clone: Path, path: Path, suffix: str, places: int, of_each: int) -> None:
    """Write `of_each` words of each kind, from several places of its file.

    What shares a sequence with a file `_dev` is left out of texts for training: these files are parts of the others.
    """
    with path.open("w", encoding="utf-8") as out:
        for kind in KINDS:
            held_out = set() if suffix else sequences(text_of(clone, f"{kind}_dev.train").split(" "))
            whole = documents(text_of(clone, f"{kind}{suffix}.train").split(" "))
            words = [word for part in whole if held_out.isdisjoint(sequences(part)) for word in part]
            for place in range(places):
                begin, number = len(words) * place // places, of_each // places
                for document in documents(words[begin : begin + number]):
                    out.write(json.dumps({"text": " ".join(document)}) + "\n")


def configuration(folder: Path, blimp: bool, precision: str = "bf16") -> dict[str, Any]:
    """Return the configuration: a language for each text, and an experiment on it."""
    corpora, models = {}, {}
    for name, validate_every in VALIDATE_EVERY.items():
        epochs = 10 if "ten" in name else 1
        text = "full" if "small" in name else name if "ten" in name else "one"
        files = {"files": [str(folder / f"{text}.jsonl")], "validation_files": [str(folder / "validation.jsonl")]}
        corpora[f"english_{name}"] = {"language": "eng", "corpus": files}
        larger = "big" in name or "small" in name
        train: dict[str, Any] = {"epochs": epochs} | ({} if larger else {"average_last": 0.2})
        models[f"english_{name}"] = {"train": train, "run": {"validate_every": validate_every}}
        models[f"english_{name}"] |= BIG if "big" in name else {}
        if "small" in name:
            models[f"english_{name}"]["preset"] = "small"
            train |= {"global_batch_tokens": 16384, "precision": "bf16"}
        if blimp and larger:
            models[f"english_{name}"]["evaluation"] = {
                "suites": ["blimp"],
                "max_items": 200,
                "max_masked_items": 20,
            }
    experiments = {
        name: {
            "base": f"english_{BASES.get(name, name)}",
            "vary": cells,
            "seeds": SEEDS.get(name, 2),
            "compare_with": cells[0],
        }
        for name, cells in CELLS.items()
    }
    rest = {"train": {"global_batch_tokens": 2048, "precision": precision}, "evaluation": {"max_documents": None}}
    return {"preset": "tiny", "targets": [], "languages": corpora, "models": models, "experiments": experiments} | rest


def main() -> None:
    """Write the texts and the configuration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clone", type=Path, required=True, help="a clone of moritzlad/BabyLM-Tiny")
    parser.add_argument("--blimp", action="store_true", help="also score the larger models on pairs of BLiMP")
    parser.add_argument(
        "--precision", choices=["bf16", "fp32"], default="bf16", help="fp32 for CPUs without AVX-512 (not of small_*)"
    )
    args = parser.parse_args()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name, (suffix, places, of_each) in TEXTS.items():
        write_text(args.clone, folder / f"{name}.jsonl", suffix, places, of_each)
    text = yaml.safe_dump(configuration(folder, args.blimp, args.precision), sort_keys=False)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    print(f"next: snakemake --profile profiles/local --configfile {folder / 'config.yaml'} -n experiments/ten")


if __name__ == "__main__":
    main()
