"""Open the shards that a run reads: their rows, and the streams from which micro-batches are made."""

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from babelmill.config.stage_settings import TrainSettings
from babelmill.core.files import UserError
from babelmill.labels.batches import Frame, LabelStream, known_codes, most_codes
from babelmill.labels.begun_heads import begun
from babelmill.labels.typos import Typos
from babelmill.runtime.record import SPLITS
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import load_tokenizer
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.batches.token_batches import Stream, TokenStream
from babelmill.training.networks.network import Network
from babelmill.training.plan.layouts import Documents, Layout, Packed
from babelmill.training.plan.objectives import Objective


class Data:
    """Holds the shards of all languages by split, their rows, and the tokenizer's vocabulary.

    Args:
        settings: the stage's settings.
        tokenizer: the tokenizer's folder.
        folders: one folder per language, in order.
    """

    def __init__(self, settings: TrainSettings, tokenizer: Path, folders: list[Path]):
        self.settings = settings
        self.shards = {
            split: [ShardFile.open(folder / f"{split}.safetensors") for folder in folders] for split in SPLITS
        }
        self.layouts: dict[str, list[Layout]] = {
            split: [Packed(shard.offsets, shard.responses) for shard in self.shards[split]] for split in SPLITS
        }
        self.vocabulary = Vocabulary.read(tokenizer / "tokenizer.json", self.shards["train"][0].vocab_size)

    def stream(self, split: str, network: Network, objective: Objective, device: torch.device) -> Stream:
        """Return the stream of a split."""
        seed, shards = self.settings.train.seed, self.shards[split]
        return TokenStream(shards, self.vocabulary, seed, device, objective, network.in_place, network.compiled)


class LabelledData(Data):
    """Holds the shards of labelled text: each document is a row, with its codes.

    Args:
        settings, tokenizer, folders: see `Data`.
        source: folder of the model that training starts from, or None.

    Attributes:
        codes: the codes that the model knows: those of the training shards, or the source's if these include them.
        blocks: the largest number of codes of a training document.

    Raises:
        UserError: the shards have no labels, the training text has fewer than two codes, or the validation text has no
            code that the model knows.
    """

    def __init__(self, settings: TrainSettings, tokenizer: Path, folders: list[Path], source: Path | None = None):
        super().__init__(settings, tokenizer, folders)
        for shard in (each for split in SPLITS for each in self.shards[split] if each.labels is None):
            raise UserError(
                f"{shard.path} has no labels, but train.objective: labels needs them; set corpus.label_columns"
            )
        shards, labels = self.shards["train"], settings.labels
        self.codes = known_codes(shards, labels.code, labels.block_size, labels.symbol_separator)
        self.blocks = most_codes(shards)
        if len(names := occurring(shards)) < 2:  # the model may know more codes, from labels.codes
            found = f"only one code, {names[0]!r}" if names else "no code (labels.on_error: skip)"
            raise UserError(f"the training text of {settings.name} has {found}: there is nothing to learn")
        self.begun = begun(source, self.codes, labels)
        self.codes = self.begun.codes
        loaded, train = load_tokenizer(tokenizer / "tokenizer.json"), settings.train
        self._frame = frame_of(loaded, self.vocabulary)
        self._typos = Typos(train.typos, train.seed, loaded) if train.typos else None
        length = settings.train.sequence_lengths[0]
        self._streams = {split: self._stream(split) for split in SPLITS}
        if not any(len(shard.labels.codes) for shard in self._streams["validation"].shards if shard.labels):
            raise UserError(
                f"no validation text of {settings.name} has a code of its training text, so there is nothing to"
                " measure; raise corpus.validation_share, or set other corpus.validation_files"
            )
        self.layouts = {
            split: [Documents(shard.offsets, length, shard.labels.offsets) for shard in stream.shards if shard.labels]
            for split, stream in self._streams.items()
        }

    def _stream(self, split: str) -> LabelStream:
        train = self.settings.train
        return LabelStream(
            self.shards[split],
            self._frame,
            self.codes,
            self.blocks,
            train.seed,
            torch.device("cpu"),
            train.unknown_context,
            self._typos,
        )

    def stream(self, split: str, network: Network, objective: Objective, device: torch.device) -> LabelStream:
        """See `Data.stream`."""
        return self._streams[split].on(device)

    def cut(self) -> int:
        """Return how many training texts, with their contexts, are longer than a row."""
        count = 0
        for shard in self.shards["train"]:
            first = shard.offsets[:-1] + 1
            context = 0 * first if shard.responses is None else shard.responses - first
            text = np.diff(shard.offsets) - 2 - context
            count += int(self._frame.cut(context, text, self.settings.train.sequence_lengths[0]).sum())
        return count

    def class_weights(self) -> torch.Tensor:
        """Return the weight of each code's class in the loss, [K]."""
        shards = self._streams["train"].shards
        counts = sum(np.bincount(s.labels.codes, minlength=len(self.codes.names)) for s in shards if s.labels)
        if self.settings.labels.class_weights == "none":
            return torch.ones(len(self.codes.names))
        return torch.from_numpy(balanced(np.asarray(counts))).float()


def balanced(counts: np.ndarray) -> np.ndarray:
    """Return the weight of each code, [K], in proportion to 1 / `counts` (how often it occurs).

    The mean weight over all occurrences is 1. Codes that never occur get 1, since it is not known how rare they are.
    """
    there = counts > 0
    return np.where(there, counts.sum() / (max(1, there.sum()) * np.maximum(1, counts)), 1.0)


def occurring(shards: list[ShardFile]) -> list[str]:
    """Return the codes that occur in documents of these shards, sorted."""
    labels = [shard.labels for shard in shards if shard.labels]
    return sorted({each.names[code] for each in labels for code in np.unique(each.codes).tolist()})


def frame_of(tokenizer: Tokenizer, vocabulary: Vocabulary) -> Frame:
    """Return the special tokens that a tokenizer puts around a text and a context."""

    def parts(text: str, pair: str | None = None) -> list[list[int]]:
        """Return the special tokens before, between and after the texts."""
        encoding, found, inside = tokenizer.encode(text, pair), [[]], None
        for token, sequence in zip(encoding.ids, encoding.sequence_ids, strict=True):
            if sequence is None:
                found[-1].append(token)
            elif sequence != inside:
                inside = sequence
                found.append([])
        return found

    alone, pair = parts("a"), parts("a", "a")
    pad = vocabulary.given(vocabulary.pad)
    return Frame((tuple(alone[0]), tuple(alone[1])), (tuple(pair[0]), tuple(pair[1]), tuple(pair[2])), pad)
