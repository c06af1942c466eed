"""Compare when a model learns words with when children do (BabyLM's age of acquisition).

A suite of this kind has words with contexts from speech to children, and the share of children who say each word at 16
to 30 months of age. Each snapshot of a training run has a surprisal of each word in each context: minus ln p of the
word's tokens after the context and a space. The method is that of Chang and Bergen (2022, doi:10.1162/tacl_a_00444):

* A curve `a / (1 + exp(-b (x - c))) + d` is fitted to the shares of children. The age at which it is 1/2 is the word's.
* Such a curve is fitted to minus the surprisals, over log10 of the words that the model had read. The model's age is
  where the curve is half way from chance to the least surprisal.
* The score is the correlation of the two (Pearson's r) over the words that have both. It is 0 with fewer than three.

This is the rule of the challenge's code since July 2026: the curve is fitted within bounds to the means of the
contexts; chance is ln of the vocabulary's size per token of the word; and a correlation with p > 0.1 counts 0. A
snapshot counts as the number of words in its name, such as 1 million for `chck_1M`.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.optimize import curve_fit
from scipy.stats import pearsonr

from babelmill.evaluation.rows import Row, Word, require_offsets
from babelmill.evaluation.statistics import Z
from babelmill.suites.items import MONTHS

HALF = 0.5
FEWEST = 3  # words for a correlation, and points for a curve
LARGEST_P = 0.1


# Surprisal.


def predictions(tokenizer: Any, words: Sequence[tuple[str, str]], mask: int | None) -> list[Word]:
    """Return what a model predicts for each (context, word): the word's tokens, by where they end in the text.

    `mask`: the id of the mask token; None for a causal model, which does not predict the first token of a row. A
    UserError says that the tokenizer does not know where its tokens are.
    """
    require_offsets(tokenizer)
    texts = [(f"{context.strip()} ", word.strip()) for context, word in words]
    read = tokenizer([context + word for context, word in texts], return_offsets_mapping=True)
    found = []
    for (context, _), ids, places in zip(texts, read["input_ids"], read["offset_mapping"], strict=True):
        of_word = [place for place, (_, end) in enumerate(places) if end > len(context)]
        if mask is None:
            found.append([Row(ids[:place], [place], [ids[place]]) for place in of_word if place])
        else:
            hidden = [[*ids[:place], mask, *ids[place + 1 :]] for place in of_word]
            found.append([Row(row, [at], [ids[at]]) for row, at in zip(hidden, of_word, strict=True)])
    return found


def tokens_in_a_sentence(tokenizer: Any, words: Sequence[str]) -> dict[str, int]:
    """Return the number of tokens of each word after "The", at least 1."""
    first, *rest = tokenizer(["The", *(f"The {word}" for word in words)], add_special_tokens=False)["input_ids"]
    return {word: max(1, len(ids) - len(first)) for word, ids in zip(words, rest, strict=True)}


# Curves.


def sigmoid(x: np.ndarray, a: float, b: float, c: float, d: float) -> np.ndarray:
    """Return a / (1 + exp(-b (x - c))) + d."""
    return a / (1 + np.exp(-b * (x - c))) + d


def reaches(
    x: np.ndarray, y: np.ndarray, height: float, start: list[float], least: float, bounds: Any, tries: int
) -> float | None:
    """Return where the curve fitted to the points (x, y) has a height; None if there is no fit, or it never has it.

    `start`, `bounds`: a, b, c and d where the fit begins, and the least and most of them. `least`: a and b of a rising
    curve are greater than this. `tries`: how often the curve is computed at most.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a curve that cannot be fitted, or whose errors cannot, is no fault
        try:
            a, b, c, d = curve_fit(sigmoid, x, y, p0=start, bounds=bounds, maxfev=tries)[0]
        except (RuntimeError, ValueError, TypeError):  # no convergence; a point is infinite; fewer points than numbers
            return None
        if a <= least or b <= least or not d < height < a + d:
            return None
        return float(c - np.log(a / (height - d) - 1) / b)


