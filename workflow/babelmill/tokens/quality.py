"""Measure a tokenizer on a language: how well it compresses, how it splits words, if decoding restores the text."""

import unicodedata
from collections import Counter
from collections.abc import Iterable

import numpy as np
from tokenizers import Tokenizer

from babelmill.tokens import prefix_space
from babelmill.tokens.pretokenizer import parts
from babelmill.tokens.tokenizer_file import encode, special_ids, vocab_size

LETTERS = "LMN"  # Unicode general categories of the characters at a word's edges: letters, marks, numbers


def measure(tokenizer: Tokenizer, batches: Iterable[list[str]]) -> dict[str, float]:
    """Return figures of a tokenizer on a text.

    * `bytes_per_token`: UTF-8 bytes of the text divided by its number of tokens (special tokens do not count).
    * `tokens_per_word`: fertility, the number of tokens divided by the number of words between white space (Rust et
      al. 2021, arXiv:2012.15613). In scripts without spaces, such "words" are whole clauses.
    * `words_kept_whole`: share of these words, without punctuation at their edges, that are one token after a space.
    * `round_trip_rate`: share of the documents (or of the parts of long documents) that decoding restores exactly.

    The space that `tokenizer.prefix_space` puts before a text is no part of the text.
    """
    size = tokens = total = intact = 0
    words: Counter[str] = Counter()
    for documents in batches:
        texts = [part for text in documents for part in parts(text)]
        ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        decoded = tokenizer.decode_batch(ids, skip_special_tokens=False)
        intact += sum(text == again for text, again in zip(texts, decoded, strict=True))
        total += len(texts)
        tokens += sum(map(len, ids))
        for text in texts:
            size += len(text.encode())
            words.update(text.split())
    plain = prefix_space.without(tokenizer) if prefix_space.is_put(tokenizer) else tokenizer
    counts = [(f" {word}", count) for chunk, count in words.items() if (word := bare(chunk))]
    made = plain.encode_batch_fast([word for word, _ in counts], add_special_tokens=False)
    whole = sum(count for (_, count), encoding in zip(counts, made, strict=True) if len(encoding.ids) == 1)
    return {
        "bytes_per_token": size / max(tokens, 1),
        "tokens_per_word": tokens / max(words.total(), 1),
        "words_kept_whole": whole / max(sum(count for _, count in counts), 1),
        "round_trip_rate": intact / max(total, 1),
    }


def bare(word: str) -> str:
    """Return a word without the punctuation and symbols at its edges."""
    inner = [i for i, character in enumerate(word) if unicodedata.category(character)[0] in LETTERS]
    return word[inner[0] : inner[-1] + 1] if inner else ""


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
