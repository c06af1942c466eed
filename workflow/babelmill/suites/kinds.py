"""Score the items of a suite and summarise their scores: one class for each kind of suite.

The stage `score` asks these classes, and so do the commands that read its tables. How items are read from files is in
`items.py`.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.evaluation.suite_scores import most_pairs
from babelmill.stages import ScoreStage
from babelmill.suites import acquisition, reading
from babelmill.suites.items import texts_of
from babelmill.suites.results import points_of, sample, summary

if TYPE_CHECKING:  # it imports PyTorch, which the commands that read tables do without
    from babelmill.suites.scoring_model import ScoringModel

log = logging.getLogger("babelmill.score")


class Kind:
    """A kind of suite."""

    measure: str | None = None  # what the suite's score is, if it is not a share of right answers
    of_run = False  # whether the score is one of all snapshots of a run together, so that a snapshot has none

    def methods(self, settings: ScoreStage) -> list[str]:
        """Return the methods by which the items are scored; the last is the headline's if several scored as many."""
        return settings.methods

    def score(self, model: "ScoringModel", items: pa.Table, settings: ScoreStage, partial: Path) -> pa.Table:
        """Return the table of items with columns for the scores of each method; scores are kept in `partial`."""
        raise NotImplementedError

    def summary(self, scored: pa.Table, method: str, settings: ScoreStage) -> dict[str, Any]:
        """Return the entry of a method in scores.json (see `results.summary`), for the scored items of a language."""
        raise NotImplementedError

    def texts(self, items: pa.Table) -> list[Any]:
        """Return the texts that are compared, for each item; of words, the context and the word."""
        raise NotImplementedError

    def difference(self, sides: list[pa.Table], methods: list[str]) -> tuple[str, float, list[float]] | None:
        """Return what the difference of two models is taken over, the difference, and its 95 % interval.

        None for a kind whose scores this cannot compare. `sides`: the rows of items.parquet of each model.
        """
        return None


class OfSentences(Kind):
    """A kind whose items are sentences of which the likeliest one should be the right one: pairs, and other choices.

    A method's columns are {method}, the score of each option, and {method}_points: 1 if the right option has the best
    score, else 0. If other options have the same score, the point is shared, or goes to the first of them, or to none
    (`ties`). The column `unknown` says which items have a token that the tokenizer does not know, if these count
    as wrong. What is not scored is null.
    """

    def texts(self, items: pa.Table) -> list[list[str]]:
        return texts_of(items)

    def score(self, model: "ScoringModel", items: pa.Table, settings: ScoreStage, partial: Path) -> pa.Table:
        texts, prompts, mean = texts_of(items), None, settings.score == "mean"
        if settings.scored == "completion":
            prompts = [[len(prompt) for prompt in each] for each in items["prompts"].to_pylist()]
        scored, found = items, dict[str, np.ndarray]()
        if settings.unknown == "wrong":
            unknown = [any(map(model.has_unknown, each)) for each in texts]
            scored = scored.append_column("unknown", pa.array(unknown, pa.bool_()))
        for name in sorted(settings.methods, key="fused".__eq__):  # "fused" comes last: it is the sum of the other two
            if name == "fused":
                found[name] = found["causal"] + found["masked"]
            else:
                chosen = sample(items, texts, most_pairs(settings.how_many, name))
                found[name] = model.score(name, texts, chosen, partial, prompts, mean)
            scored = self.with_scores(scored, name, found[name], settings)
        return scored

    def with_scores(self, items: pa.Table, method: str, found: np.ndarray, settings: ScoreStage) -> pa.Table:
        """Return the table with the scores of a method, `found` as `ScoringModel.score` returns them."""
        unknown = items["unknown"].to_pylist() if "unknown" in items.column_names else [False] * len(items)
        scores, shares = list[list[float] | None](), list[float | None]()
        for row, options, right, wrong in zip(
            found, items["options"].to_pylist(), items["right"].to_pylist(), unknown, strict=True
        ):
            own = None if np.isnan(row[0]) else row[: len(options)]
            scores.append(None if own is None else own.tolist())
            shares.append(None if own is None else 0.0 if wrong else points_of(own, right, settings.ties))
        items = items.append_column(method, pa.array(scores, pa.list_(pa.float64())))
        return items.append_column(f"{method}_points", pa.array(shares, pa.float64()))

    def points(self, scored: pa.Table, method: str) -> np.ndarray:
        """Return the points of each item: 1 if the right text is the likeliest, 0, or a share; nan without a score."""
        return scored[f"{method}_points"].to_numpy().astype(float)

    def summary(self, scored: pa.Table, method: str, settings: ScoreStage) -> dict[str, Any]:
        points = self.points(scored, method)
        sampled = most_pairs(settings.how_many, method) is not None
        return summary(scored, points, sampled, settings.headline == "phenomena")


