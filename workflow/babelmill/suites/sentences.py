"""Score sentences with an exported model, as its users load it: sums of ln p at temperature 1, in fp32.

* `causal`: each token is predicted from those before it; the first is `<s>` (or the model's token in its place).
  A GPT-BERT reads the common beginning of an item's sentences once, see `fast_layers.py`.
* `masked` is the pseudo-log-likelihood (Salazar et al., 2020, arXiv:1910.14659): each token is hidden alone and
  predicted from all others.
* `bound` estimates the evidence lower bound of a masked diffusion model (LLaDA, arXiv:2502.09992): each sample hides
  between one token and all tokens. If the sentences of an item have equally many tokens, the same ones are hidden in
  all.

An item is a minimal pair, or a prompt with each of its options. Special tokens are context and are never scored; so are
the tokens of a prompt, if a suite scores only completions. Scores are not divided by a length.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from babelmill.core.escape import line
from babelmill.core.files import UserError
from babelmill.core.words import NOT_A_NUMBER
from babelmill.suites.fast_layers import FreePositions, pack_linear_layers

GROUP = 4  # batches per group; the rows of a group are sorted by length and scored together
SAMPLES = 128  # samples per sentence for `bound`
POSITIONS = {"cpu": 1024, "cuda": 65536}  # positions per batch; more would not fit into a CPU's caches
AT_ONCE = 1024  # texts that are encoded at once if their offsets are needed
LOGITS = 1 << 31  # bytes that the logits of a batch take at most


class Sentence(NamedTuple):
    """A sentence as a model reads it."""

    ids: list[int]  # the token ids, with special tokens
    scored: list[int]  # the positions of the tokens to score, which are text


class Row(NamedTuple):
    """A row of tokens that the model reads once."""

    sentence: int  # the number of the sentence
    ids: list[int]  # the token ids, some of them replaced by the mask
    scored: list[int]  # the positions whose true token is scored
    weight: float  # the weight of each of these scores


Item = Sequence[Sentence]  # two or more


class Joined(NamedTuple):
    """The sentences of an item in one row, without the last token of each, since nothing is predicted from it."""

    item: Item  # the sentences
    ids: list[int]  # the token ids: the common beginning, the rest of the first sentence, the rest of the second, ...
    starts: list[int]  # where the rest of each sentence starts


AnyRow = TypeVar("AnyRow")


@dataclass(frozen=True)
class Method:
    """A way to score sentences."""

    name: str  # "causal", "masked" or "bound"
    mask: int | None = None  # the id of the token that hides others; None for `causal`, which hides none

    @property
    def causal(self) -> bool:
        """Return whether the model's scores for a token stand at the position before it."""
        return self.name == "causal"

    @property
    def samples(self) -> int:
        """Return the number of rows per sentence, if the score is their mean; 0 if the score is their sum."""
        return SAMPLES if self.name == "bound" else 0

    def rows(self, item: int, number: int, sentence: Sentence) -> Iterator[Row]:
        """Yield the rows of a sentence; `item` and `number` are those of its item and of the sentence."""
        if self.causal:  # without the last token, from which nothing is predicted
            yield Row(number, sentence.ids[: sentence.scored[-1]], sentence.scored, 1.0)
        elif self.name == "masked":
            for place in sentence.scored:
                yield Row(number, self._hidden(sentence, [place]), [place], 1.0)
        else:
            yield from self._samples(item, number, sentence)

    def _hidden(self, sentence: Sentence, places: Iterable[int]) -> list[int]:
        assert self.mask is not None
        ids = list(sentence.ids)
        for place in places:
            ids[place] = self.mask
        return ids

    def _samples(self, item: int, number: int, sentence: Sentence) -> Iterator[Row]:
        """Yield SAMPLES rows of a sentence.

        Sample j of n hides k = 1 + floor(t e) of e tokens, where t = (j + u) / n, with one random u for all samples.
        Each hidden token has the weight e / (k n). If the sentences of an item have equally many tokens, the same ones
        are hidden.
        """
        tokens = len(sentence.scored)
        times = (np.arange(SAMPLES) + np.random.default_rng(item).random()) / SAMPLES
        for sample, time in enumerate(times):
            count = min(tokens, 1 + int(time * tokens))
            chosen = np.argsort(np.random.default_rng((item, sample)).random(tokens), kind="stable")[:count]
            hidden = [sentence.scored[place] for place in sorted(chosen)]
            yield Row(number, self._hidden(sentence, hidden), hidden, tokens / count / SAMPLES)


