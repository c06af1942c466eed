"""Load a tokenizer.json with the settings that we need, encode documents with it, and measure it on a text.

The tokenizer of a published model stays unchanged. Such tokenizers name their special tokens in several files, and no
single file names all of them. `vocabulary.py` needs the tokens that begin and end a text. Only some objectives need a
mask token, and some models have none.
"""

import itertools
import os
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, processors

from babelmill.core import escape
from babelmill.core.files import UserError, read_object
from babelmill.core.words import count_words
from babelmill.tokens import characters, prefix_space
from babelmill.tokens.pretokenizer import parts
from babelmill.tokens.vocabulary import BOS, NEEDED

LONG = 1 << 20  # characters; longer documents are encoded in parts
GROUP = 64  # number of parts to encode at a time
# The files of a published tokenizer.
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


def use_threads(threads: int) -> None:
    """Let `tokenizers` use this many threads, whatever the environment says. Call this before the first encoding."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    os.environ["RAYON_NUM_THREADS"] = str(threads)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a tokenizer.json so that the name of a special token in a text is encoded as ordinary text.

    `encode_special_tokens` is not part of the file, so it must be set after each load. Truncation and padding are part
    of the file. They are switched off, since a file from elsewhere could shorten documents.
    """
    try:
        tokenizer = characters.make() if characters.is_file(path) else Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises no more specific type
        raise UserError(f"{path}: a file of the `tokenizers` library is expected ({escape.line(error, 300)})") from None
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def begin_with_bos(tokenizer: Tokenizer) -> None:
    """Make the tokenizer encode a text as `<s> A` and a pair as `<s> A <s> B`, as the models see text in training."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, token_id(tokenizer, BOS))]
    )


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Return the id of a special token. Raise a UserError if the tokenizer has no such token."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise UserError(f"the tokenizer has no token {token}")
    return found


def vocab_size(tokenizer: Tokenizer) -> int:
    """Return the number of rows that an embedding table needs, which is the largest id + 1."""
    if characters.is_tokenizer(tokenizer):
        return characters.ENTRIES  # known without a table of all entries
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def special_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the special tokens, sorted."""
    return sorted(token_id for token_id, token in tokenizer.get_added_tokens_decoder().items() if token.special)


def encode(tokenizer: Tokenizer, texts: list[str], prompts: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of documents, without special tokens.

    The result is (all tokens one after another, uint32; number of tokens of each document, int64). A long document is
    encoded in parts. Otherwise the library would need 25 times its size in memory, and use only one core.

    With `prompts`, every second text is a response that continues the prompt before it. So it gets no added space
    (`tokenizer.prefix_space`), unless its prompt is empty.
    """
    tokens, lengths = array("I"), np.zeros(len(texts), np.int64)
    long = max(map(len, texts), default=0) > LONG
    if (long or prompts) and prefix_space.is_put(tokenizer):
        begins = [not (prompts and i % 2 and texts[i - 1]) for i in range(len(texts))]
        texts = [prefix_space.with_space(text) if begin else text for text, begin in zip(texts, begins, strict=True)]
        tokenizer = prefix_space.without(tokenizer)
    owned = ((i, part) for i, text in enumerate(texts) for part in (parts(text) if long else [text]))
    while group := list(itertools.islice(owned, GROUP if long else len(texts))):
        made = tokenizer.encode_batch_fast([text for _, text in group], add_special_tokens=False)
        for (document, _), encoding in zip(group, made, strict=True):
            ids = encoding.ids
            tokens.extend(ids)  # measured: twice as fast as NumPy on a list
            lengths[document] += len(ids)
    return np.frombuffer(tokens, np.uint32), lengths


# How good a tokenizer is on a text.


def measure(tokenizer: Tokenizer, batches: Iterable[list[str]]) -> dict[str, float]:
    """Return figures of a tokenizer on a text.

    * `bytes_per_token`: UTF-8 bytes of the text divided by its number of tokens (special tokens do not count).
    * `tokens_per_word`: fertility, the number of tokens divided by the number of words between white space (Rust et
      al. 2021, arXiv:2012.15613). In scripts without spaces, such "words" are whole clauses.
    * `round_trip_rate`: share of the documents (or of the parts of long documents) that decoding restores exactly.

    The space that `tokenizer.prefix_space` puts before a text is no part of the text.
    """
    size = tokens = words = total = intact = 0
    for documents in batches:
        texts = [part for text in documents for part in parts(text)]
        ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        decoded = tokenizer.decode_batch(ids, skip_special_tokens=False)
        intact += sum(text == again for text, again in zip(texts, decoded, strict=True))
        total += len(texts)
        tokens += sum(map(len, ids))
        size += sum(len(text.encode()) for text in texts)
        words += count_words(texts)
    return {
        "bytes_per_token": size / max(tokens, 1),
        "tokens_per_word": tokens / max(words, 1),
        "round_trip_rate": intact / max(total, 1),
    }


def vocabulary_used(tokenizer: Tokenizer, counts: np.ndarray) -> float:
    """Return the share of the entries (without special tokens) that occur. `counts` [vocabulary size]: occurrences."""
    return float((np.delete(counts, special_ids(tokenizer)) > 0).mean())


# Tokenizers of published models.


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
