"""Read the validation text, all of it or a sample of its documents, as a model reads it.

A sample consists of the documents whose texts have the smallest hashes. So it is the same for every model, tokenizer
and machine, and a larger sample contains the smaller ones.
"""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.core.words import portions
from babelmill.evaluation.metrics import Score, entry
from babelmill.evaluation.rows import Text
from babelmill.tokens.documents import Documents
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import encode, vocabulary_used
from babelmill.tokens.vocabulary import Vocabulary


class ValidationText:
    """The validation text of a language, and what can be known about it without a model."""

    def __init__(
        self, corpus: Path, tokenizer: Tokenizer, vocabulary: Vocabulary, sample: int | None = None, lossy: bool = False
    ):
        """Read what the stage `corpus` made, and tokenize the documents to score.

        `sample`: how many they are; None for all. `lossy`: whether the tokenizer may lose text. A UserError says that a
        file is damaged.
        """
        manifest.verify(corpus, "validation.parquet")
        self.documents = Documents(corpus / "validation.parquet")  # all documents of the validation text
        self._vocabulary, self._tokenizer = vocabulary, tokenizer
        texts = texts_of(self.documents)
        sizes = np.array([len(text[-1].encode()) for text in texts], np.int64)
        self.whole_bytes = int(sizes.sum())  # the number of UTF-8 bytes of all documents, without their prompts
        self.chosen = choose(texts, sample)  # [documents to score] the number of each among all documents
        # [documents to score] the number of UTF-8 bytes of each; of a document with a prompt, those of its response. If
        # the tokenizer is lossless, the scored tokens are exactly these bytes.
        self.bytes = sizes[self.chosen]
        self.tokens: list[np.ndarray] = []  # of each document to score, as the model gets them: [tokens]
        self.scored: list[np.ndarray] = []  # which of these tokens count: [tokens] bool
        self.with_prompt = 0  # how many of the documents to score have a prompt
        chosen = [texts[number] for number in self.chosen]
        for some in portions(chosen, lambda text: sum(map(len, text))):
            tokens, lengths = encode(tokenizer, [piece for text in some for piece in text], self.documents.prompted)
            for pieces in lengths.reshape(-1, self.documents.pieces):
                here, prompt = int(pieces.sum()), int(pieces[:-1].sum())
                ids = np.array([vocabulary.bos, *tokens[:here], vocabulary.eos])
                self.tokens.append(vocabulary.given(ids))
                self.scored.append(~vocabulary.is_special[ids])
                self.scored[-1][1 : 1 + prompt] = False
                self.with_prompt += prompt > 0
                tokens = tokens[here:]
        # how many of the documents to score are changed by encoding and decoding; their scores are about the text that
        # the tokenizer keeps
        self.changed = changed(tokenizer, [text[-1] for text in chosen]) if lossy else 0
        self.count = sum(int(scored.sum()) for scored in self.scored)  # the number of tokens to score
        # what models are measured by: {variant: {metric: [documents to score] -ln p of each}}
        self.nats: dict[str, dict[str, np.ndarray]] = {}
        self.unigram: np.ndarray | None = None  # [documents to score] the nats of the unigram baseline
        self.used: dict[str, float] = {}  # `vocabulary_used`: the share of the vocabulary that the training text has

    def learn(self, shards: Path, corpus: Path, digest: str) -> None:
        """Count the tokens of the training text, for the unigram baseline.

        `digest`: the sha256 of the tokenizer's file. A UserError says that the shards do not belong to the corpus or
        the tokenizer.
        """
        manifest.verify(shards, "train.safetensors", remember=True)
        manifest.verify_upstream(shards, corpus)
        shard = ShardFile.open(shards / "train.safetensors")
        if shard.metadata["tokenizer_sha256"] != digest:
            raise UserError(f"{shard.path} was not made with the exported tokenizer; run the workflow again")
        training = occurrences(shard.tokens, self._vocabulary)
        self.used = {"vocabulary_used": vocabulary_used(self._tokenizer, training[: self._vocabulary.entries])}
        nats = unigram_nats(training, self._vocabulary)
        pairs = zip(self.tokens, self.scored, strict=True)
        self.unigram = np.array([nats[tokens[scored]].sum() for tokens, scored in pairs])

    @property
    def size(self) -> dict[str, int]:
        """Return counts of documents: `scored`, `of` (all) and, if not 0, `with_prompt` and `changed`."""
        some = {"with_prompt": self.with_prompt, "changed": self.changed}
        counted = {key: count for key, count in some.items() if count}
        return {"scored": len(self.bytes), "of": self.documents.count} | counted

    def score(self, nats: np.ndarray) -> Score:
        """Return an entry of evaluation.json from the nats of each document."""
        return entry(nats, self.bytes, self.count)

    def figures(self) -> dict[str, Any]:
        """Return what evaluation.json says of the language: the scores of each variant and of the unigram baseline."""
        variants = {variant: {name: self.score(nats) for name, nats in of.items()} for variant, of in self.nats.items()}
        unigram = {} if self.unigram is None else {"unigram": self.score(self.unigram)}
        return {"variants": variants, "documents": self.size} | unigram