def age_of_children(shares: Sequence[float] | None) -> float | None:
    """Return the age in months at which half of the children say a word; None if it is unknown or not in MONTHS.

    `shares`: the share of children who say it at each of MONTHS, nan where it is unknown.
    """
    months, y = np.array(MONTHS, float), np.array([] if shares is None else shares, float)
    if len(y) != len(months) or (there := ~np.isnan(y)).sum() < FEWEST:
        return None
    x, y = months[there], y[there]
    bounds = ([0, 0, x[0], -0.5], [2.0, 1.0, x[-1], 0.5])
    age = reaches(x, y, HALF, [1.0, 0.1, x.mean(), 0.0], 0.0, bounds, 1000)
    return None if age is None or not x[0] <= age <= x[-1] else age


def age_of_model(words: np.ndarray, surprisal: np.ndarray, chance: float) -> float | None:
    """Return log10 of the number of words after which a model knows a word; None if that is not known.

    `words`: how many words the model had read at each point. `surprisal`: of the word, at each point; points with nan
    are left out. `chance`: the surprisal of a model that knows nothing.
    """
    there = ~np.isnan(surprisal)
    if len(surprisal) < FEWEST or not there.any():
        return None
    words, known = words[there], -surprisal[there]
    x, low, high = np.log10(words + 1), known.min(), known.max()
    size, height = high - low, -(chance - HALF * (chance + high))
    bounds = ([0, 0, x.min() - 1, low - 2 * size - 1], [10 * size + 1, 100.0, x.max() + 1, high + 1])
    age = reaches(x, known, height, [size, 1.0, x.mean(), low], 1e-6, bounds, 20_000)
    if age is None or age > 300 or not words[0] <= 10**age - 1 <= words[-1]:  # 10 ** 309 overflows
        return None
    return age


# Scores.


def summary(scored: pa.Table, method: str) -> dict[str, Any]:
    """Return the entry of a method in scores.json, with the keys that a suite of pairs has, and some more.

    The table has all contexts for each snapshot in turn: `target_word`, `children` (see `age_of_children`), `tokens` of
    the word in a sentence, `million_words` of the snapshot, the `vocabulary`, and the surprisals by the method. The
    entry has `correlation`, {"r", "p", "n"} before the rule replaces r by 0, and `words`, the ages of each word: {word,
    `children`: months, `model`: log10 of words}.
    """
    size = len(scored) // len(set(scored["snapshot"].to_pylist()))
    points = 1e6 * scored["million_words"].to_numpy()[::size]
    surprisal = scored[method].to_numpy().astype(float).reshape(-1, size)
    places: dict[str, list[int]] = {}
    for number, word in enumerate(scored["target_word"][:size].to_pylist()):
        places.setdefault(word, []).append(number)
    ages: list[dict[str, Any]] = []
    for word, of_word in places.items():
        shares, tokens, entries = (scored[key][of_word[0]].as_py() for key in ("children", "tokens", "vocabulary"))
        if (of_children := age_of_children(shares)) is not None:
            of_model = age_of_model(points, surprisal[:, of_word].mean(1), tokens * math.log(entries))
            ages.append({"word": word, "children": of_children, "model": of_model})
    found = correlation(ages)
    score = share(found)
    whole = {"pairs": score, "paradigms": score, "by_phenomenon": {"all": score}, "by_paradigm": {"all": score}}
    return whole | {"correlation": found, "words": ages}


def correlation(ages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return Pearson's r of the model's ages and the children's, its p, and the number of words.

    r and p are None with fewer than FEWEST words, or if all words have the same age.
    """
    both = [(each["model"], each["children"]) for each in ages if each["model"] is not None]
    if len(both) < FEWEST or any(len({*column}) == 1 for column in zip(*both, strict=True)):
        return {"r": None, "p": None, "n": len(both)}
    model, children = np.array(both).T
    found: Any = pearsonr(model, children)
    return {"r": float(found.statistic), "p": float(found.pvalue), "n": len(both)}


def share(found: dict[str, Any]) -> dict[str, Any]:
    """Return the score of a correlation: {"score", "n", "interval"}. The interval is that of r (Fisher)."""
    r, count = found["r"], found["n"]
    interval = [-1.0, 1.0]
    if r is not None and count > FEWEST and abs(r) < 1:
        half = Z / math.sqrt(count - 3)
        interval = [math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)]
    return {"score": r if r is not None and found["p"] <= LARGEST_P else 0.0, "n": count, "interval": interval}
