"""Compare when a model learns words with when children do (BabyLM's age of acquisition).

A suite of this kind has words with contexts from speech to children, and the share of children who say each word at 16
to 30 months of age. Each snapshot of a training run has a surprisal of each word in each context: minus ln p of the
word's tokens after the context and a space. The method is that of Chang and Bergen (2022, doi:10.1162/tacl_a_00444):

* A curve `a / (1 + exp(-b (x - c))) + d` is fitted to the shares of children. The age at which it is 1/2 is the word's.
* Such a curve is fitted to minus the surprisals, over log10 of the words that the model had read. The model's age is
  where the curve is half way from chance to the least surprisal.
* The score is the correlation of the two (Pearson's r) over the words that have both. It is 0 with fewer than three.

There are two rules, named by the state of the challenge's code. By the rule of July 2026, which counts now, the curve
is fitted to the means of the contexts, within bounds; chance is ln of the vocabulary's size per token of the word; and
a correlation with p > 0.1 counts 0. By the rule of April 2026, the curve is fitted to all contexts, without bounds;
chance is log2 of 300,000; and p does not matter.

By both rules, a snapshot counts as the number of words in its name, such as 1 million for `chck_1M`, as in the
challenge's code. `true words` is the correlation by the present rule if each age is replaced by the number of words
that were truly read then (interpolated between the snapshots).
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import curve_fit
from scipy.stats import pearsonr

from babelmill.core.files import UserError
from babelmill.evaluation.rows import Row, Word
from babelmill.suites.word_files import MONTHS

JULY, APRIL, TRUE_WORDS = "July 2026", "April 2026", "true words"
HALF = 0.5
CHANCE_OF_APRIL = math.log2(300_000)
FEWEST = 3  # words for a correlation, and points for a curve
LARGEST_P = 0.1
DRAWS = 2000  # resamples of a bootstrap
Z = 1.959963984540054  # the normal distribution's quantile for 95 % intervals


# Surprisal.


def predictions(tokenizer: Any, contexts: Sequence[str], words: Sequence[str], mask: int | None) -> list[Word]:
    """Return what a model predicts for each word after its context: its tokens, by where they end in the text.

    `mask`: the id of the mask token; None for a causal model, which does not predict the first token of a row. A
    UserError says that the tokenizer does not know where its tokens are.
    """
    if not tokenizer.is_fast:
        raise UserError(
            f"{tokenizer.name_or_path}: its tokenizer does not know where tokens are in a text (it is none of the fast"
            " ones), so words in contexts cannot be scored"
        )
    given = zip(contexts, words, strict=True)
    texts = [(f"{context.strip()} ", word.strip()) for context, word in given]
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
    x: np.ndarray, y: np.ndarray, height: float, start: Sequence[float], least: float, **fit: Any
) -> float | None:
    """Return where the curve fitted to the points (x, y) has a height; None if there is no fit, or it never has it.

    `start`: a, b, c and d where the fit begins. `least`: a and b of a rising curve are greater than this. `fit`: other
    arguments of `curve_fit`.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a curve that cannot be fitted, or whose errors cannot, is no fault
        try:
            a, b, c, d = curve_fit(sigmoid, x, y, p0=start, **fit)[0]
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
    age = reaches(x, y, HALF, [1.0, 0.1, x.mean(), 0.0], 0.0, bounds=bounds, maxfev=1000)
    return None if age is None or not x[0] <= age <= x[-1] else age


def age_of_model(words: np.ndarray, surprisal: np.ndarray, chance: float, bounded: bool) -> float | None:
    """Return log10 of the number of words after which a model knows a word; None if that is not known.

    `words`: how many words the model had read at each point. `surprisal`: of the word, at each point; points with nan
    are left out. `chance`: the surprisal of a model that knows nothing. `bounded`: whether the fit has bounds, as by
    the present rule.
    """
    there = ~np.isnan(surprisal)
    if len(surprisal) < FEWEST or not there.any():
        return None
    words, known = words[there], -surprisal[there]
    x, low, high = np.log10(words + 1), known.min(), known.max()
    start = [high - low, 1.0, x.mean(), low]
    height = -(chance - HALF * (chance + high))
    if bounded:
        size = high - low
        bounds = ([0, 0, x.min() - 1, low - 2 * size - 1], [10 * size + 1, 100.0, x.max() + 1, high + 1])
        age = reaches(x, known, height, start, 1e-6, bounds=bounds, maxfev=20_000)
    else:
        age = reaches(x, known, height, start, 0.0, maxfev=1000)
    if age is None or age > 300 or not words[0] <= 10**age - 1 <= words[-1]:  # 10 ** 309 overflows
        return None
    return age


# Scores.


