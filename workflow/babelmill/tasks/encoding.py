"""Encode the rows of a task as a model reads them: texts, pairs of texts, and sentences whose words have labels.

A sentence is encoded as its words with spaces between them, as a tokenizer meets words in text. The places of pieces
in this text, which tokenizers give, say to which word each piece belongs. (`is_split_into_words` of transformers would
encode each word alone: a byte-level tokenizer without a prefix space then reads them as one long word.)

A word that is cut off, or of which the tokenizer makes no piece, has no prediction and counts as wrong. So the scores
of models with different tokenizers are over the same words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch

from babelmill.config.entries import Tuning
from babelmill.core.files import UserError

NONE = -1  # the number of no word, and of no class
AT_ONCE = 100  # rows that are encoded at once: a tokenizer takes a hundred times the memory of the text
PER_TOKEN = 20  # characters: no text has tokens so long, so what is beyond as many times `longest` is never read


@dataclass(frozen=True)
class Row:
    """A text, a pair of texts or a sentence, as a model reads it."""

    # What the model is given of each token: `input_ids`; of pairs `token_type_ids`, if the model reads them; of
    # sentences `words`, the number of the token's word among those that have a token, or NONE.
    tokens: dict[str, list[int]]
    labels: np.ndarray  # the class of the text, [1], or those of the words of the sentence, [words]
    reached: np.ndarray  # which of these have a token, and so a prediction
    cut: bool  # whether it was longer than the protocol allows


class Padding(NamedTuple):
    """How rows become a batch: the padding token, the side it stands on, and the length of all batches (None: auto)."""

    token: int
    left: bool
    length: int | None


def pad(rows: Sequence[Row], padding: Padding) -> dict[str, torch.Tensor]:
    """Return what the model is given of some rows: their `tokens`, and `attention_mask`; [B, T] each."""
    sizes = [len(row.tokens["input_ids"]) for row in rows]
    length = padding.length or max(sizes)
    fill = {"input_ids": padding.token, "words": NONE}
    found = {name: np.full((len(rows), length), fill.get(name, 0)) for name in (*rows[0].tokens, "attention_mask")}
    for number, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        place = slice(length - size, length) if padding.left else slice(size)
        for name, values in row.tokens.items():
            found[name][number, place] = values
        found["attention_mask"][number, place] = 1
    return {name: torch.from_numpy(values) for name, values in found.items()}


def targets(rows: Sequence[Row]) -> np.ndarray:
    """Return the classes that a model should give rows, in the order of its logits."""
    return np.concatenate([row.labels[row.reached] for row in rows])


def spread(rows: Sequence[Row], values: np.ndarray, missing: float) -> list[np.ndarray]:
    """Return values of all targets as those of each row; `missing` where a word has no token."""
    reached = np.concatenate([row.reached for row in rows])
    found = np.full(len(reached), missing, values.dtype)
    found[reached] = values
    return np.split(found, np.cumsum([len(row.labels) for row in rows])[:-1])


@dataclass(frozen=True)
class Encoder:
    """Encodes the rows of a task as a model reads them."""

    tokenizer: Any
    numbers: dict[str, int]  # {class: its number}
    longest: int  # the most tokens of a row; what is beyond is cut off
    how: Tuning
    types: bool = False  # whether the model reads to which text of a pair each token belongs

    def rows(self, folder: Path, split: str) -> list[Row]:
        """Return the rows of a split of a task; raise a UserError if one is empty."""
        table = pq.ParquetFile(folder / f"{split}.parquet").read().to_pydict()
        if "words" in table:
            found = self.sentences(table["words"], table["labels"])
        else:
            found = self.texts(table["text"], table["pair"], table["label"])
        if empty := [number for number, row in enumerate(found, 1) if not row.tokens["input_ids"]]:
            raise UserError(
                f"{folder}: row {empty[0]} of the split {split} is empty, or the model's tokenizer makes no token of"
                " it; correct the files of the task"
            )
        return found

    def texts(self, firsts: Sequence[str], seconds: Sequence[str | None], labels: Sequence[str]) -> list[Row]:
        """Encode texts, or pairs of texts, as the tokenizer does it; the longer text of a pair loses its end first."""
        found, there, pairs = [], np.ones(1, bool), [text for text in seconds if text is not None]
        names = {"input_ids", "token_type_ids"} if self.types and pairs else {"input_ids"}
        given = [firsts, pairs] if pairs else [firsts]
        for label, (encoded, cut) in zip(labels, self._encode(*given), strict=True):
            tokens = {name: values for name, values in encoded.items() if name in names}
            found.append(Row(tokens, np.array([self.numbers[label]]), there, cut))
        return found

    def sentences(self, found: Sequence[Sequence[str]], labels: Sequence[Sequence[str]]) -> list[Row]:
        """Encode sentences with a tokenizer that gives the places of tokens; raise a UserError if it does not."""
        if not self.tokenizer.is_fast:
            raise UserError(
                f"the tokenizer {type(self.tokenizer).__name__} does not say which tokens belong to which word, so the"
                " model cannot be tuned for a task of the kind tagging; use a model with a fast tokenizer"
                " (tokenizer.json)"
            )
        rows = []
        whole = self._encode([" ".join(words) for words in found], return_offsets_mapping=True)
        for words, names, (encoded, cut) in zip(found, labels, whole, strict=True):
            pieces = words_of_pieces(words, encoded["offset_mapping"])
            there = np.isin(np.arange(len(words)), pieces)
            order = [*(np.cumsum(there) - 1).tolist(), NONE]  # among the words that have a token; the last is NONE's
            tokens = {"input_ids": encoded["input_ids"], "words": [order[word] for word in pieces]}
            target = np.array([self.numbers[name] for name in names], np.int64)
            scored = there if self.how.words_cut == "left_out" else np.ones(len(words), bool)
            rows.append(Row(tokens, target[scored], there[scored], cut))
        return rows

    def _encode(self, *texts: Sequence[str], **asked: Any) -> Iterator[tuple[dict[str, Any], bool]]:
        """Yield what the tokenizer gives of each text or pair, {name: a value per token}, and whether it lost its end.

        A tokenizer keeps what it cuts off, and for a pair each piece of one text with each piece of the other: two
        texts of 100 kB take all memory. So their ends are cut off before.
        """
        asked |= {"verbose": False, "split_special_tokens": self.how.plain_text}  # no warning: the length is counted
        for start in range(0, len(texts[0]), AT_ONCE):
            parts = [each[start : start + AT_ONCE] for each in texts]
            given = [[text[: PER_TOKEN * self.longest] for text in part] for part in parts]
            found = self.tokenizer(*given, **asked)
            cut = [len(ids) > self.longest for ids in found["input_ids"]]
            if any(cut):
                found = self.tokenizer(*given, **asked, truncation=True, max_length=self.longest)
            for number, lost in enumerate(cut):
                yield {name: list(values[number]) for name, values in found.items()}, lost


def words_of_pieces(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[int]:
    """Return the number of the word that each piece belongs to, in a text of words with spaces between them.

    It is the word of its last character, or the latest word that has a piece: so the numbers never fall. A space
    between words, and a special token, belong to none. Offsets are the first character and the one after the last.
    """
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    begins, ends = np.array(offsets, np.int64).reshape(-1, 2).T
    found = np.searchsorted(starts, ends - 1, "right") - 1
    none = (ends <= begins) | ((ends - begins == 1) & (ends == starts[found + 1]))
    return np.where(none, NONE, np.maximum.accumulate(np.where(none, 0, found))).tolist()
