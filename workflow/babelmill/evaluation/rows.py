"""Make the rows that a model reads to score texts, and the tokens that each row asks for: a function per method.

* `causal`: each token is predicted from those before it; the first is `<s>` (or the model's token in its place).
* `masked` hides tokens and predicts them from all others: each alone, which gives the pseudo-log-likelihood (Salazar et
  al., 2020, arXiv:1910.14659), or every n-th at once, in n rows.
* `bound` estimates the evidence lower bound of a masked diffusion model (LLaDA, arXiv:2502.09992, equations 5 and 6):
  each sample hides between one token and all tokens.

Special tokens and prompts are context and are never scored. Scores are not divided by a length.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from babelmill.core.files import UserError

AT_ONCE = 1024  # texts that are encoded at once
SAMPLES = 128  # rows of a sentence for `bound`


class Text(NamedTuple):
    """A text as a model reads it."""

    ids: list[int]  # the token ids, with special tokens
    scored: list[int]  # the positions of the tokens to score


class Row(NamedTuple):
    """A row of tokens that a model reads, and the tokens that it is asked for."""

    ids: list[int]
    places: list[int]  # the positions of these tokens; for a causal model, the last may be the one after `ids`
    targets: list[int]  # their ids
    weight: float = 1.0  # of each ln p in the sum of the row


Word = list[Row]  # what a model predicts of a word: a row for each of its pieces


# The rows of a text, by method.


def causal(text: Text) -> list[Row]:
    """Return the text as one row, without the last token, from which nothing is predicted."""
    return [Row(text.ids[: text.scored[-1]], text.scored, [text.ids[at] for at in text.scored])]


def masked(text: Text, mask: int, passes: int | None = None) -> list[Row]:
    """Return a row per pass, in which every `passes`-th token to score is hidden; by default, each is hidden alone."""
    passes = passes or len(text.scored)
    return [_hidden(text, text.scored[turn::passes], mask, 1.0) for turn in range(min(passes, len(text.scored)))]


def bound(text: Text, mask: int, samples: int, *seed: int) -> list[Row]:
    """Return `samples` rows, whose sum is an unbiased estimate of the evidence lower bound.

    Sample j of n hides k = 1 + floor(t e) random tokens of e, where t = (j + u) / n, with one random u for all samples
    (stratified). Each hidden token has the weight e / (k n). Texts of equal length and seed hide the same places.
    """
    tokens, rows = len(text.scored), []
    times = (np.arange(samples) + np.random.default_rng(seed).random()) / samples
    for sample, time in enumerate(times):
        count = min(tokens, 1 + int(time * tokens))
        chosen = np.argsort(np.random.default_rng((*seed, sample)).random(tokens), kind="stable")[:count]
        places = [text.scored[place] for place in sorted(chosen)]
        rows.append(_hidden(text, places, mask, tokens / count / samples))
    return rows


def _hidden(text: Text, places: list[int], mask: int, weight: float) -> Row:
    ids = list(text.ids)
    for place in places:
        ids[place] = mask
    return Row(ids, places, [text.ids[place] for place in places], weight)


def of_method(
    name: str, text: Text, mask: int | None, *seed: int, samples: int = SAMPLES, passes: int | None = None
) -> list[Row]:
    """Return the rows in which a model predicts the tokens of a text by a method, or as a metric measures it.

    `mask`: the id of the token that hides others; None for `causal`. For the others, see the functions above.
    """
    if name == "causal":
        return causal(text)
    assert mask is not None and name in ("masked", "bound", "diffusion")
    return masked(text, mask, passes) if name == "masked" else bound(text, mask, samples, *seed)


# Texts as tokens.


def encode(tokenizer: Any, texts: list[str], causal: bool, prompts: Sequence[int] | None = None) -> list[Text]:
    """Return texts as token ids, with the special tokens that the tokenizer adds.

    With `causal`, a token is put before the first one if the tokenizer puts none, and special tokens at the end are
    dropped, since no score needs them. `prompts`: the number of characters of the prompt that each text begins with:
    only tokens that end after the prompt are scored. A UserError says that the tokenizer has no token that could stand
    before the first one, or cannot tell where tokens end.
    """
    if prompts is not None:
        require_offsets(tokenizer)
    found = list[Text]()
    for start in range(0, len(texts), AT_ONCE):  # the offsets of many texts at once would take much memory
        part = slice(start, start + AT_ONCE)
        encoded = tokenizer(texts[part], return_special_tokens_mask=True, return_offsets_mapping=prompts is not None)
        for i, (ids, special) in enumerate(zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True)):
            scored = [place for place, mark in enumerate(special) if not mark]
            if prompts is not None:
                scored = [at for at in scored if encoded["offset_mapping"][i][at][1] > prompts[start + i]]
            found.append(_from_the_first(tokenizer, ids, scored) if causal else Text(ids, scored))
    return found


def _from_the_first(tokenizer: Any, ids: list[int], scored: list[int]) -> Text:
    """Return a text for a causal model: without what follows the last token to score, and with a token before it."""
    ids = ids[: scored[-1] + 1] if scored else ids
    if not scored or scored[0]:
        return Text(ids, scored)
    first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if first is None:
        raise UserError(
            f"{tokenizer.name_or_path}: its tokenizer has no token that a sentence can begin with"
            " (bos_token or eos_token), so the first token of a sentence has no score"
        )
    return Text([first, *ids], [place + 1 for place in scored])


def require_offsets(tokenizer: Any) -> None:
    """Raise a UserError if a tokenizer is a slow one of transformers."""
    if not tokenizer.is_fast:
        raise UserError(
            f"{tokenizer.name_or_path}: its tokenizer is a slow one, which does not tell which characters a token"
            " covers: completions, words and ages of acquisition cannot be scored"
        )
