"""Open the shards that a run reads, count their words, and say which snapshots of the weights are due.

People count in words; the stage `shards` counts them while it reads the text.
"""

import logging
import threading
from pathlib import Path
from typing import Any

import torch

from babelmill.config.snapshots import kept_at_the_end, missing_points, name_of, points, say_missing
from babelmill.core import escape, manifest
from babelmill.core.words import plural
from babelmill.runtime.run_folder import SPLITS, Done, RunFolder
from babelmill.stages import TrainStage
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.batches import Stream, TokenStream
from babelmill.training.networks.network import Network
from babelmill.training.plan.objectives import Objective
from babelmill.training.plan.plan import Plan
from babelmill.training.plan.rows import Layout, Packed

log = logging.getLogger(__name__)


class Data:
    """Holds the shards of all languages (a folder each) by split, their rows, and the tokenizer's vocabulary."""

    def __init__(self, settings: TrainStage, tokenizer: Path, folders: list[Path]):
        self.settings = settings
        self.shards = {
            split: [ShardFile.open(folder / f"{split}.safetensors") for folder in folders] for split in SPLITS
        }
        # A step then need not wait for the disk, which would stop all threads.
        reads = [shard.read_through for shard in self.shards["train"]]
        threading.Thread(target=lambda: [read() for read in reads], daemon=True).start()
        self.layouts: dict[str, list[Layout]] = {
            split: [Packed(shard.offsets, shard.responses) for shard in self.shards[split]] for split in SPLITS
        }
        self.blocks_weight = 0.0  # only labels have blocks
        self.vocabulary = Vocabulary.read(tokenizer / "tokenizer.json", self.shards["train"][0].vocab_size)

    def stream(self, split: str, network: Network, objective: Objective, device: torch.device) -> Stream:
        """Return the stream of a split."""
        seed, shards = self.settings.train.seed, self.shards[split]
        return TokenStream(shards, self.vocabulary, seed, device, objective, network.in_place, network.compiled)


def training_words(shards: Path, bytes_per_word: float | None) -> float:
    """Return the number of words of a language's training text.

    Words are separated by whitespace, unless `bytes_per_word` says how many bytes count as a word.
    """
    figures = manifest.read(shards)["figures"]
    return figures["words"]["train"] if bytes_per_word is None else figures["bytes"]["train"] / bytes_per_word


def snapshot_steps(plan: Plan, points: list[float]) -> dict[float, int]:
    """Return {point: step}: for each point, in million words, the first step after which the run has read that many.

    A point shortly after the end of the run belongs to the last step. Later ones are dropped.
    """
    kept = kept_at_the_end(points, plan.words_until(plan.steps) / 1e6)
    return {point: plan.first_step_with(point * 1e6 / plan.words_per_token) or plan.steps for point in kept}


class DueSnapshots:
    """Says which snapshots of its weights a run keeps (`run.snapshots`)."""

    def __init__(self, plan: Plan, folder: RunFolder):
        asked = folder.run.snapshots
        if asked and plan.train.objective == "labels":
            log.warning("run.snapshots: no snapshot is kept, since a label model does not read running text")
            asked = []
        self._folder, self._read = folder, plan.words_until(plan.steps) / 1e6  # million words of the run
        self._steps = snapshot_steps(plan, points(asked))
        self._too_late = missing_points(asked, self._read)

    def due(self, done: Done) -> dict[float, int]:
        """Return {point: step} of the snapshots to be kept, and warn of those that the run will not have."""
        kept = self._folder.snapshots.kept()
        left = {point: step for point, step in self._steps.items() if name_of(point) not in kept}
        # Weights that are here just now can still be kept, also those of a finished run.
        due = {point: step for point, step in left.items() if step >= done.steps}
        if self._steps:
            count = plural(len(due), "snapshot")
            log.info("run.snapshots: %s will be kept in %s million words", count, f"{self._read:,.4g}")
        if lost := [name_of(point) for point in left if point not in due]:
            log.warning("run.snapshots: %s: the run is already further", escape.some(lost))
        if text := say_missing(self._too_late, self._read):
            log.warning("%s", text)
        return due

    def figures(self) -> dict[str, Any]:
        """Return the names of the snapshots that the finished run has, and of those that it does not have."""
        kept = self._folder.snapshots.kept()
        missing = [name for name in map(name_of, [*self._steps, *self._too_late]) if name not in kept]
        return ({"snapshots": [*kept]} if kept else {}) | ({"missing_snapshots": missing} if missing else {})
