"""Say how much a model's surprisal explains of the times that people take to read a word (BabyLM's reading task).

A suite of this kind is the challenge's `reading_data.csv` (data of de Varda, Marelli and Amenta, 2023), with a row per
word: the text before it, the times of readers (eye tracking and self-paced reading), and what else predicts these
times. The surprisal of the word, and of the word before it, is computed by the challenge's rule, which is peculiar:

* The word is tokenized alone, without a space before it. So the model is asked for "the", not for " the", unless its
  tokenizer itself begins a text with a space (`tokenizer.prefix_space`).
* The first piece of the word is predicted after the context as the tokenizer returns it, with special tokens. Each
  later piece is predicted after the context and the text of the pieces before it; that text is tokenized again, and so
  is the text of the piece, of which only the first token counts.
* A model that predicts hidden tokens reads three masks after the context, and predicts the first of them.

The score is the share of the variance that remains after a regression on the other predictors, and that surprisal
explains: (R² - R²base) / (1 - R²base), the square of its partial correlation. It is computed for each of four measures
of eye tracking, whose mean is the score `rt`, and for self-paced reading (`spr`), whose regression also has the word
before. The suite's score is the mean of the two.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.evaluation.rows import Row, Word
from babelmill.suites.items import EYE_TRACKING, NUMBERS, OF_WORD_BEFORE, PREDICTORS, SELF_PACED, TEXTS

ALL = "all"
MASKS = 3
DRAWS = 1000  # resamples of the bootstrap


# Surprisal.


def words_of(table: pa.Table) -> tuple[list[tuple[str, str]], np.ndarray, np.ndarray]:
    """Return the words to score, each once, as (context, word), and where they are in the table.

    That is the number of each row's word, and the number of the word before it, or -1 if there is none.
    """
    numbers: dict[tuple[str, str], int] = {}
    item, word, before, word_before = (table[name].to_pylist() for name in TEXTS)
    own = [numbers.setdefault(each, len(numbers)) for each in zip(item, word, strict=True)]
    previous = [
        -1 if context is None or text is None else numbers.setdefault((context, text), len(numbers))
        for context, text in zip(before, word_before, strict=True)
    ]
    return list(numbers), np.array(own), np.array(previous)


def predictions(tokenizer: Any, words: Sequence[tuple[str, str]], mask: int | None) -> list[Word]:
    """Return what a model predicts for each (context, word), by the challenge's rule.

    `mask`: the id of the mask token; None for a causal model. A UserError says that a word, or a piece of it, has no
    token.
    """
    alone = _ids(tokenizer, [word for _, word in words], special=False)
    pieces = [[tokenizer.decode([token]) for token in ids] for ids in alone]
    later = [*dict.fromkeys(piece for each in pieces for piece in each[1:])]
    again = dict(zip(later, _ids(tokenizer, later, special=False), strict=True))
    contexts, owners, targets = [], [], []
    for number, ((context, word), ids, texts) in enumerate(zip(words, alone, pieces, strict=True)):
        found = [ids[:1], *(again[text] for text in texts[1:])]
        if not all(found):
            raise UserError(
                f"the tokenizer has no token for the word {escape.line(word)!r}, or for one of its pieces alone: by the"
                " challenge's rule, the word has no surprisal"
            )
        contexts += [context + "".join(texts[:place]) for place in range(len(texts))]
        owners += [number] * len(texts)
        targets += [of_piece[0] for of_piece in found]
    if mask is not None:
        contexts = [context + MASKS * tokenizer.mask_token for context in contexts]
    asked: list[Word] = [[] for _ in words]
    for number, ids, target in zip(owners, _ids(tokenizer, contexts, special=True), targets, strict=True):
        place = len(ids) if mask is None else len(ids) - MASKS - (ids[-1] != mask)
        asked[number].append(Row(ids, [place], [target]))
    return asked


def _ids(tokenizer: Any, texts: list[str], special: bool) -> list[list[int]]:
    return tokenizer(texts, add_special_tokens=special)["input_ids"] if texts else []


# Regressions.


def draws_of(table: pa.Table, surprisal: np.ndarray, before: np.ndarray) -> dict[str, np.ndarray]:
    """Return the partial R² of each measure and of their means: {name: [1 + DRAWS], of all rows, then of resamples}.

    The table has the columns NUMBERS. `surprisal` [rows] is that of each row's word, and `before` [rows] that of the
    word before it; nan if there is none. The names are those of EYE_TRACKING, `rt` (their mean), `spr` (self-paced
    reading), and ALL (the mean of these two). Any two models have the same resamples of the same rows. A UserError says
    that there are too few rows for a regression.
    """
    columns = {name: table[name].to_numpy(zero_copy_only=False).astype(float) for name in NUMBERS}
    of_word = [columns[name] for name in PREDICTORS]
    drawn = np.random.default_rng(0).integers(len(table), size=(DRAWS, len(table)))
    rows = [np.arange(len(table)), *drawn]
    found = {name: _partial(name, columns[name], surprisal, of_word, rows) for name in EYE_TRACKING}
    found["rt"] = np.mean([*found.values()], axis=0)
    others = [*of_word, columns[OF_WORD_BEFORE], before]
    found["spr"] = _partial(SELF_PACED, columns[SELF_PACED], surprisal, others, rows)
    return found | {ALL: (found["rt"] + found["spr"]) / 2}


def _partial(
    name: str, times: np.ndarray, surprisal: np.ndarray, others: list[np.ndarray], rows: list[np.ndarray]
) -> np.ndarray:
    """Return the partial R² of surprisal for times beyond other variables and their products, for each list of rows.

    Times and variables are [rows]; rows where one is missing are left out.
    """
    # Products of variables minus their means span the same space as products of the variables, but rounding harms less.
    variables = [each - np.nanmean(each) for each in others]
    products = [one * other for i, one in enumerate(variables) for other in variables[:i]]
    base, both = np.column_stack([np.ones(len(times)), *variables, *products]), np.column_stack([surprisal, times])
    there = np.isfinite(np.column_stack([base, both]).sum(1))
    if there.sum() < base.shape[1] + 2:
        raise UserError(
            f"{name}: only {there.sum()} rows have all numbers, too few for a regression on {base.shape[1]} predictors"
        )
    complete = (each[there[each]] for each in rows)
    return np.array([_partial_r2(base[each], both[each]) for each in complete])


def _partial_r2(base: np.ndarray, both: np.ndarray) -> float:
    """Return the squared correlation of what is left of two columns after a regression on `base`; 0 if nothing is."""
    rest = both - base @ np.linalg.lstsq(base, both)[0]
    norms = np.linalg.norm(rest, axis=0)
    if (norms < 1e-9 * np.linalg.norm(both, axis=0)).any():
        return 0.0
    return float(rest[:, 0] @ rest[:, 1] / norms.prod()) ** 2


def interval(drawn: np.ndarray) -> list[float]:
    """Return the 95 % interval of a score, from its value and those of resamples: percentiles, moved by their bias.

    R² of a resample is on average larger than R² by about 1 / rows, which matters near 0.
    """
    bias = drawn[1:].mean() - drawn[0]
    return [float(end - bias) for end in np.quantile(drawn[1:], (0.025, 0.975))]


def summary(table: pa.Table, surprisal: np.ndarray, before: np.ndarray) -> dict[str, Any]:
    """Return the entry of a method in scores.json, with the keys that a suite of pairs has.

    The challenge's names for the two scores, `rt` and `spr`, are in `by_paradigm`. For the arguments, see `draws_of`.
    """
    found, count = draws_of(table, surprisal, before), int((~np.isnan(surprisal)).sum())
    of = {
        name: {"score": float(drawn[0]), "n": count, "interval": [max(0.0, end) for end in interval(drawn)]}
        for name, drawn in found.items()
    }
    return {
        "pairs": of[ALL],
        "paradigms": of[ALL],
        "by_phenomenon": {"eye tracking": of["rt"], "self-paced reading": of["spr"]},
        "by_paradigm": {name: of[name] for name in ("rt", "spr", *EYE_TRACKING)},
    }
