"""Keep a results tree that a release made, so that tests can try an upgrade on it.

    python tests/scripts/released_results.py --write

runs the workflow for a few tiny models and packs the folder into `data/results_of_VERSION.tar.xz`: models of each
kind, with all that a user may ask for them, and `deu`, which was interrupted in the middle of its training. `make release`
does this, and later code cannot write it again: it shows what users of this release have.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from babelmill import __version__
from babelmill.core.files import UserError, atomic_write, read_json, write_json
from conftest import WORDS, Workspace, write_texts
from helpers import DATA, ROOT

RELEASES = sorted(path.name.removeprefix("results_of_").removesuffix(".tar.xz") for path in DATA.glob("results_of_*"))
# What the results of 0.2.0 were made with.
SETTINGS: dict[str, Any] = {
    "targets": ["eng", "deu"],
    "preset": "tiny",
    "tokenizer": {"vocab_size": 300},
    "model": {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_hidden_layers": 1},
    "train": {"max_steps": 8, "global_batch_tokens": 128, "sequence_lengths": [16, 32, 64]},
    "run": {"micro_batch_tokens": 64, "log_every": 1, "checkpoint_every": 4, "checkpoint_share": 1, "keep": 1},
    "languages": {
        language: {"corpus": {"files": [f"texts/{language}/*.txt"], "validation_share": 0.2}} for language in WORDS
    },
    # So long that there is time to interrupt it.
    "models": {"deu": {"train": {"max_steps": 400}}},
}

PAIRS = """good\tbad\tparadigm
the quick fox\tfox quick the\torder
seven wizards boil water\twater seven boil wizards\torder
warm water\twater wram\twords
"""
QUIZ = """prompt\tfirst\tsecond\tanswer
The wizards boil the\twater.\tfox.\t0
The quick brown fox jumps over the\tpots.\tdog.\t1
"""
TRADES = ("farmer", "fisher", "smith", "baker")
# A challenge of one's own, small enough for `eng`.
CHALLENGE = """
title: Tiny challenge
track: strict-small
submission: tiny
words: 400
epochs: 10
text: 2000
languages:
  tiny: {language: eng, corpus: {files: [texts/eng/*.txt], validation_share: 0.2}}
settings:
  train: {words: 400, max_steps: null}
  run: {snapshots: [0.0002, 0.0004]}
  evaluation: {suites: [pairs], snapshot_suites: [pairs]}
"""
RULES = """
state: the state of the test
form: strict
checkpoints: [0.0002, 0.0004]
tasks:
  pairs: {suite: pairs, sizes: {order: 2, words: 1}}
numbers:
  pairs: {title: Pairs, tasks: [pairs]}
"""
FILES = {
    "pairs.tsv": PAIRS,
    "quiz.tsv": QUIZ,
    "rows.tsv": "sentence\tclass\n"
    + "".join(f"the {word} boils {i}\t{'ab'[i % 2]}\n" for i, word in enumerate(TRADES * 6)),
    "others.tsv": "sentence\tclass\nan old farmer\ta\na young fisher\tb\n",
    "trades.csv": "text,code\n" + "".join(f"{trade} {i},{i % 4 + 1}\n" for i, trade in enumerate(TRADES * 12)),
    "census.csv": "text\nfarmer 1\nold smith\n",
    "config/challenges/tiny.yaml": CHALLENGE,
    "config/submissions/tiny.yaml": RULES,
}
# What the results of the present release are made with: SETTINGS, and each stage and each kind of model.
EACH_KIND = """
models:
  deu: {train: {max_steps: 400}}
  eng: {evaluation: {suites: [pairs, quiz], tasks: [kinds], task_seeds: [1]}}
  nor: {languages: [eng], model: {architecture: norbert4}}
  gpt:
    languages: [eng]
    train: {objective: causal}
    model: {architecture: transformers, config: {model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2}}
  occ:
    languages: [trades]
    train: {objective: labels, optimizer: adamw, sequence_lengths: [32], phase_starts: [0.0], global_batch_tokens: 640}
    predict: {inputs: {census: census.csv}}
  mine: {challenge: tiny}
experiments:
  rates: {base: eng, vary: {train.learning_rate: [0.003, 0.01]}, seeds: 1}
suites:
  pairs: {files: [pairs.tsv], language: eng, good: good, bad: bad, paradigm: paradigm}
  quiz:
    files: [quiz.tsv]
    language: eng
    kind: choices
    prompt: "{prompt}"
    options: [" {first}", " {second}"]
    right: answer
    scored: completion
tasks:
  kinds:
    train: [rows.tsv]
    test: [others.tsv]
    language: eng
    text: "{sentence}"
    label: class
    tuning: {epochs: 1, batch: 16, longest: 32}
languages:
  trades:
    name: Trades
    corpus: {files: [trades.csv], text_column: text, label_columns: [code], validation_share: 0.1}
predict: {text_column: text}
"""
TARGETS = [f"converted/{name}" for name in ("eng", "nor", "gpt", "occ")]
TARGETS += ["predictions/occ/census.csv", "experiments/rates", "submissions/mine.json", "reports/rates.html"]


def unpack(folder: Path, release: str = "0.2.0") -> Path:
    """Unpack the results of a release into a folder, and return it."""
    with tarfile.open(DATA / f"results_of_{release}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def interrupt_after_a_checkpoint(workspace: Workspace) -> None:
    """Start the training of `deu`, and end it by SIGTERM once there is a checkpoint."""
    command = workspace.command("results/models/deu/manifest.json")
    process = subprocess.Popen(command, start_new_session=True)
    try:
        while not list(workspace.path.glob("results/checkpoints/deu/*/step-*.json")):
            if process.poll() is not None:
                raise UserError("the training of deu ended without a checkpoint: see above")
            time.sleep(0.05)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def write() -> None:
    """Make the results and pack them."""
    if f"\n## [{__version__}]" != re.findall(r"\n## \[.*?\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))[0]:
        raise UserError(
            f"this code is later than {__version__}, whose results stay: `make release` makes those of the next"
        )
    made = DATA / f"results_of_{__version__}.tar.xz"
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        asked = yaml.safe_load(EACH_KIND)
        workspace.configure(SETTINGS | asked | {"languages": SETTINGS["languages"] | asked["languages"]})
        for name, text in FILES.items():
            path = workspace.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for language in WORDS:
            write_texts(workspace.path / "texts" / language, language, documents=24)
        workspace.snakemake(*TARGETS)
        interrupt_after_a_checkpoint(workspace)
        for path in (workspace.path / ".snakemake").iterdir():  # of what Snakemake remembers, the checksums of inputs
            if path.name != "metadata":
                shutil.rmtree(path)
        shutil.rmtree(workspace.path / "results/benchmarks")
        for path in (workspace.path / "results/checkpoints").iterdir():
            if path.name != "deu":  # trainings that ended do not need theirs, which are most of the bytes
                shutil.rmtree(path)
        for path in workspace.path.glob("results/**/attempt.json"):
            write_json(path, read_json(path) | {"host": "host"})
        with atomic_write(made) as file, tarfile.open(fileobj=file, mode="w:xz") as archive:
            for path in sorted(workspace.path.iterdir()):
                archive.add(path, path.name, filter=anonymous)
    print(f"{made}: {made.stat().st_size:,} bytes")


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member without its owner."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", required=True)
    parser.parse_args()
    try:
        write()
    except UserError as error:
        sys.exit(f"error: {error}")
