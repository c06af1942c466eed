"""Score the items of a suite and summarise their scores: one class for each kind of suite.

The stage `score` asks these classes, and so do the commands that read its tables. How items are read from files is in
`readers.py`.
"""

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.stats import rankdata

from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.evaluation.statistics import Z
from babelmill.evaluation.suite_scores import most_pairs
from babelmill.stages import ScoreStage
from babelmill.suites import acquisition, reading
from babelmill.suites.predictions import Word
from babelmill.suites.results import by, right, sample, summary
from babelmill.suites.texts import texts_of

if TYPE_CHECKING:  # it imports PyTorch, which the commands that read tables do without
    from babelmill.suites.scoring_model import ScoringModel

log = logging.getLogger("babelmill.score")


class Kind:
    """A kind of suite."""

    table = "items.parquet"  # the name of the file with the items, in the results of the stages `suite` and `score`
    of_run = False  # whether the score is one of all snapshots of a run together, so that a snapshot has none

    def methods(self, settings: ScoreStage) -> list[str]:
        """Return the methods by which the items are scored; the last is the headline's if several scored as many."""
        return settings.methods

    def asked(self, settings: ScoreStage) -> dict[str, Any]:
        """Return how many items are scored, as scores.json says it."""
        return settings.how_many

    def score(self, model: "ScoringModel", items: pa.Table, settings: ScoreStage, partial: Path) -> pa.Table:
        """Return the table of items with columns for the scores of each method; scores are kept in `partial`."""
        raise NotImplementedError

    def summary(self, scored: pa.Table, method: str, settings: ScoreStage) -> dict[str, Any]:
        """Return the entry of a method in scores.json (see `results.summary`), for the scored items of a language."""
        raise NotImplementedError

    def measure(self, scored: pa.Table) -> str | None:
        """Return what the suite's score is, if it is not a share of right answers."""
        return None


class OfSentences(Kind):
    """A kind whose items are sentences of which the likeliest one should be the right one."""

    item = "item"  # what an item is called, in messages

    def texts(self, items: pa.Table) -> list[list[str]]:
        """Return the texts that are compared, for each item."""
        raise NotImplementedError

    def prompts(self, items: pa.Table, settings: ScoreStage) -> list[list[int]] | None:
        """Return how many characters of each text are not scored; None if all are scored."""
        return None

    def with_scores(self, items: pa.Table, method: str, found: np.ndarray, settings: ScoreStage) -> pa.Table:
        """Return the table with the scores of a method, `found` as `ScoringModel.score` returns them."""
        raise NotImplementedError

    def points(self, scored: pa.Table, method: str) -> np.ndarray:
        """Return the points of each item: 1 if the right text is the likeliest, 0, or a share; nan without a score."""
        raise NotImplementedError

    def score(self, model: "ScoringModel", items: pa.Table, settings: ScoreStage, partial: Path) -> pa.Table:
        texts, prompts, mean = self.texts(items), self.prompts(items, settings), settings.score == "mean"
        scored, found = items, dict[str, np.ndarray]()
        for name in sorted(settings.methods, key="fused".__eq__):  # "fused" comes last: it is the sum of the other two
            if name == "fused":
                found[name] = found["causal"] + found["masked"]
            else:
                chosen = sample(items, texts, most_pairs(settings.how_many, name))
                found[name] = model.score(name, texts, chosen, partial, prompts, mean)
            scored = self.with_scores(scored, name, found[name], settings)
        return scored

    def summary(self, scored: pa.Table, method: str, settings: ScoreStage) -> dict[str, Any]:
        sampled = most_pairs(settings.how_many, method) is not None
        return summary(scored, self.points(scored, method), sampled, settings.headline == "phenomena")


