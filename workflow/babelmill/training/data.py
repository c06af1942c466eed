"""Open the shards that a run reads: their rows, and the streams from which micro-batches are made."""

import threading
from pathlib import Path

import torch

from babelmill.runtime.run_folder import SPLITS
from babelmill.stages import TrainStage
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.batches.token_batches import Stream, TokenStream
from babelmill.training.networks.network import Network
from babelmill.training.plan.layouts import Layout, Packed
from babelmill.training.plan.objectives import Objective


class Data:
    """Holds the shards of all languages (a folder each) by split, their rows, and the tokenizer's vocabulary."""

    def __init__(self, settings: TrainStage, tokenizer: Path, folders: list[Path]):
        self.settings = settings
        self.shards = {
            split: [ShardFile.open(folder / f"{split}.safetensors") for folder in folders] for split in SPLITS
        }
        threading.Thread(target=self._read_through, daemon=True).start()
        self.layouts: dict[str, list[Layout]] = {
            split: [Packed(shard.offsets, shard.responses) for shard in self.shards[split]] for split in SPLITS
        }
        self.blocks_weight = 0.0  # only labels have blocks
        self.vocabulary = Vocabulary.read(tokenizer / "tokenizer.json", self.shards["train"][0].vocab_size)

    def _read_through(self) -> None:
        """Read the shards to train on. A step then need not wait for the disk, which would stop all threads."""
        for shard in self.shards["train"]:
            shard.read_through()

    def stream(self, split: str, network: Network, objective: Objective, device: torch.device) -> Stream:
        """Return the stream of a split."""
        seed, shards = self.settings.train.seed, self.shards[split]
        return TokenStream(shards, self.vocabulary, seed, device, objective, network.in_place, network.compiled)
