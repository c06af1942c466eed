"""Scoring sentences with an exported model, as its users load it: sums of ln p at temperature 1, in fp32.

* `causal`: each token given those before it, from `<s>` on (a model without one: what it has in its place).
* `masked`: the pseudo-log-likelihood (Salazar et al., 2020, arXiv:1910.14659): each token hidden alone, given all
  others. With `within_word_l2r` (Kauf and Ivanova, 2023, arXiv:2305.10588) the later tokens of its word are hidden,
  too, so that a word of several tokens does not give itself away.
* `bound`: of a masked diffusion model, an estimate of the evidence lower bound (LLaDA, arXiv:2502.09992): samples hide
  1 to all tokens, and both sentences of a pair have the same positions hidden.

Special tokens are context and never scored. Nothing is divided by a length.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

GROUP = 4  # batches of pairs that are scored before the next are looked at
SAMPLES = 128  # hidden shares of a sentence, for `bound`
POSITIONS = {"cpu": 1024, "cuda": 65536}  # of a batch; a CPU's caches hold no more
LOGITS = 1 << 31  # bytes of the scores of a batch's tokens at most


class Sentence(NamedTuple):
    """A sentence as a model reads it.

    Attributes:
        ids: tokens, special ones included.
        scored: the positions of those that are text.
        words: the word that each of `scored` is of, by number.
    """

    ids: list[int]
    scored: list[int]
    words: list[int]


class Row(NamedTuple):
    """What a model is given once.

    Attributes:
        sentence: the number of the sentence.
        ids: tokens, some of them hidden.
        scored: positions whose true token is scored.
        weight: of each of these.
    """

    sentence: int
    ids: list[int]
    scored: list[int]
    weight: float


Pair = tuple[Sentence, Sentence]
RowsOf = Callable[[int, int, Sentence], Iterator[Row]]  # of a sentence, by the numbers of its pair and of itself


class Method(NamedTuple):
    """A way to score sentences.

    Attributes:
        rows_of: gives the rows of a sentence.
        causal: the model's scores of a token stand at the position before it.
        samples: rows of each sentence, whose mean is the score; 0: their sum is.
    """

    rows_of: RowsOf
    causal: bool = False
    samples: int = 0


def encode(tokenizer: Any, texts: list[str], causal: bool) -> list[Sentence]:
    """Return sentences as a tokenizer has them, with the special tokens that it adds.

    `causal`: there is a token before the first, and no special one after the last, which would be scored for nothing.
    """
    found = tokenizer(texts, return_special_tokens_mask=True, add_special_tokens=True)
    sentences = []
    for i, (ids, special) in enumerate(zip(found["input_ids"], found["special_tokens_mask"], strict=True)):
        scored = [place for place, mark in enumerate(special) if not mark]
        words = found.word_ids(i) if tokenizer.is_fast else list(range(len(ids)))
        if causal:
            ids = ids[: scored[-1] + 1] if scored else ids
            if scored and scored[0] == 0:
                first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
                ids, scored, words = [first, *ids], [place + 1 for place in scored], [None, *words]
        sentences.append(Sentence(ids, scored, [words[place] for place in scored]))
    return sentences


def method(name: str, mask: int | None, within_word_l2r: bool) -> Method:
    """Return the method of a name; `mask`: the id of the token that hides others."""
    if name == "causal":
        return Method(causal_rows, causal=True)
    assert mask is not None
    return Method(bound_rows(mask), samples=SAMPLES) if name == "bound" else Method(masked_rows(mask, within_word_l2r))


def causal_rows(_pair: int, number: int, sentence: Sentence) -> Iterator[Row]:
    """Yield the sentence as it is."""
    yield Row(number, sentence.ids, sentence.scored, 1.0)


def masked_rows(mask: int, within_word_l2r: bool) -> RowsOf:
    """Return a function that yields a row for each token of a sentence, in which it is hidden by the token `mask`."""

    def of(_pair: int, number: int, sentence: Sentence) -> Iterator[Row]:
        for i, place in enumerate(sentence.scored):
            ids = list(sentence.ids)
            ids[place] = mask
            if within_word_l2r:
                for later, word in zip(sentence.scored[i + 1 :], sentence.words[i + 1 :], strict=True):
                    if word == sentence.words[i]:
                        ids[later] = mask
            yield Row(number, ids, [place], 1.0)

    return of


def bound_rows(mask: int) -> RowsOf:
    """Return a function that yields SAMPLES rows of a sentence.

    Of e tokens, sample j of n hides k = 1 + floor(t e), t = (j + u) / n with one u for all, and each of these counts
    e / (k n) times. The sentences of a pair that have as many tokens have the same ones hidden.
    """

    def of(pair: int, number: int, sentence: Sentence) -> Iterator[Row]:
        tokens = len(sentence.scored)
        times = (np.arange(SAMPLES) + np.random.default_rng(pair).random()) / SAMPLES
        for sample, time in enumerate(times):
            count = min(tokens, 1 + int(time * tokens))
            chosen = np.argsort(np.random.default_rng((pair, sample)).random(tokens), kind="stable")[:count]
            hidden = [sentence.scored[place] for place in sorted(chosen)]
            ids = list(sentence.ids)
            for place in hidden:
                ids[place] = mask
            yield Row(number, ids, hidden, tokens / count / SAMPLES)

    return of


class Scorer:
    """Scores rows with a model.

    Args:
        model: that takes `input_ids` and `attention_mask`, and gives `logits` [rows, length, vocabulary].
        pad: the id of the padding token.
        causal: the scores of a token stand at the position before it.
    """

    def __init__(self, model: Any, pad: int, causal: bool):
        self._model, self._pad, self._causal = model, pad, causal
        self._device = next(model.parameters()).device
        entries = model.get_output_embeddings().weight.shape[0] if model.get_output_embeddings() else 1 << 15
        self.positions = min(POSITIONS[self._device.type], LOGITS // (4 * entries))

    def __call__(self, rows: list[Row], truths: list[Sentence]) -> np.ndarray:
        """Return the weighted sum of ln p of each row's scored tokens: [rows] float64. They fit into one batch."""
        lines, found = self.tokens(rows, truths)
        weights = np.array([row.weight for row in rows])
        return np.bincount(lines, found * weights[lines], len(rows))

    @torch.inference_mode()
    def tokens(self, rows: list[Row], truths: list[Sentence]) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of the row of each scored token, and its ln p: [tokens] int64 and float64."""
        longest = max(len(row.ids) for row in rows)
        ids = torch.full((len(rows), longest), self._pad)
        there = torch.zeros(len(rows), longest, dtype=torch.bool)
        for i, row in enumerate(rows):
            ids[i, : len(row.ids)] = torch.tensor(row.ids)
            there[i, : len(row.ids)] = True
        lines = torch.tensor([i for i, row in enumerate(rows) for _ in row.scored])
        places = torch.tensor([place for row in rows for place in row.scored])
        targets = torch.tensor([truths[row.sentence].ids[place] for row in rows for place in row.scored])
        given = ids.to(self._device), there.to(self._device)
        chosen = self._logits(*given, lines.to(self._device), places.to(self._device)).float()
        found = chosen.gather(1, targets.to(self._device)[:, None])[:, 0] - chosen.logsumexp(-1)
        return lines.numpy(), found.double().cpu().numpy()

    def _logits(
        self, ids: torch.Tensor, there: torch.Tensor, lines: torch.Tensor, places: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits at some places, [places, vocabulary]; the head of a GPT-BERT is asked there alone."""
        target = getattr(self._model.config, "masked_target", None)
        if target is None:
            return self._model(input_ids=ids, attention_mask=there).logits[lines, places - int(self._causal)]
        hidden = self._model.model(ids, there, return_dict=True).last_hidden_state
        return self._model._logits(hidden[lines, places - int(self._causal or target == "next")])