def with_columns(items: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """Return the table with more columns; numbers that are nan are null there."""
    for name, values in columns.items():
        items = items.append_column(name, pa.array(values, from_pandas=True))
    return items


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


class ReadingTimes(OfWords):
    """Words with reading times. A method's columns are {method}, the word's surprisal, and that of the word before."""

    measure = "partial R²"

    def score(self, model: "ScoringModel", items: pa.Table, settings: ScoreStage, partial: Path) -> pa.Table:
        words, own, before = reading.words_of(items)
        for name in self.methods(settings):
            found = model.surprisals(name, words, reading.predictions, partial)
            of_word_before = np.where(before < 0, np.nan, found[before])
            items = with_columns(items, {name: found[own], f"{name}_prev": of_word_before})
        return items

    def surprisals(self, scored: pa.Table, method: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the surprisal of each word, and that of the word before it; nan if there is none."""
        return scored[method].to_numpy().astype(float), scored[f"{method}_prev"].to_numpy().astype(float)

    def summary(self, scored: pa.Table, method: str, settings: ScoreStage) -> dict[str, Any]:
        return reading.summary(scored, *self.surprisals(scored, method))

    def texts(self, items: pa.Table) -> list[tuple[str, str]]:
        return list(zip(items["item"].to_pylist(), items["word"].to_pylist(), strict=True))

    def difference(self, sides: list[pa.Table], methods: list[str]) -> tuple[str, float, list[float]] | None:
        pairs = zip(sides, methods, strict=True)
        first, second = (reading.draws_of(rows, *self.surprisals(rows, method)) for rows, method in pairs)
        drawn = first[reading.ALL] - second[reading.ALL]  # of the same rows: what is hard for both cancels out
        return plural(len(sides[0]), "word"), float(drawn[0]), reading.interval(drawn)


class Acquisition(OfWords):
    """Words in contexts, scored by each snapshot of a run. {method} is the surprisal of the word by the snapshot.

    `tokens` is the number of tokens of the word in a sentence, `vocabulary` the size of the tokenizer's vocabulary.
    """

    measure = "correlation"
    of_run = True

    def score(self, model: "ScoringModel", items: pa.Table, settings: ScoreStage, partial: Path) -> pa.Table:
        """Return a table with all items for each snapshot, the earliest first; scores are kept in `partial`.

        A UserError says that the run has no snapshots.
        """
        words = items["target_word"].to_pylist()
        asked = [*zip(items["context"].to_pylist(), words, strict=True)]
        of_word = acquisition.tokens_in_a_sentence(model.tokenizer, list(dict.fromkeys(words)))
        tokens, parts = [of_word[word] for word in words], list[pa.Table]()
        for name, place, snapshot in model.snapshots():
            columns = {"snapshot": [name] * len(items), "million_words": [float(place["million_words"])] * len(items)}
            for method in self.methods(settings):
                columns[method] = snapshot.surprisals(method, asked, acquisition.predictions, partial / name)
            columns |= {"tokens": tokens, "vocabulary": [model.tokenizer.vocab_size] * len(items)}
            parts.append(with_columns(items, columns))
            model.too_long = snapshot.too_long
            log.info("%s: %s of %s", settings.suite, plural(len(items), "context"), name)
        if not parts:
            raise UserError(
                f"{settings.suite}: the age at which a model learns words is found from the snapshots of its training,"
                " and this model has none; set run.snapshots before the training (`babylm` for the challenge), or"
                " leave the suite out of evaluation.suites"
            )
        return pa.concat_tables(parts)

    def summary(self, scored: pa.Table, method: str, settings: ScoreStage) -> dict[str, Any]:
        return acquisition.summary(scored, method)

    def texts(self, items: pa.Table) -> list[tuple[str, str]]:
        """Return the context and the word of each item, once."""
        pairs = zip(items["context"].to_pylist(), items["target_word"].to_pylist(), strict=True)
        return list(dict.fromkeys(pairs))


KINDS: dict[str, Kind] = {
    "pairs": OfSentences(),
    "choices": OfSentences(),
    "reading": ReadingTimes(),
    "acquisition": Acquisition(),
}
