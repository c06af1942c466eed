"""Keep the results that a release makes, so that the tests of later code can upgrade them.

    python tests/scripts/released_results.py

runs the workflow for a few tiny models, with each kind of stage that needs no network, and packs the folder into
`tests/data/results_of_1.0.tar.xz`. `deu` is interrupted in the middle of its training. It is made once for each release that
may change results: later code cannot write it again.
"""

import os
import shutil
import signal
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from conftest import SMALL, WORDS, Workspace, write_texts
from helpers import DATA, ROOT
from helpers.programs.background import Background, wait

ARCHIVE = DATA / "results_of_1.0.tar.xz"
TRADES = ("farmer", "fisher", "smith", "baker")
FILES = {
    "pairs.tsv": "good\tbad\nthe quick fox\tfox quick the\nseven wizards boil water\twater seven boil wizards\n",
    "quiz.tsv": "prompt\tfirst\tsecond\nThe wizards boil the\twater.\tfox.\nThe fox jumps over the\tdog.\tpots.\n",
    "train.tsv": "sentence\tlabel\n"
    + "".join(f"the {word} boils {i}\t{'ab'[i % 2]}\n" for i, word in enumerate(TRADES * 6)),
    "test.tsv": "sentence\tlabel\nan old farmer\ta\na young fisher\tb\n",
    "trades.csv": "text,code\n" + "".join(f"{trade} {i},{i % 4 + 1}\n" for i, trade in enumerate(TRADES * 12)),
    "census.csv": "text\nfarmer 1\nold smith\n",
}
SETTINGS: dict[str, Any] = SMALL | yaml.safe_load("""
models:
  deu: {train: {max_steps: 400}}
  eng: {evaluation: {suites: [pairs, quiz], tasks: [kinds], task_seeds: [1]}}
  norbert: {languages: [eng], model: {architecture: norbert4}}
  gpt:
    languages: [eng]
    train: {objective: causal}
    evaluation: {sequence_length: 64}
    model: {architecture: transformers, config: {model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2}}
  occ:
    languages: [trades]
    train: {objective: labels, optimizer: adamw, sequence_lengths: [32], phase_starts: [0.0], global_batch_tokens: 640}
    predict: {tables: {census: census.csv}}
experiments:
  rates: {base: eng, vary: {train.learning_rate: [0.003, 0.01]}, seeds: 1}
suites:
  pairs: {files: [pairs.tsv], language: eng, good: good, bad: bad}
  quiz: {files: [quiz.tsv], language: eng, kind: choices, prompt: "{prompt}", options: [" {first}", " {second}"], scored: completion}
tasks:
  kinds: {train: [train.tsv], test: [test.tsv], language: eng, text: "{sentence}", tuning: {epochs: 1, batch: 8}}
""")
SETTINGS["model"] = SMALL["model"] | {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
TRADE = {"name": "Trades", "corpus": {"files": ["trades.csv"], "label_columns": ["code"], "validation_share": 0.2}}
SETTINGS["languages"] = SMALL["languages"] | {"trades": TRADE}
TARGETS = ("converted/eng", "converted/norbert", "converted/gpt", "predictions/occ/census.csv")
PAGES = ("experiments/rates", "reports/eng.html")  # written whenever they are asked for


def unpack(folder: Path) -> Workspace:
    """Unpack the results of the release into a new folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return Workspace(folder)


def make(workspace: Workspace) -> None:
    """Make the results, and interrupt the training of `deu`."""
    workspace.configure(SETTINGS)
    for language in WORDS:
        write_texts(workspace.path / "texts" / language, language)
    for name, text in FILES.items():
        (workspace.path / name).write_text(text)
    workspace.snakemake(*TARGETS, *PAGES, "--profile", ROOT / "profiles/local")
    run = Background(workspace.command("converted/deu"), workspace.path, dict(os.environ))
    wait("a checkpoint", lambda: [*workspace.path.glob("results/checkpoints/deu-*/step-*.safetensors")], run)
    os.killpg(run.process.pid, signal.SIGINT)
    run.finish()
    run.output.unlink()
    finished = [path for path in workspace.path.glob("results/checkpoints/*") if not path.name.startswith("deu-")]
    for path in (*finished, workspace.path / ".snakemake", workspace.path / "logs"):
        shutil.rmtree(path)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        make(Workspace(Path(folder)))
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            archive.add(folder, ".")
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")