class Pairs(OfSentences):
    """Minimal pairs. A method's columns are {method}_good and {method}_bad; `bound` has an error, too."""

    table = "pairs.parquet"
    item = "pair"

    def texts(self, items: pa.Table) -> list[list[str]]:
        return [list(pair) for pair in zip(items["good"].to_pylist(), items["bad"].to_pylist(), strict=True)]

    def with_scores(self, items: pa.Table, method: str, found: np.ndarray, settings: ScoreStage) -> pa.Table:
        for column, values in zip(("good", "bad", "error"), found.T, strict=True):
            if column != "error" or method == "bound":
                items = items.append_column(f"{method}_{column}", pa.array(values, from_pandas=True))
        return items

    def points(self, scored: pa.Table, method: str) -> np.ndarray:
        """Return the points of each pair: 1, 0, or 1/2 for equal scores; nan without a score."""
        good, bad = (scored[f"{method}_{key}"].to_numpy().astype(float) for key in ("good", "bad"))
        return np.where(np.isnan(good), np.nan, right(good, bad))


class Choices(OfSentences):
    """Prompts with options.

    A method's columns are {method}, the score of each option, and {method}_points: 1 if the right option has the best
    score, else 0. If other options have the same score, the point is shared, or goes to the first of them, or to none
    (`ties`). If the suite has a `ratio`, {method}_points is the probability of the first option, given that it is one
    of them.
    """

    def texts(self, items: pa.Table) -> list[list[str]]:
        return texts_of(items)

    def prompts(self, items: pa.Table, settings: ScoreStage) -> list[list[int]] | None:
        """Return the length of each prompt, unless the suite scores it, too."""
        if settings.scored == "whole":
            return None
        return [[len(prompt) for prompt in prompts] for prompts in items["prompts"].to_pylist()]

    def score(self, model: "ScoringModel", items: pa.Table, settings: ScoreStage, partial: Path) -> pa.Table:
        """Return the table of items with columns for the scores of each method; scores are kept in `partial`.

        The column `unknown` says which items have a token that the tokenizer does not know, if these count as wrong.
        """
        if settings.unknown == "wrong":
            unknown = [any(map(model.has_unknown, texts)) for texts in self.texts(items)]
            items = items.append_column("unknown", pa.array(unknown, pa.bool_()))
        return super().score(model, items, settings, partial)

    def with_scores(self, items: pa.Table, method: str, found: np.ndarray, settings: ScoreStage) -> pa.Table:
        points: Callable[[np.ndarray, int], float] = first_probability if has_ratio(items) else POINTS[settings.ties]
        scores, shares = [], []
        counts = (len(options) for options in items["options"].to_pylist())
        for row, count, answer in zip(found, counts, items["right"].to_pylist(), strict=True):
            there = not np.isnan(row[0])
            scores.append(row[:count].tolist() if there else None)
            shares.append(points(row[:count], answer) if there else None)
        if "unknown" in items.column_names:
            marked = zip(shares, items["unknown"].to_pylist(), strict=True)
            shares = [0.0 if share is not None and unknown else share for share, unknown in marked]
        items = items.append_column(method, pa.array(scores, pa.list_(pa.float64())))
        return items.append_column(f"{method}_points", pa.array(shares, pa.float64()))

    def points(self, scored: pa.Table, method: str) -> np.ndarray:
        return scored[f"{method}_points"].to_numpy().astype(float)

    def summary(self, scored: pa.Table, method: str, settings: ScoreStage) -> dict[str, Any]:
        if not has_ratio(scored):
            return super().summary(scored, method, settings)
        points, ratios = self.points(scored, method), scored["ratio"].to_numpy()
        there = ~np.isnan(points)
        points, ratios = points[there], ratios[there]
        phenomena, paradigms = (np.array(scored[key].to_pylist(), object)[there] for key in ("phenomenon", "paradigm"))
        everything = np.arange(len(points))

        def of(mine: np.ndarray) -> dict[str, Any]:
            return rank_correlation(points[mine], ratios[mine])

        return {
            "pairs": of(everything) if len(points) else None,
            "paradigms": of(everything) if len(points) else None,
            "by_phenomenon": {name: of(mine) for name, mine in sorted(by(phenomena, everything).items())},
            "by_paradigm": {name: of(mine) for name, mine in by(paradigms, everything).items()},
        }

    def measure(self, scored: pa.Table) -> str | None:
        """Return "Spearman" for a suite with a ratio."""
        return "Spearman" if has_ratio(scored) else None


class Scored(NamedTuple):
    """The scores of a model by a method: the rows of items.parquet, the method, and its entry in scores.json."""

    rows: pa.Table
    method: str
    entry: dict[str, Any]


