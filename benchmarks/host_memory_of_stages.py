"""Measure host memory and time of each stage, for a model of 1 GB that continues from a trained one.

    python benchmarks/host_memory_of_stages.py FOLDER [--layers 16] [--lora-rank 8]

This publishes a Llama of 271 M parameters in a folder, and lets the workflow continue from it for two steps of 128
tokens in fp32 (AdamW, without an average), or train adapters. The table has the stages that read or write weights, and
the proof of the export. For each it shows the largest memory of its processes (measured every 20 ms) and its seconds.
Pages of files do not count. The evaluation scores two documents. Existing results are kept, so use a new folder.
"""

import argparse
import sys
import threading
import time
from pathlib import Path

import psutil
from workflow_run import ROOT, make

sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "tests")]
SIZES = {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 2816}
STAGES = ("base_model", "train", "export", "release.folder.prove", "evaluate", "convert")


class Watcher(threading.Thread):
    """Watches the processes of all stages until `ended`. `found` has their largest memory, first and last time."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Event()
        self.found: dict[str, tuple[int, float, float]] = {}
        self._stages: dict[int, str | None] = {}

    def run(self) -> None:
        while not self.ended.wait(0.02):
            for process in psutil.Process().children(recursive=True):
                try:
                    self._look(process.pid)
                except (OSError, StopIteration):
                    continue  # it has ended

    def _look(self, pid: int) -> None:
        folder = Path("/proc", str(pid))
        words = (folder / "cmdline").read_text().split("\0")
        stage = next((name for name in STAGES if words[1:3] == ["-m", f"babelmill.{name}"]), None)
        if stage:
            lines = (folder / "status").read_text().splitlines()
            memory = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
            most, first, _ = self.found.get(stage, (0, time.monotonic(), 0.0))
            self.found[stage] = max(most, memory), first, time.monotonic()


def configuration(folder: Path, rank: int) -> dict:
    """Return the configuration, and write a text that is as short as possible."""
    (folder / "text.txt").write_text("".join(f"The quick brown fox {i} jumps.\n" for i in range(60)), encoding="utf-8")
    batch = {"global_batch_tokens": 128, "sequence_lengths": [64], "phase_starts": [0.0], "micro_batch_tokens": 128}
    sections = {
        "model": {"architecture": "transformers", "source": str(folder / "llama"), "config": None},
        "train": batch | {"max_steps": 2, "precision": "fp32", "ema_decay": 0, "lora_rank": rank},
        "evaluation": {"documents": 2, "sequence_length": 64},
        "run": {"validate_every": 0},
        "resources": {"gpus": 0},
    }
    return {
        "targets": ["big"],
        "models": {"big": {"languages": ["eng"], "preset": "gpt2_30m", **sections}},
        "languages": {"eng": {"corpus": {"files": ["text.txt"], "document": "line", "validation_share": 0.2}}},
    }


def main() -> None:
    """Publish, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--lora-rank", type=int, default=0)
    args = parser.parse_args()
    from helpers.models.published_models import publish

    folder = args.folder.resolve()
    publish("llama", folder / "llama", 32000, **SIZES, num_hidden_layers=args.layers, max_position_embeddings=256)
    watcher = Watcher()
    watcher.start()
    try:
        make(folder, configuration(folder, args.lora_rank), ["big"], 2)
    finally:
        watcher.ended.set()
        watcher.join()
        print("| stage | most memory, MB | seconds |\n|---|---|---|")
        for stage, (most, first, last) in watcher.found.items():
            print(f"| {stage} | {most / 1e6:,.0f} | {last - first:.0f} |")


if __name__ == "__main__":
    main()
