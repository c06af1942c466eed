"""Define the roles of special tokens: which token begins a document, ends it, pads, masks. Hold their names and ids."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.core import manifest
from babelmill.core.files import UserError, read_json

UNK, BOS, EOS, PAD, MASK = "<unk>", "<s>", "</s>", "<pad>", "<mask>"
SPECIAL_TOKENS = [UNK, BOS, EOS, PAD, MASK, *(f"<special_{i}>" for i in range(11))]  # the ids are 0 to 15
NEEDED = (BOS, EOS, PAD, MASK)


@dataclass(frozen=True)
class Vocabulary:
    """Holds what training and scoring need to know about a tokenizer.

    Our own tokenizers have one token per role, which never occurs in a text. Tokenizers of published models may have
    one token for several roles, or no token for a role, and a text may contain such a token. So in the streams of such
    a tokenizer, begin, end and padding have additional ids after those of its entries (`aliases`). `given` replaces
    them by the tokens for the model.
    """

    size: int  # number of different ids in streams
    # bos, eos, pad, mask: ids of these special tokens; mask is -1 if there is none.
    bos: int
    eos: int
    pad: int
    mask: int
    special: tuple[int, ...]  # ids of all special tokens, sorted
    aliases: tuple[int, ...] = ()  # the tokens that the model gets instead of the last ids

    @classmethod
    def read(cls, path: str | Path, size: int) -> "Vocabulary":
        """Read a tokenizer.json with `size` entries. Raise a UserError if a special token is missing."""
        added = {token["content"]: token["id"] for token in read_json(path).get("added_tokens", []) if token["special"]}
        if (roles := published_roles(Path(path).parent)) is not None:
            return cls.published(roles, set(added.values()))
        if not added.keys() >= set(NEEDED):
            raise UserError(f"{path}: {', '.join(NEEDED)} must be special tokens; one of them is missing")
        begin, end, pad, mask = (added[token] for token in NEEDED)
        return cls(size, begin, end, pad, mask, tuple(sorted(added.values())))

    @classmethod
    def published(cls, roles: dict[str, Any], special: set[int]) -> "Vocabulary":
        """Return the vocabulary of a published model's tokenizer. `roles` is the result of `roles_of`.

        The token for unknown text replaces a part of the text, so it does not count as special.
        """
        entries, begin, end, pad = (roles[name] for name in ("entries", "begin", "end", "pad"))
        own = entries, entries + 1, entries + 2
        named = {roles[name] for name in ("begin", "end", "pad", "mask")} - {None}
        every = (special - {roles["unknown"]}) | named | set(own)
        mask = -1 if roles["mask"] is None else roles["mask"]
        return cls(entries + len(own), *own, mask, tuple(sorted(every)), (begin, end, end if pad is None else pad))

    @property
    def entries(self) -> int:
        return self.size - len(self.aliases)

    def given(self, ids: Any) -> Any:
        """Return the ids that the model gets for these ids of a stream: a number, or a tensor or array of integers."""
        for alias, token in enumerate(self.aliases, self.entries):
            ids = ids + (ids == alias) * (token - alias)
        return ids

    @property
    def ids(self) -> dict[str, int | None]:
        """Return {name in configurations: id for the model} of the special tokens; None for a missing token."""
        named = {f"{name}_token_id": self.given(getattr(self, name)) for name in ("bos", "eos", "pad", "mask")}
        return {name: None if token < 0 else token for name, token in named.items()}

    @functools.cached_property
    def is_special(self) -> np.ndarray:
        """Return [size] bool, true for special tokens."""
        flags = np.zeros(self.size, bool)
        flags[list(self.special)] = True
        return flags


def published_roles(folder: Path) -> dict[str, Any] | None:
    """Return the roles of a published model's special tokens, from its manifest, or None for our own tokenizer."""
    return manifest.read(folder)["figures"].get("roles") if (folder / manifest.NAME).is_file() else None
