"""Score sentences with an exported model, as its users load it: sums of ln p at temperature 1, in fp32.

* `causal`: each token is predicted from those before it; the first is `<s>` (or the model's token in its place).
  A GPT-BERT reads the common beginning of a pair once, see `fast_layers.py`.
* `masked` is the pseudo-log-likelihood (Salazar et al., 2020, arXiv:1910.14659): each token is hidden alone and
  predicted from all others.
* `bound` estimates the evidence lower bound of a masked diffusion model (LLaDA, arXiv:2502.09992): each sample hides
  between one token and all tokens. If both sentences of a pair have equally many tokens, the same ones are hidden in
  both.

Special tokens are context and are never scored. Scores are not divided by a length.
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
LOGITS = 1 << 31  # bytes that the logits of a batch take at most


class Sentence(NamedTuple):
    """A sentence as a model reads it.

    Attributes:
        ids: the token ids, with special tokens.
        scored: the positions of the tokens to score, which are text.
    """

    ids: list[int]
    scored: list[int]


class Row(NamedTuple):
    """A row of tokens that the model reads once.

    Attributes:
        sentence: the number of the sentence.
        ids: the token ids, some of them replaced by the mask.
        scored: the positions whose true token is scored.
        weight: the weight of each of these scores.
    """

    sentence: int
    ids: list[int]
    scored: list[int]
    weight: float


Pair = tuple[Sentence, Sentence]


class Both(NamedTuple):
    """Both sentences of a pair in one row, without the last token of each, since nothing is predicted from it.

    Attributes:
        pair: the sentences.
        ids: the token ids: the common beginning, the rest of the good sentence, the rest of the bad one.
        beginning: where the rest of the good sentence starts.
        end: where the rest of the bad sentence starts.
    """

    pair: Pair
    ids: list[int]
    beginning: int
    end: int


AnyRow = TypeVar("AnyRow")


@dataclass(frozen=True)
class Method:
    """A way to score sentences.

    Attributes:
        name: "causal", "masked" or "bound".
        mask: the id of the token that hides others; None for `causal`, which hides none.
    """

    name: str
    mask: int | None = None

    @property
    def causal(self) -> bool:
        """Return whether the model's scores for a token stand at the position before it."""
        return self.name == "causal"

    @property
    def samples(self) -> int:
        """Return the number of rows per sentence, if the score is their mean; 0 if the score is their sum."""
        return SAMPLES if self.name == "bound" else 0

    def rows(self, pair: int, number: int, sentence: Sentence) -> Iterator[Row]:
        """Yield the rows of a sentence; `pair` and `number` are those of its pair and of the sentence."""
        if self.causal:  # without the last token, from which nothing is predicted
            yield Row(number, sentence.ids[: sentence.scored[-1]], sentence.scored, 1.0)
        elif self.name == "masked":
            for place in sentence.scored:
                yield Row(number, self._hidden(sentence, [place]), [place], 1.0)
        else:
            yield from self._samples(pair, number, sentence)

    def _hidden(self, sentence: Sentence, places: Iterable[int]) -> list[int]:
        assert self.mask is not None
        ids = list(sentence.ids)
        for place in places:
            ids[place] = self.mask
        return ids

    def _samples(self, pair: int, number: int, sentence: Sentence) -> Iterator[Row]:
        """Yield SAMPLES rows of a sentence.

        Sample j of n hides k = 1 + floor(t e) of e tokens, where t = (j + u) / n, with one random u for all samples.
        Each hidden token has the weight e / (k n). If both sentences of a pair have equally many tokens, the same ones
        are hidden.
        """
        tokens = len(sentence.scored)
        times = (np.arange(SAMPLES) + np.random.default_rng(pair).random()) / SAMPLES
        for sample, time in enumerate(times):
            count = min(tokens, 1 + int(time * tokens))
            chosen = np.argsort(np.random.default_rng((pair, sample)).random(tokens), kind="stable")[:count]
            hidden = [sentence.scored[place] for place in sorted(chosen)]
            yield Row(number, self._hidden(sentence, hidden), hidden, tokens / count / SAMPLES)


