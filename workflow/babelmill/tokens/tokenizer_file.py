"""Load a tokenizer.json with the settings that we need, and encode documents with it."""

import itertools
import os
from array import array
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, processors

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.tokens import characters, prefix_space
from babelmill.tokens.pretokenizer import parts
from babelmill.tokens.vocabulary import BOS

LONG = 1 << 20  # characters; longer documents are encoded in parts
GROUP = 64  # number of parts to encode at a time


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
