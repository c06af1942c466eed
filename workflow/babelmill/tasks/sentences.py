"""Encode sentences whose words have labels: which pieces of a tokenizer belong to which word.

A sentence is encoded as its words with spaces between them, as a tokenizer meets words in text. The places of pieces
in this text, which tokenizers give, say to which word each piece belongs. (`is_split_into_words` of transformers would
encode each word alone: a byte-level tokenizer without a prefix space then reads them as one long word.)

A word that is cut off, or of which the tokenizer makes no piece, has no prediction and counts as wrong. So the scores
of models with different tokenizers are over the same words.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from babelmill.core.files import UserError
from babelmill.tasks import metrics
from babelmill.tasks.tuner import Padding, batch_of

NONE = -1  # the number of no word, and of no class


@dataclass(frozen=True)
class EncodedSentences:
    """Sentences as a model reads them."""

    ids: list[list[int]]  # the token ids of each sentence, with special tokens, cut to the length of the protocol
    # for each token the number of its word, among those that have a token; NONE for other tokens
    words: list[list[int]]
    labels: list[np.ndarray]  # for each sentence the class of each of its words
    reached: list[np.ndarray]  # for each sentence, which of its words have a token
    classes: list[str]  # the names of the classes
    cut: int  # how many sentences were longer than the protocol allows

    def __len__(self) -> int:
        return len(self.ids)

    def chosen(self, rows: Sequence[int]) -> "EncodedSentences":
        ids, words = [self.ids[row] for row in rows], [self.words[row] for row in rows]
        labels, reached = [self.labels[row] for row in rows], [self.reached[row] for row in rows]
        return EncodedSentences(ids, words, labels, reached, self.classes, 0)

    def and_those_of(self, other: "EncodedSentences") -> "EncodedSentences":
        """Return these sentences and, after them, others."""
        parts = self.ids + other.ids, self.words + other.words, self.labels + other.labels, self.reached + other.reached
        return EncodedSentences(*parts, self.classes, self.cut + other.cut)

    def batch(self, rows: Sequence[int], padding: Padding) -> list[torch.Tensor]:
        """Return what the model is given of some sentences: ids, attention mask and words; [B, T] each."""
        ids, there = batch_of([self.ids[row] for row in rows], padding)
        return [ids, there, batch_of([self.words[row] for row in rows], padding._replace(token=NONE))[0]]

    def targets(self, rows: Sequence[int]) -> np.ndarray:
        """Return the classes of the words of some sentences that have a token, one sentence after the other."""
        return np.concatenate([self.labels[row][self.reached[row]] for row in rows])

    def predictions(self, logits: np.ndarray) -> list[np.ndarray]:
        """Return for each sentence the predicted class of each word, NONE for those without a token.

        `logits`: [words that have a token, classes].
        """
        return self.spread(logits.argmax(1), NONE)

    def spread(self, values: np.ndarray, missing: float) -> list[np.ndarray]:
        """Return values of the words that have a token, [words], as those of all words of each sentence."""
        reached = np.concatenate(self.reached)
        found = np.full(len(reached), missing, values.dtype)
        found[reached] = values
        return np.split(found, np.cumsum([*map(len, self.reached)])[:-1])

    def score(self, metric: str, logits: np.ndarray) -> float:
        counts = metrics.counts_of_words(metric, self.labels, self.predictions(logits), self.classes)
        return float(metrics.over_all(metrics.of_sentences, counts)[0])


def encode_sentences(
    tokenizer: Any,
    sentences: Sequence[Sequence[str]],
    labels: Sequence[Sequence[str]],
    classes: list[str],
    longest: int,
    leave_out: bool,
) -> EncodedSentences:
    """Encode sentences with a tokenizer that gives the places of tokens, or whose tokens are characters or bytes.

    Sentences are cut to the `longest` number of tokens. If `leave_out`, words without a token do not count as wrong.
    """
    texts = [" ".join(words) for words in sentences]
    asked = {"return_offsets_mapping": True} if tokenizer.is_fast else {}
    found = tokenizer(texts, **asked, verbose=False)  # no warning of the length, which is counted
    whole = found["input_ids"]
    if cut := sum(len(ids) > longest for ids in whole):
        found = tokenizer(texts, **asked, truncation=True, max_length=longest)
    if tokenizer.is_fast:
        owners = map(words_of_pieces, sentences, found["offset_mapping"])
    else:
        owners = [words_of_signs(tokenizer, *each) for each in zip(sentences, whole, found["input_ids"], strict=True)]
    numbers = {name: number for number, name in enumerate(classes)}
    of_pieces, of_words, reached = [], [], []
    for words, given, pieces in zip(sentences, labels, owners, strict=True):
        there = np.isin(np.arange(len(words)), pieces)
        order = np.cumsum(there) - 1  # among the words that have a token
        of_pieces.append([NONE if word == NONE else int(order[word]) for word in pieces])
        target = np.array([numbers[label] for label in given], np.int64)
        of_words.append(target[there] if leave_out else target)
        reached.append(there[there] if leave_out else there)
    return EncodedSentences([*map(list, found["input_ids"])], of_pieces, of_words, reached, classes, cut)


def words_of_pieces(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[int]:
    """Return the number of the word that each piece belongs to, in a text of words with spaces between them.

    A piece of spaces alone belongs to no word; one over several words to the first that has no piece yet, or to the
    latest word that has one. So the numbers never fall. The offsets of a piece are its first character and the one
    after its last.
    """
    starts = [0, *itertools.accumulate(len(word) + 1 for word in words)][:-1]
    owner = np.full(sum(map(len, words)) + len(words), NONE)
    for number, (start, word) in enumerate(zip(starts, words, strict=True)):
        owner[start : start + len(word)] = number
    found, latest = [], NONE
    for start, end in offsets:
        covered = owner[start:end]
        covered = covered[covered != NONE]
        new = covered[covered > latest]
        number = int(new[0]) if len(new) else latest if len(covered) else NONE
        found.append(number)
        latest = max(latest, number)
    return found


def words_of_signs(tokenizer: Any, words: Sequence[str], whole: list[int], ids: list[int]) -> list[int]:
    """Return the number of the word of each token of a tokenizer that does not give places, such as CANINE's.

    These read characters or bytes: the `whole` tokens of a text are those of its words, with those of a space between
    them; `ids` are those that are not cut off. A UserError says that the tokenizer reads words in a text differently.
    """
    alone = {text: list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (*words, " ")}
    inner, numbers = [], []
    for number, word in enumerate(words):
        for text, owner in ((" ", NONE), (word, number))[number == 0 :]:
            inner += alone[text]
            numbers += [owner] * len(alone[text])
    extra = len(whole) - len(inner)
    start = next((i for i in range(extra + 1) if [*whole][i : i + len(inner)] == inner), None)
    if start is None:
        raise UserError(
            f"the tokenizer {type(tokenizer).__name__} does not say which tokens belong to which word, so the model"
            " cannot be tuned for a task of the kind tagging; use a model with a fast tokenizer (tokenizer.json)"
        )
    return [NONE] * start + numbers[: len(ids) - extra] + [NONE] * (extra - start)