def encode(tokenizer: Any, texts: list[str], causal: bool) -> list[Sentence]:
    """Return sentences as token ids, with the special tokens that the tokenizer adds.

    With `causal`, a token is put before the first one if the tokenizer puts none, and special tokens at the end are
    dropped, since no score needs them.

    Raises:
        UserError: the tokenizer has no token that could stand before the first one.
    """
    found = tokenizer(texts, return_special_tokens_mask=True, add_special_tokens=True)
    sentences = []
    for ids, special in zip(found["input_ids"], found["special_tokens_mask"], strict=True):
        scored = [place for place, mark in enumerate(special) if not mark]
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
    """Scores rows with a model.

    Args:
        model: takes `input_ids` and `attention_mask`, and returns `logits` [rows, length, vocabulary].
        tokenizer: the model's tokenizer.
        causal: whether the model's scores for a token stand at the position before it.

    Attributes:
        positions: how many positions a batch has at most.
        shares: whether the model reads both sentences of a pair in one row.
    """

    def __init__(self, model: Any, tokenizer: Any, causal: bool):
        self._model, self._tokenizer, self._pad = model, tokenizer, tokenizer.pad_token_id or 0
        target = getattr(model.config, "masked_target", None)  # a GPT-BERT has one
        self._attention = None if target is None else FreePositions(model)
        self._before = int(causal or target == "next")
        self.shares = causal and target is not None
        self._device = next(model.parameters()).device
        if target is not None and self._device.type == "cpu":
            pack_linear_layers(model)
        entries = model.get_output_embeddings().weight.shape[0] if model.get_output_embeddings() else 1 << 15
        self.positions = min(POSITIONS[self._device.type], LOGITS // (4 * entries))

    @torch.inference_mode()
    def tokens(self, rows: list[Row], truths: list[Sentence]) -> tuple[np.ndarray, np.ndarray]:
        """Return the row number and ln p of each scored token: [tokens] int64 and [tokens] float64.

        Rows of similar length are read together. The tokens of a row are in order.

        Raises:
            UserError: a score is not a number.
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
    def pairs(self, rows: list[Both]) -> np.ndarray:
        """Return ln p of both sentences of each pair: [pairs, 2] float64. The rows are one batch."""
        assert self._attention is not None
        ids, there = self._padded([row.ids for row in rows])
        beginning, end = torch.tensor([(row.beginning, row.end) for row in rows]).T[..., None]
        column = torch.arange(ids.size(1))
        bad = column >= end
        hidden = bad[:, :, None] & ((column >= beginning) & ~bad)[:, None]  # the bad rest does not see the good rest
        scored = []
        for i, row in enumerate(rows):
            for j, each in enumerate(row.pair):
                later = j * (row.end - row.beginning)
                scored += [(i, 2 * i + j, p - 1 + later * (p > row.beginning), each.ids[p]) for p in each.scored]
        lines, owners, places, targets = torch.tensor(scored).T
        self._attention.positions = (column - bad * (end - beginning)).to(self._device)
        found = self._ln_p(ids, there[:, :, None] & there[:, None] & ~hidden, lines, places, targets)
        self._attention.positions = None
        self._check(found, [rows[i].pair[owner % 2] for i, owner, *_ in scored])
        return np.bincount(owners.numpy(), found, 2 * len(rows)).reshape(-1, 2)

    @torch.inference_mode()
    def at(self, rows: Sequence[Sequence[int]], asked: np.ndarray) -> np.ndarray:
        """Return ln p of tokens at places of rows: [tokens] float64. Rows of similar length are read together.

        Args:
            rows: token ids.
            asked: [tokens, 3] int64, sorted by row: the number of each token's row, its place there, and its id. For a
                causal model, a place may be the one after a row's last token.

        Raises:
            UserError: a score is not a number.
        """
        order = np.argsort([len(row) for row in rows], kind="stable")
        starts = np.searchsorted(asked[:, 0], np.arange(len(rows) + 1))
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
        """Return ln p of targets, from the model's logits at the given places: [targets] float64.

        The head of a GPT-BERT is computed only at these places, and only once at a place that scores several targets.

        Args:
            ids: [rows, length] int64.
            seen: the attention mask.
            lines, places: [targets] the row and the position of the logits of each target.
            targets: [targets] token ids.
        """
        where, which = torch.stack([lines, places]).unique(dim=1, return_inverse=True)
        where, which, targets = (each.to(self._device) for each in (where, which, targets))
        given = ids.to(self._device), seen.to(self._device)
        if self._attention is None:
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


def in_order(pairs: list[Pair], longest: int | None, shares: bool) -> list[int]:
    """Return the numbers of the pairs that can be scored, sorted by length.

    Both sentences of such a pair have tokens to score, and at most `longest` tokens each (None: any number).

    `shares`: whether both sentences are read in one row.
    """
    sizes = [max(len(each.ids) for each in pair) for pair in pairs]
    able = [all(each.scored for each in pair) and (not longest or sizes[i] <= longest) for i, pair in enumerate(pairs)]
    found = [i for i in range(len(pairs)) if able[i]]
    return sorted(found, key=lambda i: len(both(pairs[i]).ids) if shares else sizes[i])


def both(pair: Pair) -> Both:
    """Return both sentences of a pair in one row."""
    good, bad = (each.ids[: each.scored[-1]] for each in pair)
    same = itertools.takewhile(lambda tokens: tokens[0] == tokens[1], zip(good, bad, strict=False))
    beginning = sum(1 for _ in same)
    return Both(pair, good + bad[beginning:], beginning, len(good))


def scores(scorer: Scorer, pairs: list[Pair], order: list[int], method: Method) -> Iterator[np.ndarray]:
    """Yield the scores of pairs, in the order `order`, as they are computed: [pairs, 3] float64.

    The three numbers are the score of the good sentence, the score of the bad one, and the standard error of their
    difference over samples, which is 0 except for `bound`.

    Args:
        scorer: scores rows.
        pairs: the pairs of sentences.
        order: the numbers of the pairs to score, sorted by length.
        method: how to score them.
    """
    if scorer.shares:
        for batch in batches((both(pairs[i]) for i in order), lambda row: len(row.ids), scorer.positions):
            yield np.pad(scorer.pairs(batch), ((0, 0), (0, 1)))
        return
    group: list[int] = []
    size = 0
    for number in order:
        group.append(number)
        size += sum(len(each.ids) * len(each.scored) for each in pairs[number])
        if size >= GROUP * scorer.positions:
            yield _of_group(scorer, [pairs[i] for i in group], group, method)
            group, size = [], 0
    if group:
        yield _of_group(scorer, [pairs[i] for i in group], group, method)


def _of_group(scorer: Scorer, pairs: list[Pair], numbers: list[int], method: Method) -> np.ndarray:
    sentences = [each for pair in pairs for each in pair]
    rows = [row for i, each in enumerate(sentences) for row in method.rows(numbers[i // 2], i, each)]
    owners, found = scorer.tokens(rows, sentences)
    values = np.bincount(owners, found * np.array([row.weight for row in rows])[owners], len(rows))
    sums = np.bincount([row.sentence for row in rows], values, len(sentences)).reshape(-1, 2)
    errors = np.zeros(len(pairs))
    if method.samples:
        samples = values.reshape(-1, 2, method.samples) * method.samples
        errors = (samples[:, 0] - samples[:, 1]).std(1, ddof=1) / np.sqrt(method.samples)
    return np.column_stack((sums, errors))


def token_scores(scorer: Scorer, sentences: list[Sentence], method: Method) -> list[np.ndarray]:
    """Return ln p of the scored tokens of each sentence, by a method without samples: arrays [tokens] float64."""
    rows = [row for i, each in enumerate(sentences) if each.scored for row in method.rows(0, i, each)]
    owners, found = scorer.tokens(rows, sentences)
    in_order_of_text = found[np.argsort(owners, kind="stable")]
    return np.split(in_order_of_text, np.cumsum([len(each.scored) for each in sentences])[:-1])
