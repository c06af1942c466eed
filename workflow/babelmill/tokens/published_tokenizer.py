"""Read the tokenizer of a published model, which stays unchanged: its files, and the roles of its tokens.

Such tokenizers name their special tokens in several files, and no single file names all of them. `vocabulary.py` needs
the tokens that begin and end a text. Only some objectives need a mask token, and some models have none.
"""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from babelmill.core.files import UserError, read_object
from babelmill.tokens.tokenizer_file import vocab_size
from babelmill.tokens.vocabulary import NEEDED

FILES = [
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("merges.txt", "vocab.txt", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model", "chat_template.jinja"),
    "generation_config.json",  # also says which tokens end a text
]
# The first of these tokens that exists gets the role.
NAMES = {
    "begin": ("bos", "cls", "eos"),
    "end": ("eos", "sep", "bos"),
    "pad": ("pad",),
    "mask": ("mask",),
    "unknown": ("unk",),
}


def has_our_tokens(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer has the special tokens that each tokenizer of this workflow has."""
    return all(tokenizer.token_to_id(token) is not None for token in NEEDED)


def roles_of(folder: Path, tokenizer: Tokenizer, where: str) -> dict[str, int | None]:
    """Return the number of a tokenizer's entries, and for each role the id of its token, or None if there is none.

    The config.json in the folder of the tokenizer names tokens by their ids. A UserError, which begins with `where`,
    says that no token begins or ends a text.
    """
    entries = vocab_size(tokenizer)
    config = _read(folder / "config.json")
    named = [_read(folder / file) for file in ("tokenizer_config.json", "special_tokens_map.json")]

    def id_of(name: str) -> int | None:
        for file in named:
            token = file.get(f"{name}_token")
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str) and (found := tokenizer.token_to_id(token)) is not None:
                return found
        number = config.get(f"{name}_token_id")
        number = number[0] if isinstance(number, list) and number else number
        return number if isinstance(number, int) and 0 <= number < entries else None

    roles = {role: next((i for i in map(id_of, names) if i is not None), None) for role, names in NAMES.items()}
    if roles["begin"] is None:
        raise UserError(f"{where}: no token begins or ends a text (bos_token, cls_token, eos_token or sep_token)")
    return {"entries": entries} | roles


def _read(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}