def batches(rows: list[Row], positions: int) -> Iterator[list[Row]]:
    """Yield rows, which are sorted by length, in batches of at most `positions`, padding included, or of one row."""
    batch: list[Row] = []
    longest = 0
    for row in rows:
        if batch and (len(batch) + 1) * max(longest, len(row.ids)) > positions:
            yield batch
            batch, longest = [], 0
        batch.append(row)
        longest = max(longest, len(row.ids))
    if batch:
        yield batch


def in_order(pairs: list[Pair], longest: int | None) -> list[int]:
    """Return the numbers of the pairs that can be scored, by length: both have tokens, and fit into `longest` ones."""
    sizes = [max(len(each.ids) for each in pair) for pair in pairs]
    able = [all(each.scored for each in pair) and (not longest or sizes[i] <= longest) for i, pair in enumerate(pairs)]
    return sorted((i for i in range(len(pairs)) if able[i]), key=lambda i: sizes[i])


def scores(scorer: Scorer, pairs: list[Pair], order: list[int], method: Method) -> Iterator[np.ndarray]:
    """Yield the scores of pairs, in their `order`, as they are done: [pairs, 3] float64.

    They are those of the good and of the bad sentence, and the standard error of their difference over samples: 0, but
    for `bound`.

    Args:
        scorer: of rows.
        pairs: of sentences.
        order: numbers of those to score, by length.
        method: how.
    """
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
    rows = [row for i, each in enumerate(sentences) for row in method.rows_of(numbers[i // 2], i, each)]
    owners = np.array([row.sentence for row in rows])
    lengths = np.array([len(row.ids) for row in rows])
    order = np.argsort(lengths, kind="stable")
    values = np.concatenate([scorer(batch, sentences) for batch in batches([rows[i] for i in order], scorer.positions)])
    values[order] = values.copy()
    sums = np.bincount(owners, values, len(sentences)).reshape(-1, 2)
    errors = np.zeros(len(pairs))
    if method.samples:
        samples = values.reshape(-1, 2, method.samples) * method.samples
        errors = (samples[:, 0] - samples[:, 1]).std(1, ddof=1) / np.sqrt(method.samples)
    return np.column_stack((sums, errors))


def token_scores(scorer: Scorer, sentences: list[Sentence], method: Method) -> list[np.ndarray]:
    """Return ln p of each scored token of sentences, by a method without samples: [tokens] float64 of each sentence."""
    rows = [row for i, each in enumerate(sentences) if each.scored for row in method.rows_of(0, i, each)]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].ids))
    found: dict[int, np.ndarray] = {}
    done = 0
    for batch in batches([rows[i] for i in order], scorer.positions):
        lines, values = scorer.tokens(batch, sentences)
        for i in range(len(batch)):
            found[order[done + i]] = values[lines == i]
        done += len(batch)
    each: list[list[np.ndarray]] = [[] for _ in sentences]
    for i, row in enumerate(rows):  # of a sentence, in the order of its tokens
        each[row.sentence].append(found[i])
    return [np.concatenate(parts) if parts else np.zeros(0) for parts in each]
