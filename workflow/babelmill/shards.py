"""Tokenize each of a language's two splits into one stream of tokens (stage `shards`).

    python -m babelmill.shards results/settings/shards/eng-9dee528ce5.json --threads 2

This writes `train.safetensors` and `validation.safetensors` in the format of `shard_file.py`, and `manifest.json`.
Every document is stored as `<s>` text `</s>`, or as `<s>` prompt text `</s>`. Prompt and text are tokenised separately,
so that a prompt gets the same tokens as it does without a text. The name of a special token inside a document is
ordinary text. With `tokenizer.prefix_space`, a document begins with an added space, but not a text after a prompt.

The work is a pipeline over batches of about 1 MB: this thread reads Parquet and writes tokens, while several threads
encode (`tokenizers` releases Python's lock and uses all cores). Since several batches are encoded at once, the cores
stay busy even if a batch is one long document. Results are written in the order of the documents, so the bytes are the
same on every run and for every number of threads. Memory does not depend on the size of the corpus.
"""

import logging
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from babelmill.core import manifest, stage_entry
from babelmill.core.bars import Bar
from babelmill.core.files import UserError, sha256
from babelmill.core.stage_entry import Job
from babelmill.core.words import count_words, plural, short
from babelmill.labels.codes import CodeReader
from babelmill.stages import ShardsStage
from babelmill.tokens.documents import Documents
from babelmill.tokens.shard_file import Labels, write_shard
from babelmill.tokens.tokenizer_file import encode, load_tokenizer, use_threads, vocab_size
from babelmill.tokens.vocabulary import Vocabulary

log = logging.getLogger("babelmill.shards")

MOST_BATCHES = 16  # how many batches to encode at once: an encoded batch takes up to 50 MB


def encoded(tokenizer: Tokenizer, corpus: Documents, threads: int) -> Iterator[tuple[np.ndarray, np.ndarray, int, int]]:
    """Yield tokens in order, in batches of documents: (tokens, number of tokens of each text, UTF-8 bytes, words)."""

    def encode_batch(texts: list[str], sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int]:
        return *encode(tokenizer, texts, corpus.prompted), int(sizes.sum()), count_words(texts)

    waiting: deque[Future[tuple[np.ndarray, np.ndarray, int, int]]] = deque()
    workers = min(threads + 1, MOST_BATCHES)
    with ThreadPoolExecutor(workers) as pool:
        for batch in corpus.batches():
            waiting.append(pool.submit(encode_batch, *batch))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def enclose(tokens: np.ndarray, lengths: np.ndarray, bos: int, eos: int) -> tuple[np.ndarray, np.ndarray]:
    """Put `<s>` before and `</s>` after each document, given all tokens in a row and the length of each document."""
    ends = np.cumsum(lengths)
    places = np.stack([ends - lengths, ends], 1).reshape(-1)
    return np.insert(tokens, places, np.tile([bos, eos], len(lengths))), lengths + 2


def build(
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    digest: str,
    corpus: Documents,
    path: Path,
    threads: int,
    labels: Labels | None = None,
) -> Counter[str]:
    """Write the shard of one split and return its number of documents, tokens, and bytes and words of text."""
    counts: Counter[str] = Counter()
    prompted, began, bar = corpus.pieces > 1, time.monotonic(), Bar(corpus.count)

    def documents() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
        for tokens, lengths, text_bytes, text_words in encoded(tokenizer, corpus, threads):
            pieces = lengths.reshape(-1, corpus.pieces)
            yield *enclose(tokens, pieces.sum(1), vocabulary.bos, vocabulary.eos), pieces[:, 0] if prompted else None
            counts.update(documents=len(pieces), bytes=text_bytes, words=text_words)
            if prompted:
                counts["prompt_tokens"] += int(pieces[:, 0].sum())
            done, rate = counts["documents"], counts["bytes"] / 1e6 / (time.monotonic() - began)
            bar.show(done, f"tokenizing {path.stem}: {done:,}/{corpus.count:,} documents  {rate:.1f} MB/s")

    texts = (texts[corpus.pieces - 1 :: corpus.pieces] for texts, _ in corpus.batches())
    counts["tokens"] = write_shard(path, vocabulary.size, digest, documents(), labels, texts)
    return counts


def run(job: Job[ShardsStage]) -> None:
    """Build the shards of a language."""
    settings, (language,) = job.settings, job.settings.languages
    use_threads(job.threads)
    tokenizer_folder, corpus_folder = settings.folder("tokenizer"), settings.folder("corpus")
    manifest.verify(tokenizer_folder, "tokenizer.json")
    manifest.verify(corpus_folder, "train.parquet", "validation.parquet")
    path = tokenizer_folder / "tokenizer.json"
    tokenizer, digest = load_tokenizer(path), sha256(path)
    vocabulary = Vocabulary.read(path, vocab_size(tokenizer))
    corpora = {
        split: Documents(corpus_folder / f"{split}.parquet", settings.labelled) for split in ("train", "validation")
    }
    if not corpora["validation"].count:
        raise UserError(
            f"the corpus of {language} has no validation documents, but training and evaluation need them;"
            " set corpus.validation_share above 0, or set corpus.validation_files"
        )
    figures: dict[str, Any] = {}
    reader = CodeReader(settings.labels)
    for split, corpus in corpora.items():
        labels = None
        if settings.labelled:
            if not corpus.labelled:
                raise UserError(
                    f"{corpus.path} has no labels, but train.objective: labels needs some; set corpus.label_columns"
                )
            labels = reader.read(corpus.labels())
        counts = build(tokenizer, vocabulary, digest, corpus, job.out / f"{split}.safetensors", job.threads, labels)
        about = f"{plural(counts['documents'], 'document')}, {short(counts['tokens'])} tokens"
        if labels:
            counts["codes"] = len(labels.codes)
            about += f", {plural(len(labels.codes), 'code')} ({len(labels.names):,} different)"
        log.info("%s %s: %s, %.2f bytes per token", language, split, about, counts["bytes"] / counts["tokens"])
        for name, count in counts.items():
            figures.setdefault(name, {})[split] = count
    tokens = figures["tokens"]
    figures["summary"] = f"{short(tokens['train'])} tokens; {short(tokens['validation'])} for validation"
    files = [f"{split}.safetensors" for split in corpora]
    manifest.write(job.out, settings, files, [tokenizer_folder, corpus_folder], figures, remember=True)


if __name__ == "__main__":
    sys.exit(stage_entry.main(ShardsStage, run, __doc__))
