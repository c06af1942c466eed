"""Read the labelled shards of a run, and build micro-batches of whole texts with their codes.

A row is a document: a text, or a context and a text, with the special tokens that the exported model's tokenizer adds
(`Frame`). A micro-batch is as long as its longest row. A document that is too long for a row loses the end of its text.
Training can hide contexts and put typos into texts.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from babelmill.config import schema
from babelmill.core.files import UserError, read_json
from babelmill.core.words import plural
from babelmill.labels.codes import CODES_OF_SOURCE, PAD, SYSTEMS, Codes, written
from babelmill.stages import TrainStage
from babelmill.tokens.shard_file import Labels, ShardFile, Texts
from babelmill.tokens.tokenizer_file import encode, load_tokenizer
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.batches import Data
from babelmill.training.plan import randomness
from babelmill.training.plan.randomness import CONTEXT, TYPOS, below, draw
from babelmill.training.plan.rows import Packed, Rows

MULTIPLE = 8  # lengths are rounded up to a multiple of it
CLASSIFIER, DECODER = "classifier.", "decoder."  # how the names of the heads' weights begin
MOST = 3  # the largest number of typos in a text
LEAVE_OUT, PUT_IN, REPLACE, SWAP = range(4)


@dataclass(frozen=True)
class Frame:
    """Holds the ids of the special tokens around a text, and around a context with its text."""

    alone: tuple[tuple[int, ...], tuple[int, ...]]  # ids before and after a text
    # Ids before a context, between the context and its text, and after the text.
    pair: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    pad: int  # the id of padding

    def cut(self, context: np.ndarray, text: np.ndarray, length: int) -> np.ndarray:
        """Return [rows] bool: which rows lose tokens. `context` and `text` [rows] are their numbers of tokens."""
        alone, pair = (sum(map(len, parts)) for parts in (self.alone, self.pair))
        return (context > length // 2) | (context + text + np.where(context > 0, pair, alone) > length)

    def row(self, context: np.ndarray, text: np.ndarray, length: int) -> np.ndarray:
        """Return the ids of a row, at most `length` of them. An empty `context` means that there is none."""
        before, after = self.alone
        if len(context):
            first, between, after = self.pair
            before = np.concatenate([first, context[: length // 2], between])
        kept = text[: max(0, length - len(before) - len(after))]
        return np.concatenate([before, kept, after]).astype(np.int64)[:length]


@dataclass(frozen=True)
class LabelBatch:
    """Holds tensors of B rows of T positions."""

    input_ids: torch.Tensor  # [B, T] int64
    seen: torch.Tensor  # [B, T] bool, false at padding
    classes: torch.Tensor  # [B, K] float32, 1 for the classes of each row
    blocks: torch.Tensor  # [B, n, s] int64, the symbols of the row's codes, empty blocks last
    languages: torch.Tensor  # [B] int64
    # Weights of three parts of the loss: a spelt code, a row's classes, and a row's empty blocks.
    weights: tuple[float, ...]


def in_terms_of(shard: ShardFile, codes: Codes, most: int) -> ShardFile:
    """Return a shard whose labels are numbered as in `codes`, without others, and at most `most` per document."""
    labels = shard.labels
    assert labels is not None
    number = np.array([codes.index.get(name, -1) for name in labels.names], np.int32)[labels.codes]
    document = np.repeat(np.arange(len(labels.offsets) - 1), np.diff(labels.offsets))
    known = number >= 0
    number, document = number[known], document[known]
    first = np.searchsorted(document, document)
    kept = np.arange(len(document)) - first < most
    ends = np.cumsum(np.bincount(document[kept], minlength=len(labels.offsets) - 1))
    return replace(shard, labels=Labels(number[kept], np.concatenate([[0], ends]), codes.names))


def disturbed(text: str, key: int, texts: Texts) -> str:
    """Return a text with typos, such as old registers contain (`train.typos`).

    OccCANINE does the same (`histocc/attacker.py`), but also swaps words. One to three times, a character is removed,
    inserted, replaced, or swapped with the next one, which may have no effect. New characters are drawn from `texts`,
    so that they belong to the same script. The text and the result have at least one character. `key` is that of all
    random numbers.
    """
    for change in range(1 + below(draw(key, 0), MOST)):
        kind, place, new = (draw(key, 1 + 3 * change + i) for i in range(3))
        kind = below(kind, 4)
        place = below(place, len(text) + (kind == PUT_IN))
        before, here, after = text[:place], text[place : place + 1], text[place + 1 :]
        if kind == LEAVE_OUT:
            text = before + after or text
        elif kind == PUT_IN:
            text = before + letter_of(texts, new) + here + after
        elif kind == REPLACE:
            text = before + letter_of(texts, new) + after
        else:
            text = before + after[:1] + here + after[1:]
    return text


def letter_of(texts: Texts, number: int) -> str:
    """Return the character of the texts that a number of 32 bits selects."""
    place = number * len(texts.content) >> 32
    while texts.content[place] & 0xC0 == 0x80:  # inside a character of several bytes
        place -= 1
    return bytes(texts.content[place : place + 4]).decode(errors="ignore")[0]


@dataclass(frozen=True)
class LabelStream:
    """Holds the documents of all languages and their codes."""

    shards: list[ShardFile]  # those of the languages, with labels `in_terms_of` the codes
    frame: Frame
    codes: Codes
    blocks: int  # how many codes a document has at most
    tokenizer: Tokenizer
    seed: int
    device: torch.device
    unknown_context: float = 0.0  # the share of the rows whose context is hidden
    typos: float = 0.0  # the share of the rows whose text gets typos

    def micro_batch(
        self, rows: Rows, length: int, weights: tuple[float, ...], stream: int = 0, pad_rows_to: int = 1
    ) -> LabelBatch:
        """Build rows of at most `length` tokens.

        `weights`: those in the loss; see `LabelBatch`. `stream`: 0 in training: only training hides contexts and puts
        typos into texts. `pad_rows_to` is not used, since these models are not compiled.
        """
        training = not stream
        hidden = randomness.uniform(randomness.key(self.seed, stream, CONTEXT, rows.number)) < self.unknown_context
        typed = self._with_typos(rows) if training else {}
        ids = [self._row(rows, i, length, training and hidden[i], typed.get(i)) for i in range(len(rows))]
        longest = -(-max(map(len, ids)) // MULTIPLE) * MULTIPLE
        input_ids = np.full((len(rows), longest), self.frame.pad)
        seen = np.arange(longest) < np.array([len(row) for row in ids])[:, None]
        input_ids[seen] = np.concatenate(ids)
        classes = np.zeros((len(rows), len(self.codes.names)), np.float32)
        blocks = np.full((len(rows), self.blocks, self.codes.block_size), PAD)
        for i, (language, document, count) in enumerate(zip(rows.language, rows.row, rows.targets, strict=True)):
            labels = self.shards[language].labels
            assert labels is not None
            codes = labels.codes[labels.offsets[document] :][:count]  # none if the row fills up (`rows.whole_rounds`)
            classes[i, codes] = 1
            blocks[i, : len(codes)] = self.codes.blocks[codes]
        found = [torch.from_numpy(each) for each in (input_ids, seen, classes, blocks, rows.language)]
        if self.device.type == "cuda":  # otherwise the host would wait for each copy
            found = [each.pin_memory() for each in found]
        tensors = [each.to(self.device, non_blocking=True) for each in found]
        return LabelBatch(*tensors, weights=weights)

    def _row(self, rows: Rows, i: int, length: int, hidden: bool, typed: np.ndarray | None) -> np.ndarray:
        """Return the ids of a row. `typed` is the ids of its text with typos, or None if it has none."""
        shard, document = self.shards[rows.language[i]], int(rows.row[i])
        begin, end = int(rows.begin[i]) + 1, int(rows.end[i]) - 1  # without `<s>` and `</s>`
        text = begin if shard.responses is None else int(shard.responses[document])
        context = shard.tokens[begin : begin if hidden else text]
        return self.frame.row(context, shard.tokens[text:end] if typed is None else typed, length)

    def _with_typos(self, rows: Rows) -> dict[int, np.ndarray]:
        """Return the tokens of the texts that get typos, by the index of the row in `rows`.

        The row's number decides about everything, so every process always makes the same typos in a row.
        """
        keys = randomness.key(self.seed, TYPOS, rows.number)
        places = np.flatnonzero(randomness.uniform(keys) < self.typos).tolist()
        if not places:
            return {}
        found = []
        for i in places:
            texts = self.shards[rows.language[i]].texts
            assert texts is not None
            found.append(disturbed(texts[int(rows.row[i])], int(keys[i]), texts))
        tokens, lengths = encode(self.tokenizer, found)
        return dict(zip(places, np.split(tokens, np.cumsum(lengths)[:-1]), strict=True))


class DocumentRows(Packed):
    """Makes each document a row, which is cut if it is too long. Its codes are its targets."""

    def __init__(self, shard: ShardFile, longest: int):
        """Take the labelled documents of a shard, and the largest length of a row."""
        assert shard.labels is not None
        super().__init__(shard.offsets)
        self._code_offsets = shard.labels.offsets
        self.tokens = self.rows(longest) * longest  # as if all rows were full: an epoch reads each document once

    def rows(self, length: int) -> int:
        """Return the number of documents."""
        return len(self.offsets) - 1

    def bounds(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        return self.offsets[row], self.offsets[row + 1]

    def targets(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        codes = self._code_offsets[row + 1] - self._code_offsets[row]
        return codes, codes


class Begun(NamedTuple):
    """Says what a model takes over from its source."""

    # The codes that the model knows. If the source's codes include all codes of the text, they are the source's, in the
    # same order.
    codes: Codes
    heads: tuple[str, ...] = ()  # the weights whose names begin with one of these prefixes are taken over
    message: str = ""  # a description in words; empty if the source has no heads


def begun(source: Path | None, codes: Codes, labels: schema.Labels) -> Begun:
    """Return which heads of a source are taken over, given the codes of the text."""
    if source is None or not (source / CODES_OF_SOURCE).is_file():
        return Begun(codes)
    theirs = read_json(source / CODES_OF_SOURCE)
    try:
        names = [written(code, labels) for code in theirs["codes"]]
    except ValueError as problem:
        return Begun(codes, (), f"its heads start with random weights: {problem} (labels.code)")
    anew, heads, said = "starts with random weights, since", list[str](), list[str]()
    known = set(names)
    if strange := [name for name in codes.names if name not in known]:
        lacking = f"the source does not know {plural(len(strange), 'code')}, such as {strange[0]}"
        said.append(f"its linear head {anew} {lacking}")
    else:
        codes = Codes(names, codes.system, labels.block_size)
        heads.append(CLASSIFIER)
        said.append(f"its linear head continues, with its {plural(len(names), 'code')}")
    shape = [theirs[key] for key in ("entries", "layers", "inner")]
    if SYSTEMS[codes.system].symbols and shape == [codes.entries, labels.decoder_layers, theirs["width"]]:
        heads.append(DECODER)
        said.append("its decoder continues")
    else:
        said.append(f"its decoder {anew} the source's has {theirs['layers']} layers, other symbols or another width")
    return Begun(codes, tuple(heads), "; ".join(said))


class LabelledData(Data):
    """Holds the shards of labelled text: each document is a row, with its codes.

    `source` is the folder of the model that training starts from, or None. A UserError says that the training text has
    fewer than two codes, or that the validation text has no code that the model knows.
    """

    def __init__(self, settings: TrainStage, tokenizer: Path, folders: list[Path], source: Path | None = None):
        super().__init__(settings, tokenizer, folders)
        labels, length = settings.labels, settings.train.sequence_lengths[0]
        found = [shard.labels for shard in self.shards["train"] if shard.labels]
        occurring = {each.names[code] for each in found for code in np.unique(each.codes)}
        if len(occurring) < 2:  # the model may know more codes, from labels.codes
            code = f"{next(iter(occurring))!r}: there is nothing to learn"
            raise UserError(f"the training text of {settings.label()} has only one code, {code}")
        self.blocks = max(int(np.diff(each.offsets).max(initial=1)) for each in found)  # the most codes of a document
        known = Codes(sorted({name for each in found for name in each.names}), labels.code, labels.block_size)
        self.begun = begun(source, known, labels)  # what the model takes over from its source
        self.codes = self.begun.codes  # those of the training shards, or the source's if these include them
        # the share of spelt codes in the loss; 0 if codes are not spelt
        self.blocks_weight = labels.blocks_weight if self.codes.block_size else 0.0
        self._tokenizer = load_tokenizer(tokenizer / "tokenizer.json")
        self._frame = frame_of(self._tokenizer, self.vocabulary)
        for split, shards in self.shards.items():
            self.shards[split] = [in_terms_of(shard, self.codes, self.blocks) for shard in shards]
            self.layouts[split] = [DocumentRows(shard, length) for shard in self.shards[split]]
        if not any(len(shard.labels.codes) for shard in self.shards["validation"] if shard.labels):
            raise UserError(
                f"no validation text of {settings.label()} has a code of its training text, so there is nothing to"
                " measure; raise corpus.validation_share, or set other corpus.validation_files"
            )

    def stream(self, split: str, device: torch.device, *how: Any) -> LabelStream:
        train = self.settings.train
        made_of = self._frame, self.codes, self.blocks, self._tokenizer, train.seed, device
        return LabelStream(self.shards[split], *made_of, train.unknown_context, train.typos)

    def cut(self) -> int:
        """Return how many training texts, with their contexts, are longer than a row."""
        count = 0
        for shard in self.shards["train"]:
            first = shard.offsets[:-1] + 1
            context = 0 * first if shard.responses is None else shard.responses - first
            text = np.diff(shard.offsets) - 2 - context
            count += int(self._frame.cut(context, text, self.settings.train.sequence_lengths[0]).sum())
        return count


def frame_of(tokenizer: Tokenizer, vocabulary: Vocabulary) -> Frame:
    """Return the special tokens that a tokenizer puts around a text and a context."""

    def parts(text: str, pair: str | None = None) -> list[list[int]]:
        """Return the special tokens before, between and after the texts."""
        encoding, found, inside = tokenizer.encode(text, pair), [[]], None
        for token, sequence in zip(encoding.ids, encoding.sequence_ids, strict=True):
            if sequence is None:
                found[-1].append(token)
            elif sequence != inside:
                inside = sequence
                found.append([])
        return found

    alone, pair = parts("a"), parts("a", "a")
    pad = vocabulary.given(vocabulary.pad)
    return Frame((tuple(alone[0]), tuple(alone[1])), (tuple(pair[0]), tuple(pair[1]), tuple(pair[2])), pad)
