"""Create the tokenizer of CANINE (Clark et al., 2022, arXiv:2103.06874): a character is a token, its code point the id.

The tokenizer has no real `tokenizer.json`, since a file with all 1.1 million entries would take 16 MB. The workflow
writes a small file that only names the kind, and `load_tokenizer` creates the tokenizer from it. Exported folders have
only the files of transformers' `CanineTokenizer`, which gives the same ids.
"""

import functools
import sys
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, processors

from babelmill.core.files import read_json, write_json

ENTRIES = sys.maxunicode + 1
PAD, CLS, SEP, MASK = 0, 0xE000, 0xE001, 0xE003
KIND = "canine"  # model_type of the models with this tokenizer
TYPE = "code points"
SMALL = 4096  # bytes; all other tokenizers' files are larger
ROLES = {"entries": ENTRIES, "begin": CLS, "end": SEP, "pad": PAD, "mask": MASK, "unknown": None}
NAMED = {"bos": CLS, "eos": SEP, "cls": CLS, "sep": SEP, "pad": PAD, "mask": MASK}
NAMES = {f"{name}_token": chr(token) for name, token in NAMED.items()}


def write_file(path: Path) -> None:
    """Write the `tokenizer.json` that stands for the tokenizer."""
    special = [{"id": token, "content": chr(token), "special": True} for token in (PAD, CLS, SEP, MASK)]
    write_json(path, {"type": TYPE, "added_tokens": special})


def write_files(folder: Path, positions: int) -> list[str]:
    """Write `tokenizer.json` and `CanineTokenizer`'s files for a model with so many positions. Return their names."""
    config: dict[str, Any] = NAMES | {"tokenizer_class": "CanineTokenizer", "model_max_length": positions}
    write_file(folder / "tokenizer.json")
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "special_tokens_map.json", NAMES)
    return ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]


def is_file(path: str | Path) -> bool:
    """Return whether `write_file` wrote this `tokenizer.json`."""
    return Path(path).stat().st_size < SMALL and read_json(path).get("type") == TYPE


def is_tokenizer(tokenizer: Tokenizer) -> bool:
    """Return whether `make` created this tokenizer."""
    return tokenizer.token_to_id(chr(sys.maxunicode)) == sys.maxunicode


def make() -> Tokenizer:
    """Return the tokenizer. It encodes a text as `[CLS] A [SEP]`, and a pair as `[CLS] A [SEP] B [SEP]`."""
    tokenizer = Tokenizer(_model())
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(chr(token), special=True) for token in (PAD, CLS, SEP, MASK)])
    begin, end = chr(CLS), chr(SEP)
    tokenizer.post_processor = processors.TemplateProcessing(
        f"{begin} $A {end}", f"{begin} $A {end} $B {end}", [(begin, CLS), (end, SEP)]
    )
    return tokenizer


@functools.cache
def _model() -> models.BPE:
    """Return a model whose entries are all characters (without halves of surrogate pairs). This takes 2 s."""
    return models.BPE({chr(i): i for i in range(ENTRIES) if not 0xD800 <= i < 0xE000}, [])
