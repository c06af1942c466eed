"""The names and ids of a tokenizer's special tokens."""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from babelmill.core.files import UserError, read_json

UNK, BOS, EOS, PAD, MASK = "<unk>", "<s>", "</s>", "<pad>", "<mask>"
SPECIAL_TOKENS = [UNK, BOS, EOS, PAD, MASK, *(f"<special_{i}>" for i in range(11))]  # the ids are 0 to 15


@dataclass(frozen=True)
class Vocabulary:
    """What training and scoring need to know of a tokenizer.

    Attributes:
        size: number of entries.
        bos, eos, pad, mask: ids of these special tokens.
        special: ids of all special tokens, sorted.
    """

    size: int
    bos: int
    eos: int
    pad: int
    mask: int
    special: tuple[int, ...]

    @classmethod
    def read(cls, path: str | Path, size: int) -> "Vocabulary":
        """Read a tokenizer.json; `size` as the shards have it. Raise a UserError if a special token is missing."""
        added = {token["content"]: token["id"] for token in read_json(path)["added_tokens"] if token["special"]}
        if not added.keys() >= {BOS, EOS, PAD, MASK}:
            raise UserError(f"{path}: <s>, </s>, <pad> and <mask> must be special tokens; one of them is missing")
        return cls(size, added[BOS], added[EOS], added[PAD], added[MASK], tuple(sorted(added.values())))

    @functools.cached_property
    def is_special(self) -> np.ndarray:
        """[size] bool, true for special tokens."""
        flags = np.zeros(self.size, bool)
        flags[list(self.special)] = True
        return flags
