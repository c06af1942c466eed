"""Read the validation text, all of it or a sample of its documents, and compute a model's scores over it.

A sample consists of the documents whose texts have the smallest hashes. So it is the same for every model, tokenizer
and machine, and a larger sample contains the smaller ones.
"""

from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.evaluation.metrics import Score, entry
from babelmill.evaluation.scoring import ScoringStream
from babelmill.tokens.documents import Documents
from babelmill.tokens.quality import vocabulary_used
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.vocabulary import Vocabulary


class Text:
    """The validation text of a language, and what can be known about it without a model."""

    def __init__(
        self,
        corpus: Path,
        shards: Path,
        tokenizer: Tokenizer,
        digest: str,
        vocabulary: Vocabulary,
        sample: int | None,
        lossy: bool = False,
    ):
        """Read a corpus and its shards, from the folders that the stages of these names made.

        `digest`: the sha256 of the tokenizer's file. `sample`: how many documents to score; None for all. `lossy`:
        whether the tokenizer may lose text. A UserError says that the files are damaged or do not belong together.
        """
        manifest.verify(shards, "train.safetensors", "validation.safetensors", remember=True)
        manifest.verify(corpus, "validation.parquet")
        manifest.verify_upstream(shards, corpus)
        self.documents = Documents(corpus / "validation.parquet")  # all documents of the validation text
        shard = ShardFile.open(shards / "validation.safetensors")
        if shard.metadata["tokenizer_sha256"] != digest:
            raise UserError(f"{shard.path} was not made with the exported tokenizer; run the workflow again")
        # whole_bytes: the number of UTF-8 bytes of all documents
        # bytes: [documents to score] the number of UTF-8 bytes of each; for a document with a prompt, those of its
        # response. If the tokenizer is lossless, the scored tokens are exactly these bytes.
        # chosen: [documents to score] the number of each among all documents
        self.chosen, self.bytes, self.whole_bytes = choose(self.documents, sample)
        # with_prompt: how many of the documents to score have a prompt
        # stream: the tokens of the documents to score, with special tokens
        self.stream, self.with_prompt = stream_of(shard, self.chosen)
        # how many of the documents to score are changed by encoding and decoding; their scores are about the text that
        # the tokenizer keeps
        self.changed = changed(tokenizer, self.documents, self.chosen) if lossy else 0
        training = occurrences(ShardFile.open(shards / "train.safetensors").tokens, vocabulary)
        # the share of the vocabulary that occurs in the training text
        self.vocabulary_used = vocabulary_used(tokenizer, training[: vocabulary.entries])
        text = self.stream.is_text(vocabulary)
        self.count = int(text.sum())  # the number of tokens to score
        surprise = np.where(text, unigram_nats(training, vocabulary)[self.stream.tokens], 0.0)
        # [documents to score] the nats of the unigram baseline
        self.unigram = np.add.reduceat(surprise, np.flatnonzero(self.stream.tokens == vocabulary.bos))

    @property
    def size(self) -> dict[str, int]:
        """Return counts of documents: `scored`, `of` (all) and, if not 0, `with_prompt` and `changed`."""
        some = {"with_prompt": self.with_prompt, "changed": self.changed}
        counted = {key: count for key, count in some.items() if count}
        return {"scored": len(self.bytes), "of": self.documents.count} | counted

    def score(self, nats: np.ndarray) -> Score:
        """Return an entry of evaluation.json from the nats of each document."""
        return entry(nats, self.bytes, self.count)


def choose(documents: Documents, sample: int | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Choose `sample` documents to score, or all.

    Return the numbers of the documents, in order, and the UTF-8 bytes of each, both int64, and the bytes of all
    documents. Bytes do not count prompts, which are not scored; the hash that chooses a document includes its prompt.
    """
    sizes, hashes = [], []
    for texts, lengths in documents.batches():
        sizes.append(lengths[documents.pieces - 1 :: documents.pieces])
        whole = map("".join, zip(*(texts[i :: documents.pieces] for i in range(documents.pieces)), strict=True))
        hashes += [blake2b(text.encode(), digest_size=8, person=b"evaluation").digest() for text in whole]
    order = np.argsort(np.frombuffer(b"".join(hashes), ">u8"), kind="stable")
    chosen = np.sort(order[:sample])
    size = np.concatenate(sizes)
    return chosen, size[chosen], int(size.sum())


def changed(tokenizer: Tokenizer, documents: Documents, chosen: np.ndarray) -> int:
    """Count the documents among `chosen` that encoding and decoding change.

    A tokenizer may turn capital letters into small ones, or have no token for a character. If there are prompts, only
    the responses are compared.
    """
    count = first = 0
    for texts, _ in documents.batches():
        whole = texts[documents.pieces - 1 :: documents.pieces]
        mine = [whole[i - first] for i in chosen[(chosen >= first) & (chosen < first + len(whole))]]
        ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(mine, add_special_tokens=False)]
        again = tokenizer.decode_batch(ids, skip_special_tokens=False)
        count += sum(text != given for text, given in zip(mine, again, strict=True))
        first += len(whole)
    return count


def stream_of(shard: ShardFile, chosen: np.ndarray) -> tuple[ScoringStream, int]:
    """Return the documents of a shard with the numbers `chosen`, and how many of them have a prompt."""
    tokens = np.concatenate([shard.tokens[shard.offsets[i] : shard.offsets[i + 1]] for i in chosen])
    if shard.responses is None:
        return ScoringStream(tokens), 0
    prompts = (shard.responses - shard.offsets[:-1] - 1)[chosen]
    return ScoringStream(tokens, in_prompts(prompts, np.diff(shard.offsets)[chosen])), int((prompts > 0).sum())


def in_prompts(prompts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return which tokens of a stream belong to prompts: [tokens] bool.

    `prompts`, `lengths`: [documents] the number of tokens of each prompt, and of each document.
    """
    place = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # in its document
    return (place > 0) & (place <= np.repeat(prompts, lengths))


def of_documents(texts: dict[str, Text], nats: dict[str, dict[str, dict[str, np.ndarray]]]) -> pa.Table:
    """Return a table with one row per scored document, from which the scores of two models are compared.

    Its columns are `language`, `document` (the number among the validation documents), `bytes`, `whole_bytes` (those of
    the language's whole validation text) and, in nats, `unigram` and a column per variant and metric: `ema_causal`.
    `nats`: {language: {variant: {metric: the nats of each document}}}.
    """
    tables = []
    for language, text in texts.items():
        count = len(text.chosen)
        columns: dict[str, Any] = {"language": [language] * count, "document": text.chosen, "bytes": text.bytes}
        columns |= {"whole_bytes": [text.whole_bytes] * count, "unigram": text.unigram}
        columns |= {f"{variant}_{name}": found for variant, of in nats[language].items() for name, found in of.items()}
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def occurrences(tokens: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """Return how often each token occurs in a stream, 0 for special tokens: [vocabulary size] int64."""
    counts = np.zeros(vocabulary.size, np.int64)
    for start in range(0, len(tokens), 1 << 24):  # bincount needs 8 bytes per token
        counts += np.bincount(tokens[start : start + (1 << 24)], minlength=len(counts))
    counts[vocabulary.is_special] = 0
    return counts


def unigram_nats(training: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """Return -ln p of each token, with add-one smoothing over the ordinary tokens: [vocabulary size] float64.

    `training` says how often each token occurs in the training text. Special tokens have probability 0.
    """
    ordinary = ~vocabulary.is_special
    smoothed = np.where(ordinary, training + 1.0, 0.0)
    with np.errstate(divide="ignore"):
        return -np.log(smoothed / smoothed.sum())