def encode(tokenizer: Any, texts: list[str], causal: bool, prompts: Sequence[int] | None = None) -> list[Sentence]:
    """Return sentences as token ids, with the special tokens that the tokenizer adds.

    With `causal`, a token is put before the first one if the tokenizer puts none, and special tokens at the end are
    dropped, since no score needs them. `prompts`: the number of characters of the prompt that each text begins with:
    only tokens that end after the prompt are scored. A UserError says that the tokenizer has no token that could stand
    before the first one, or cannot tell where tokens end.
    """
    if prompts is None:
        return _encode(tokenizer, texts, causal, None)
    if not tokenizer.is_fast:
        raise UserError(
            f"{tokenizer.name_or_path}: its tokenizer is a slow one, which does not tell which characters a token"
            " covers; so a suite with `scored: completion` cannot be scored"
        )
    parts = (slice(start, start + AT_ONCE) for start in range(0, len(texts), AT_ONCE))
    return [each for part in parts for each in _encode(tokenizer, texts[part], causal, prompts[part])]


def _encode(tokenizer: Any, texts: list[str], causal: bool, prompts: Sequence[int] | None) -> list[Sentence]:
    """Return what `encode` returns; the offsets of many texts at once would take much memory."""
    offsets = prompts is not None
    found = tokenizer(texts, return_special_tokens_mask=True, add_special_tokens=True, return_offsets_mapping=offsets)
    sentences = []
    for i, (ids, special) in enumerate(zip(found["input_ids"], found["special_tokens_mask"], strict=True)):
        scored = [place for place, mark in enumerate(special) if not mark]
        if prompts is not None:
            scored = [place for place in scored if found["offset_mapping"][i][place][1] > prompts[i]]
        if causal:
            ids = ids[: scored[-1] + 1] if scored else ids
            if scored and scored[0] == 0:
                first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
                if first is None:
                    raise UserError(
                        f"{tokenizer.name_or_path}: its tokenizer has no token that a sentence can begin with"
                        " (bos_token or eos_token), so the first token of a sentence has no score"
                    )
                ids, scored = [first, *ids], [place + 1 for place in scored]
        sentences.append(Sentence(ids, scored))
    return sentences