class Snapshot(NamedTuple):
    """The surprisals of a snapshot."""

    words: float  # the number of words in its name
    true_words: float  # the number of words that were truly read
    surprisal: np.ndarray  # of each item, [items]; nan if an item could not be scored


def summary(
    words: Sequence[str],
    children: Mapping[str, Sequence[float] | None],
    snapshots: Sequence[Snapshot],
    tokens: Mapping[str, int],
    vocabulary: int,
) -> dict[str, Any]:
    """Return the entry of a method in scores.json, with the keys that a suite of pairs has, and some more.

    `children`: {word: the share of children who say it at each of MONTHS}; `tokens`: {word: the number of its tokens in
    a sentence}. Beside `pairs` (the headline) and `by_paradigm` (the scores by each rule), the entry has `rules`,
    {rule: {"r", "p", "n"}} before a rule replaces r by 0, and `words`, the ages of each word: {word, `children`:
    months, and for each rule log10 of the model's words}.
    """
    places: dict[str, list[int]] = {}
    for number, word in enumerate(words):
        places.setdefault(word, []).append(number)
    named, true = (np.array([each[i] for each in snapshots], float) for i in range(2))
    values = np.array([each.surprisal for each in snapshots])
    ages: list[dict[str, Any]] = []
    for word, of_word in places.items():
        if (of_children := age_of_children(children.get(word))) is None:
            continue
        every, chance = values[:, of_word], tokens[word] * math.log(vocabulary)
        july = age_of_model(named, every.mean(1), chance, bounded=True)
        april = age_of_model(np.repeat(named, len(of_word)), every.ravel(), CHANCE_OF_APRIL, bounded=False)
        truly = None if july is None else float(np.interp(july, np.log10(named + 1), np.log10(true + 1)))
        ages.append({"word": word, "children": of_children, JULY: july, APRIL: april, TRUE_WORDS: truly})
    rules = {rule: correlation(ages, rule) for rule in (JULY, APRIL, TRUE_WORDS)}
    scores = {rule: share(found, rule) for rule, found in rules.items()}
    return {
        "pairs": scores[JULY],
        "paradigms": scores[JULY],
        "by_phenomenon": {"all": scores[JULY]},
        "by_paradigm": scores,
        "rules": rules,
        "words": ages,
    }


def correlation(ages: list[dict[str, Any]], rule: str) -> dict[str, Any]:
    """Return Pearson's r of the model's ages by a rule and the children's, its p, and the number of words.

    r and p are None with fewer than FEWEST words, or if all words have the same age.
    """
    both = [(each[rule], each["children"]) for each in ages if each[rule] is not None]
    if len(both) < FEWEST or any(len({*column}) == 1 for column in zip(*both, strict=True)):
        return {"r": None, "p": None, "n": len(both)}
    model, children = np.array(both).T
    found: Any = pearsonr(model, children)
    return {"r": float(found.statistic), "p": float(found.pvalue), "n": len(both)}


def share(found: dict[str, Any], rule: str) -> dict[str, Any]:
    """Return the score of a correlation by a rule: {"score", "n", "interval"}. The interval is that of r (Fisher)."""
    r, count = found["r"], found["n"]
    counts = r is not None and (rule == APRIL or found["p"] <= LARGEST_P)
    interval = [-1.0, 1.0]
    if r is not None and count > FEWEST and abs(r) < 1:
        half = Z / math.sqrt(count - 3)
        interval = [math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)]
    return {"score": r if counts else 0.0, "n": count, "interval": interval}


def difference(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> tuple[int, float, list[float]] | None:
    """Return how much better the first model's ages agree with the children's, by the present rule.

    `first`, `second`: the entry `words` of each model in `summary`. Return the number of words that both models know,
    the difference of r over these words, and its 95 % interval (percentiles of a bootstrap over words); None with fewer
    than 10 such words.
    """
    ages = [{each["word"]: each for each in words if each[JULY] is not None} for words in (first, second)]
    common = [word for word in ages[0] if word in ages[1]]
    if len(common) < 10:
        return None
    children = np.array([ages[0][word]["children"] for word in common])
    models = [np.array([own[word][JULY] for word in common]) for own in ages]
    drawn = np.random.default_rng(0).integers(len(common), size=(DRAWS, len(common)))

    def better(rows: np.ndarray) -> np.ndarray:
        every = [column[rows] - column[rows].mean(-1, keepdims=True) for column in (children, *models)]
        norms = [np.sqrt((column**2).sum(-1)).clip(1e-300) for column in every]
        of_first, of_second = ((every[0] * every[i]).sum(-1) / norms[0] / norms[i] for i in (1, 2))
        return of_first - of_second

    low, high = np.quantile(better(drawn), (0.025, 0.975))
    return len(common), float(better(np.arange(len(common)))), [float(low), float(high)]
