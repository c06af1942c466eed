"""Measure a tokenizer on a language: how well it compresses, how it splits words, if decoding restores the text."""

from collections.abc import Iterable

import numpy as np
from tokenizers import Tokenizer

from babelmill.core.words import count_words
from babelmill.tokens.pretokenizer import parts
from babelmill.tokens.tokenizer_file import encode, special_ids, vocab_size


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


def count_tokens(tokenizer: Tokenizer, batches: Iterable[list[str]]) -> np.ndarray:
    """Return how often each token occurs in a text: [vocabulary size] int64."""
    counts = np.zeros(vocab_size(tokenizer), np.int64)
    for texts in batches:
        counts += np.bincount(encode(tokenizer, texts)[0], minlength=len(counts))
    return counts


def vocabulary_used(tokenizer: Tokenizer, counts: np.ndarray) -> float:
    """Return the share of the entries (without special tokens) that occur. `counts` [vocabulary size]: occurrences."""
    occurs = counts > 0
    special = special_ids(tokenizer)
    occurs[special] = False
    return float(occurs.sum() / (len(occurs) - len(special)))