def windows(ids: np.ndarray, scored: np.ndarray, length: int) -> list[Text]:
    """Return a document, which begins with `<s>`, as texts of at most `length` tokens, which begin with `<s>` each.

    A document that is not longer is one text: each token has all of its context. Others are cut, so that each token to
    score is in one text.
    """
    found = []
    for start in range(1, len(ids), length - 1):
        places = 1 + np.flatnonzero(scored[start : start + length - 1])
        if len(places):
            found.append(Text([int(ids[0]), *ids[start : start + length - 1].tolist()], places.tolist()))
    return found


def texts_of(documents: Documents) -> list[tuple[str, ...]]:
    """Return the texts of all documents: of each its prompt, if documents have one, and the text itself."""
    pieces = documents.pieces
    return [tuple(texts[i : i + pieces]) for texts, _ in documents.batches() for i in range(0, len(texts), pieces)]


def choose(texts: Sequence[tuple[str, ...]], sample: int | None) -> np.ndarray:
    """Return the numbers of the documents to score: of all, or of `sample` of them, in order.

    A hash of the document, with its prompt, chooses it.
    """
    hashes = [blake2b("".join(each).encode(), digest_size=8, person=b"evaluation").digest() for each in texts]
    order = np.argsort(np.frombuffer(b"".join(hashes), ">u8"), kind="stable")
    return np.sort(order[:sample])


def changed(tokenizer: Tokenizer, texts: Sequence[str]) -> int:
    """Count the texts that encoding and decoding change.

    A tokenizer may turn capital letters into small ones, or have no token for a character.
    """
    count = 0
    for mine in portions(texts, len):
        ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(mine, add_special_tokens=False)]
        again = tokenizer.decode_batch(ids, skip_special_tokens=False)
        count += sum(text != given for text, given in zip(mine, again, strict=True))
    return count


def of_documents(texts: dict[str, ValidationText]) -> pa.Table:
    """Return a table with one row per scored document, from which the scores of two models are compared.

    Its columns are `language`, `document` (the number among the validation documents), `bytes`, `whole_bytes` (those of
    the language's whole validation text) and, in nats, `unigram` and a column per variant and metric: `ema_causal`.
    """
    tables = []
    for language, text in texts.items():
        count = len(text.chosen)
        columns: dict[str, Any] = {"language": [language] * count, "document": text.chosen, "bytes": text.bytes}
        columns |= {"whole_bytes": [text.whole_bytes] * count}
        columns |= {"unigram": text.unigram} if text.unigram is not None else {}
        columns |= {f"{variant}_{name}": found for variant, of in text.nats.items() for name, found in of.items()}
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