class OfWords(Kind):
    """A kind whose items are words after contexts; all are scored, by the methods `causal` and `masked`."""

    def methods(self, settings: ScoreStage) -> list[str]:
        """Return the methods of the two that the model has. The last is the headline's: `causal`, if it has this one.

        A UserError says that the model has none of the two.
        """
        found = [name for name in ("masked", "causal") if name in settings.methods]
        if not found:
            raise UserError(
                f"{settings.suite}: words are scored by the methods causal and masked, and this model is scored by"
                f" {', '.join(settings.methods)}; leave the suite out of evaluation.suites"
            )
        return found

    def asked(self, settings: ScoreStage) -> dict[str, Any]:
        """Return nothing: all items are scored."""
        return {}

    def texts(self, scored: pa.Table) -> list[tuple[str, str]]:
        """Return the context and the word of each item."""
        raise NotImplementedError

    def difference(self, sides: list[Scored]) -> tuple[str, float, list[float]] | None:
        """Return what the difference of two models is taken over, the difference, and its 95 % interval.

        None if it cannot be told.
        """
        raise NotImplementedError


class ReadingTimes(OfWords):
    """Words with reading times. A method's columns are {method}, the word's surprisal, and that of the word before."""

    def score(self, model: "ScoringModel", items: pa.Table, settings: ScoreStage, partial: Path) -> pa.Table:
        words, own, before = reading.words_of(items)

        def predicted(mask: int | None) -> list[Word]:
            return reading.predictions(model.tokenizer, words, mask)

        for name in self.methods(settings):
            found = model.surprisals(name, words, predicted, partial)
            columns = {name: found[own], f"{name}_prev": np.where(before < 0, np.nan, found[before])}
            for column, values in columns.items():
                items = items.append_column(column, pa.array(values, pa.float64(), from_pandas=True))
        return items

    def surprisals(self, scored: pa.Table, method: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the surprisal of each word, and that of the word before it; nan if there is none."""
        return scored[method].to_numpy().astype(float), scored[f"{method}_prev"].to_numpy().astype(float)

    def summary(self, scored: pa.Table, method: str, settings: ScoreStage) -> dict[str, Any]:
        return reading.summary(scored, *self.surprisals(scored, method))

    def texts(self, scored: pa.Table) -> list[tuple[str, str]]:
        return list(zip(scored["item"].to_pylist(), scored["word"].to_pylist(), strict=True))

    def difference(self, sides: list[Scored]) -> tuple[str, float, list[float]] | None:
        found = [reading.draws_of(rows, *self.surprisals(rows, method)) for rows, method, _ in sides]
        value = found[0][0][reading.ALL] - found[1][0][reading.ALL]
        return plural(len(sides[0][0]), "word"), value, reading.difference(found[0][1], found[1][1], value)

    def measure(self, scored: pa.Table) -> str | None:
        return "partial R²"


class Acquisition(OfWords):
    """Words in contexts, scored by each snapshot of a run. {method} is the surprisal of the word by the snapshot.

    `tokens` is the number of tokens of the word in a sentence, `vocabulary` the size of the tokenizer's vocabulary.
    """

    of_run = True

    def score(self, model: "ScoringModel", items: pa.Table, settings: ScoreStage, partial: Path) -> pa.Table:
        """Return a table with all items for each snapshot, the earliest first; scores are kept in `partial`.

        A UserError says that the run has no snapshots.
        """
        contexts, words = (items[name].to_pylist() for name in ("context", "target_word"))
        tokens = acquisition.tokens_in_a_sentence(model.tokenizer, list(dict.fromkeys(words)))
        parts = []
        for name, place, snapshot in model.snapshots():
            part = items.add_column(1, "snapshot", pa.array([name] * len(items), pa.string()))
            for column in ("million_words", "words"):
                part = part.append_column(column, pa.array([place.get(column)] * len(items), pa.float64()))

            def predicted(mask: int | None, tokenizer: Any = snapshot.tokenizer) -> list[Word]:
                return acquisition.predictions(tokenizer, contexts, words, mask)

            for method in self.methods(settings):
                both = list(zip(contexts, words, strict=True))
                found = snapshot.surprisals(method, both, predicted, partial / name)
                part = part.append_column(method, pa.array(found, pa.float64(), from_pandas=True))
            model.too_long = snapshot.too_long
            log.info("%s: %s of %s", settings.suite, plural(len(items), "context"), name)
            parts.append(part)
        if not parts:
            raise UserError(
                f"{settings.suite}: the age at which a model learns words is found from the snapshots of its training,"
                " and this model has none; set run.snapshots before the training (`babylm` for the challenge), or"
                " leave the suite out of evaluation.suites"
            )
        table = pa.concat_tables(parts)
        table = table.append_column("tokens", pa.array([tokens[word] for word in words] * len(parts), pa.int64()))
        return table.append_column("vocabulary", pa.array([model.tokenizer.vocab_size] * len(table), pa.int64()))

    def summary(self, scored: pa.Table, method: str, settings: ScoreStage) -> dict[str, Any]:
        size = len(scored) // len(set(scored["snapshot"].to_pylist()))
        rows = scored.slice(0, size).select(["target_word", "children", "tokens"]).to_pylist()
        surprisal = scored[method].to_numpy().astype(float).reshape(-1, size)
        million, read = (scored[name].to_numpy().astype(float)[::size] for name in ("million_words", "words"))
        named = 1e6 * million
        true = np.where(np.isnan(read), named, read)
        return acquisition.summary(
            [row["target_word"] for row in rows],
            {row["target_word"]: row["children"] for row in rows},
            list(map(acquisition.Snapshot, named, true, surprisal)),
            {row["target_word"]: row["tokens"] for row in rows},
            scored["vocabulary"][0].as_py(),
        )

    def texts(self, scored: pa.Table) -> list[tuple[str, str]]:
        """Return the context and the word of each item, once."""
        pairs = zip(scored["context"].to_pylist(), scored["target_word"].to_pylist(), strict=True)
        return list(dict.fromkeys(pairs))

    def difference(self, sides: list[Scored]) -> tuple[str, float, list[float]] | None:
        first, second = (entry["words"] for _, _, entry in sides)
        found = acquisition.difference(first, second)
        return found and (f"the {found[0]} words that both know", found[1], found[2])

    def measure(self, scored: pa.Table) -> str | None:
        return "correlation"


KINDS: dict[str, Kind] = {
    "pairs": Pairs(),
    "choices": Choices(),
    "reading": ReadingTimes(),
    "acquisition": Acquisition(),
}


def has_ratio(items: pa.Table) -> bool:
    """Return whether the items of choices have a number that is compared with the first option's probability."""
    return "ratio" in items.column_names


def shared(scores: np.ndarray, answer: int) -> float:
    """Return the points of an item; all options with the best score share the point."""
    best = scores == scores.max()
    return float(best[answer] / best.sum())


def first(scores: np.ndarray, answer: int) -> float:
    """Return the points of an item; the first option with the best score is the model's choice."""
    return float(scores.argmax() == answer)


def alone(scores: np.ndarray, answer: int) -> float:
    """Return the points of an item; it is wrong if another option has the best score, too."""
    best = scores == scores.max()
    return float(best[answer] and best.sum() == 1)


def first_probability(scores: np.ndarray, _answer: int) -> float:
    """Return the probability of the first option, given that it is one of them."""
    shares = np.exp(scores - scores.max())
    return float(shares[0] / shares.sum())


POINTS = {"half": shared, "first": first, "wrong": alone}


def rank_correlation(points: np.ndarray, ratios: np.ndarray) -> dict[str, Any]:
    """Return Spearman's correlation as {"score", "n", "interval"}; it is 0 if one of the two does not vary.

    The 95 % interval uses Fisher's transformation with the variance of Bonett and Wright (2000).
    """
    varies = len(points) > 1 and np.ptp(points) > 0 and np.ptp(ratios) > 0
    score = float(np.corrcoef(rankdata(points), rankdata(ratios))[0, 1]) if varies else 0.0
    if len(points) < 4:
        return {"score": score, "n": len(points), "interval": [-1.0, 1.0]}
    middle = math.atanh(max(-1 + 1e-12, min(1 - 1e-12, score)))
    half = Z * math.sqrt((1 + score * score / 2) / (len(points) - 3))
    return {"score": score, "n": len(points), "interval": [math.tanh(middle - half), math.tanh(middle + half)]}