class Scorer:
    """Scores rows with a model, whose `logits` are [rows, length, vocabulary].

    If it is causal, its scores for a token stand at the position before it.
    """

    def __init__(self, model: Any, tokenizer: Any, causal: bool):
        self._model, self._tokenizer, self._pad = model, tokenizer, tokenizer.pad_token_id or 0
        target = getattr(model.config, "masked_target", None)  # our architectures have one
        self._is_ours = target is not None
        is_gpt_bert = model.config.model_type == "babelmill_gpt_bert"
        self._attention = FreePositions(model) if is_gpt_bert else None
        self._before = int(causal or target == "next")
        self.shares = causal and is_gpt_bert  # whether the model reads the sentences of an item in one row
        self._device = next(model.parameters()).device
        if is_gpt_bert and self._device.type == "cpu":
            pack_linear_layers(model)
        entries = 1 << 15 if is_gpt_bert else model.config.vocab_size
        if (output := model.get_output_embeddings()) is not None:
            entries = output.weight.shape[0]
        # how many positions a batch has at most
        self.positions = min(POSITIONS[self._device.type], LOGITS // (4 * entries))

    @torch.inference_mode()
    def tokens(self, rows: list[Row], truths: list[Sentence]) -> tuple[np.ndarray, np.ndarray]:
        """Return the row number and ln p of each scored token: [tokens] int64 and [tokens] float64.

        Rows of similar length are read together. The tokens of a row are in order. A UserError says that a score is not
        a number.
        """
        order = np.argsort([len(row.ids) for row in rows], kind="stable")
        owners, found = [np.zeros(0, np.int64)], [np.zeros(0)]
        for numbers in batches(order.tolist(), lambda i: len(rows[i].ids), self.positions):
            batch = [(rows[i], truths[rows[i].sentence]) for i in numbers]
            scored = [(i, at, truth.ids[at]) for i, (row, truth) in enumerate(batch) for at in row.scored]
            lines, places, targets = torch.tensor(scored).T
            ids, there = self._padded([row.ids for row, _ in batch])
            found.append(self._ln_p(ids, there, lines, places - self._before, targets))
            self._check(found[-1], [batch[i][1] for i, *_ in scored])
            owners.append(np.array(numbers)[lines.numpy()])
        return np.concatenate(owners), np.concatenate(found)

    @torch.inference_mode()
    def joined(self, rows: list[Joined]) -> list[np.ndarray]:
        """Return ln p of the sentences of each item: [sentences] float64. The rows are one batch."""
        assert self._attention is not None
        ids, there = self._padded([row.ids for row in rows])
        most, column = max(len(row.starts) for row in rows), torch.arange(ids.size(1))
        starts = torch.tensor([row.starts + [ids.size(1)] * (most - len(row.starts)) for row in rows])
        rest = (column[:, None] >= starts[:, None]).sum(-1)  # [rows, length]: 0 for the beginning, then 1, 2, ...
        hidden = (rest[:, None] > 0) & (rest[:, None] != rest[:, :, None])  # a rest does not see the other rests
        before = torch.cat([torch.zeros_like(starts[:, :1]), starts - starts[:, :1]], 1).gather(1, rest)
        scored = []
        sentences = [(i, j, each) for i, row in enumerate(rows) for j, each in enumerate(row.item)]
        for number, (i, j, each) in enumerate(sentences):
            beginning, start = rows[i].starts[0], rows[i].starts[j]
            later = start - beginning
            scored += [(i, number, p - 1 + later * (p > beginning), each.ids[p]) for p in each.scored]
        lines, owners, places, targets = torch.tensor(scored).T
        self._attention.positions = (column - before).to(self._device)
        found = self._ln_p(ids, there[:, :, None] & there[:, None] & ~hidden, lines, places, targets)
        self._attention.positions = None
        self._check(found, [sentences[owner][2] for owner in owners])
        sums = np.bincount(owners.numpy(), found, len(sentences))
        return np.split(sums, np.cumsum([len(row.item) for row in rows])[:-1])

    @torch.inference_mode()
    def at(self, rows: Sequence[Sequence[int]], asked: np.ndarray) -> np.ndarray:
        """Return ln p of tokens at places of rows: [tokens] float64. Rows of similar length are read together.

        What is `asked`, [tokens, 3] int64, is sorted by row: the number of each token's row, its place there, and its
        id. For a causal model, a place may be the one after a row's last token. A UserError says that a score is not a
        number.
        """
        order = np.argsort([len(row) for row in rows], kind="stable")
        starts = np.searchsorted(asked[:, 0], np.arange(len(rows) + 1)).tolist()
        found = np.zeros(len(asked))
        for numbers in batches(order.tolist(), lambda i: len(rows[i]), self.positions):
            read = [Sentence(list(rows[i]), []) for i in numbers]
            mine = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in numbers])
            lines = np.repeat(np.arange(len(numbers)), [starts[i + 1] - starts[i] for i in numbers])
            places, targets = asked[mine, 1] - self._before, asked[mine, 2]
            ids, there = self._padded([each.ids for each in read])
            found[mine] = self._ln_p(ids, there, *map(torch.from_numpy, (lines, places, targets)))
            self._check(found[mine], [read[line] for line in lines])
        return found

    def _check(self, found: np.ndarray, sentences: list[Sentence]) -> None:
        """Raise a UserError if the score of a token is not a number; `sentences` has the sentence of each token."""
        if len(wrong := np.flatnonzero(~np.isfinite(found))):
            text = line(self._tokenizer.decode(sentences[wrong[0]].ids, skip_special_tokens=True), 80)
            raise UserError(
                f"{self._tokenizer.name_or_path}: the score of the sentence {text!r} is not a number"
                f" ({found[wrong[0]]}): {NOT_A_NUMBER}"
            )

    def _padded(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the padded rows, and which positions are tokens and not padding, both [rows, longest]."""
        lengths = torch.tensor([len(row) for row in rows])
        there = torch.arange(int(lengths.max())) < lengths[:, None]
        ids = torch.full(there.shape, self._pad)
        ids[there] = torch.tensor([token for row in rows for token in row])
        return ids, there

    def _ln_p(
        self, ids: torch.Tensor, seen: torch.Tensor, lines: torch.Tensor, places: torch.Tensor, targets: torch.Tensor
    ) -> np.ndarray:
        """Return ln p of targets, [targets] float64, from the model's logits at their places.

        The head of our architectures is computed only at these places, and only once at a place with several targets. A
        target's place is a line (row) and a position in `ids`, [rows, length]; `seen` is the attention mask.
        """
        where, which = torch.stack([lines, places]).unique(dim=1, return_inverse=True)
        where, which, targets = (each.to(self._device) for each in (where, which, targets))
        given = ids.to(self._device), seen.to(self._device)
        if not self._is_ours:
            logits = self._model(input_ids=given[0], attention_mask=given[1]).logits[*where].float()
        else:
            hidden = self._model.model(*given, return_dict=True).last_hidden_state
            logits = self._model._logits(hidden[*where]).float()
        return (logits[which, targets] - logits.logsumexp(-1)[which]).double().cpu().numpy()


def batches(rows: Iterable[AnyRow], length: Callable[[AnyRow], int], positions: int) -> Iterator[list[AnyRow]]:
    """Yield batches of rows, which must be sorted by `length`.

    A batch has at most `positions` positions, padding included; a longer row is a batch of its own.
    """
    batch: list[AnyRow] = []
    for row in rows:
        if batch and (len(batch) + 1) * length(row) > positions:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def in_order(items: Sequence[Item], longest: int | None, shares: bool) -> list[int]:
    """Return the numbers of the items that can be scored, sorted by length.

    All sentences of such an item have tokens to score, and at most `longest` tokens each (None: any number).

    `shares`: whether the sentences of an item are read in one row.
    """
    sizes = [max(len(each.ids) for each in item) for item in items]
    able = [all(each.scored for each in item) and (not longest or sizes[i] <= longest) for i, item in enumerate(items)]
    found = [i for i in range(len(items)) if able[i]]
    return sorted(found, key=lambda i: len(join(items[i]).ids) if shares else sizes[i])


def join(item: Item) -> Joined:
    """Return the sentences of an item in one row."""
    sentences = [each.ids[: each.scored[-1]] for each in item]
    first = sentences[0]
    beginning = sum(1 for _ in itertools.takewhile(lambda tokens: len({*tokens}) == 1, zip(*sentences, strict=False)))
    starts, ids = [beginning], list(first)
    for each in sentences[1:]:
        starts.append(len(ids))
        ids += each[beginning:]
    return Joined(item, ids, starts)


def scores(scorer: Scorer, items: Sequence[Item], order: list[int], method: Method) -> Iterator[np.ndarray]:
    """Yield the scores of items, in the order `order`, as they are computed: [items, most sentences + 1] float64.

    A row has the score of each sentence, nan for sentences that other items have, and the standard error (over samples)
    of the difference between the first sentence and the mean of the others. The error is 0 except for `bound`. `order`:
    the numbers of the items to score, sorted by length.
    """
    most = max(map(len, items))
    if scorer.shares:
        for batch in batches((join(items[i]) for i in order), lambda row: len(row.ids), scorer.positions):
            yield _as_rows(scorer.joined(batch), most)
        return
    group: list[int] = []
    size = 0
    for number in order:
        group.append(number)
        size += sum(len(each.ids) * len(each.scored) for each in items[number])
        if size >= GROUP * scorer.positions:
            yield _of_group(scorer, [items[i] for i in group], group, method, most)
            group, size = [], 0
    if group:
        yield _of_group(scorer, [items[i] for i in group], group, method, most)


def _as_rows(found: list[np.ndarray], most: int) -> np.ndarray:
    """Return the scores of each item as rows of equal length, see `scores`, with an error of 0."""
    rows = np.full((len(found), most + 1), np.nan)
    rows[:, most] = 0
    for row, each in zip(rows, found, strict=True):
        row[: len(each)] = each
    return rows


def _of_group(scorer: Scorer, items: list[Item], numbers: list[int], method: Method, most: int) -> np.ndarray:
    sentences = [each for item in items for each in item]
    of_item = [number for number, item in zip(numbers, items, strict=True) for _ in item]
    ends = np.cumsum([len(item) for item in items])[:-1]
    rows = [row for i, each in enumerate(sentences) for row in method.rows(of_item[i], i, each)]
    owners, found = scorer.tokens(rows, sentences)
    values = np.bincount(owners, found * np.array([row.weight for row in rows])[owners], len(rows))
    sums = np.bincount([row.sentence for row in rows], values, len(sentences))
    scored = _as_rows(np.split(sums, ends), most)
    if method.samples:
        samples = values.reshape(-1, method.samples) * method.samples
        differences = np.array([each[0] - each[1:].mean(0) for each in np.split(samples, ends)])
        scored[:, most] = differences.std(1, ddof=1) / np.sqrt(method.samples)
    return scored


def token_scores(scorer: Scorer, sentences: list[Sentence], method: Method) -> list[np.ndarray]:
    """Return ln p of the scored tokens of each sentence, by a method without samples: arrays [tokens] float64."""
    rows = [row for i, each in enumerate(sentences) if each.scored for row in method.rows(0, i, each)]
    owners, found = scorer.tokens(rows, sentences)
    in_order_of_text = found[np.argsort(owners, kind="stable")]
    return np.split(in_order_of_text, np.cumsum([len(each.scored) for each in sentences])[:-1])
