"""Keep a results tree that an earlier commit made, so that tests can try an upgrade on it.

    python tests/scripts/released_results.py --write

runs the workflow for two tiny models and packs the folder into `data/released_results.tar.xz`: `eng` is converted, `deu`
was interrupted in the middle of its training. It is made again only when its results would have to be, by a new version
of a stage (`babelmill accept --new`); then users train again, too.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from conftest import WORDS, Workspace, write_texts
from helpers import DATA

ARCHIVE = DATA / "released_results.tar.xz"
SETTINGS = {
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


def unpack(folder: Path) -> Path:
    """Unpack the results into a folder, and return it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def interrupt_after_a_checkpoint(workspace: Workspace) -> None:
    """Start the training of `deu`, and end it by SIGTERM once there is a checkpoint."""
    command = workspace.command("results/models/deu/manifest.json")
    process = subprocess.Popen(command, start_new_session=True)
    while not list(workspace.path.glob("results/checkpoints/deu/*/step-*.json")):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def write() -> None:
    """Make the results and pack them."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        workspace.configure(SETTINGS)
        for language in WORDS:
            write_texts(workspace.path / "texts" / language, language, documents=24)
        workspace.snakemake("converted/eng")
        interrupt_after_a_checkpoint(workspace)
        for path in (workspace.path / ".snakemake").iterdir():  # of what Snakemake remembers, the checksums of inputs
            if path.name != "metadata":
                shutil.rmtree(path)
        shutil.rmtree(workspace.path / "results/benchmarks")
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            for path in sorted(workspace.path.iterdir()):
                archive.add(path, path.name, filter=anonymous)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member without its owner."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", required=True)
    parser.parse_args()
    write()
