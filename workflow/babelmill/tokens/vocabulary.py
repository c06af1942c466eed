"""The roles of special tokens: which token begins a document, ends it, pads, masks. Their names and ids."""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from babelmill.core.files import UserError, read_json

UNK, BOS, EOS, PAD, MASK = "<unk>", "<s>", "</s>", "<pad>", "<mask>"
SPECIAL_TOKENS = [UNK, BOS, EOS, PAD, MASK, *(f"<special_{i}>" for i in range(11))]  # the ids are 0 to 15


NAMES_OF_ROLES = {
    "begin": ("bos_token", "cls_token"),
    "end": ("eos_token", "sep_token"),
    "pad": ("pad_token",),
    "mask": ("mask_token",),
    "unknown": ("unk_token",),
}


@dataclass(frozen=True)
class Roles:
    """The names of the tokens with a role; those of this workflow's own tokenizers, where nothing else is said."""

    begin: str = BOS
    end: str = EOS
    pad: str = PAD
    mask: str = MASK
    unknown: str = UNK

    @classmethod
    def of(cls, path: str | Path) -> "Roles":
        """Return those of a tokenizer.json: what `special_tokens_map.json` beside it says, as the Hub writes it."""
        beside = Path(path).with_name("special_tokens_map.json")
        said = read_json(beside) if beside.is_file() else {}
        names = {key: token["content"] if isinstance(token, dict) else token for key, token in said.items()}
        found = {role: [names[key] for key in keys if key in names] for role, keys in NAMES_OF_ROLES.items()}
        return cls(**{role: tokens[0] for role, tokens in found.items() if tokens})


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
        roles = Roles.of(path)
        needed = [roles.begin, roles.end, roles.pad, roles.mask]
        if not added.keys() >= set(needed):
            names = f"{', '.join(needed[:-1])} and {needed[-1]}"
            raise UserError(f"{path}: {names} must be special tokens; one of them is missing")
        begin, end, pad, mask = (added[token] for token in needed)
        return cls(size, begin, end, pad, mask, tuple(sorted(added.values())))

    @functools.cached_property
    def is_special(self) -> np.ndarray:
        """[size] bool, true for special tokens."""
        flags = np.zeros(self.size, bool)
        flags[list(self.special)] = True
        return flags
