"""Open the shards that a run reads: their rows, and the streams from which micro-batches are made."""

from pathlib import Path

from babelmill.config.stage_settings import TrainSettings
from babelmill.runtime.processes import Processes
from babelmill.runtime.record import SPLITS
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.tokens.word_edges import word_edges
from babelmill.training.batches.rarity import costs_of, token_counts
from babelmill.training.batches.token_batches import Stream, TokenStream
from babelmill.training.networks.network import Network
from babelmill.training.plan.layouts import Layout, Packed
from babelmill.training.plan.objectives import Objective


class Data:
    """Holds the shards of all languages by split, their rows, and the tokenizer's vocabulary.

    Args:
        settings: the stage's settings.
        tokenizer: the tokenizer's folder.
        folders: one folder per language, in order.
    """

    def __init__(self, settings: TrainSettings, tokenizer: Path, folders: list[Path]):
        self.settings, self._tokenizer = settings, tokenizer / "tokenizer.json"
        self.shards = {
            split: [ShardFile.open(folder / f"{split}.safetensors") for folder in folders] for split in SPLITS
        }
        self.layouts: dict[str, list[Layout]] = {
            split: [Packed(shard.offsets, shard.responses) for shard in self.shards[split]] for split in SPLITS
        }
        self.blocks_weight = 0.0  # only labels have blocks
        self.vocabulary = Vocabulary.read(self._tokenizer, self.shards["train"][0].vocab_size)

    def stream(self, split: str, network: Network, objective: Objective, processes: Processes) -> Stream:
        """Return the stream of a split."""
        train, shards, edges, costs = self.settings.train, self.shards[split], None, None
        if split == "train":  # validation always hides in the same way, so that its numbers can be compared
            if train.masking == "words":
                edges = word_edges(self._tokenizer, self.vocabulary)
            if train.rarity:
                counts = processes.on_main(lambda: token_counts(shards, self.vocabulary.size))  # reads the whole text
                costs = costs_of(counts, train.rarity)
        given = shards, self.vocabulary, train.seed, processes.device, objective, network.in_place, network.compiled
        return TokenStream(*given, edges, costs)
