"""Compare two sides, each of one or more models, on the same suite: which is better, where, and by how much."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.core import manifest
from babelmill.core.files import UserError, read_json
from babelmill.evaluation.suite_scores import headline_method, most_pairs
from babelmill.suites.results import by, mean_of_groups, right, share_of
from babelmill.suites.statistics import McNemar, bootstrap, holm, mcnemar


class ScoredModel(NamedTuple):
    """The scores of a model on a suite: the model's name, `scores.json`, and the rows of `pairs.parquet`."""

    name: str
    about: dict[str, Any]
    rows: pa.Table


class Phenomenon(NamedTuple):
    """A group of pairs: its name, its size, the share that each side gets right, and p after Holm's correction."""

    name: str
    pairs: int
    shares: tuple[float, float]
    p: float


class Pair(NamedTuple):
    """A pair, and for each side ln p of the good sentence minus ln p of the bad one."""

    good: str
    bad: str
    margins: tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """The comparison of two sides on those pairs of a language for which both have scores.

    Attributes:
        methods: the method of each side.
        of: "pairs" if the headline is the share of right pairs, "paradigms" if it is the mean over paradigms.
        pairs, compared: the number of pairs in all, and of those for which both sides have scores.
        headlines: for each side {"score", "interval"}; if a side has several models, its interval also accounts for the
            choice of models.
        seeds: for each side, the scores of its models.
        interval: the 95 % interval of the difference of the headlines, first minus second.
        test: the test over all pairs.
        phenomena: the phenomena, the smallest p first.
        most: the pairs on which the sides differ most.
    """

    methods: tuple[str, str]
    of: str
    pairs: int
    compared: int
    headlines: list[dict[str, Any]]
    seeds: list[list[float]]
    interval: list[float]
    test: McNemar
    phenomena: list[Phenomenon]
    most: list[Pair]


def read(folder: Path, name: str) -> ScoredModel:
    """Read the folder of scores that the stage `score`, or the command, wrote."""
    manifest.verify(folder)
    return ScoredModel(name, read_json(folder / "scores.json"), pq.ParquetFile(folder / "pairs.parquet").read())


def languages_of(models: Sequence[ScoredModel]) -> list[str]:
    """Return the languages that all models were scored in."""
    return [code for code in models[0].about["languages"] if all(code in each.about["languages"] for each in models)]


def method_of(side: Sequence[ScoredModel], asked: str | None) -> str:
    """Return the method of a side: the one asked for, or that of its models' headlines.

    Raises:
        UserError: the methods of the headlines differ, or a model has no scores of the method.
    """
    methods = {asked or headline_method(each.about) for each in side}
    if len(methods) > 1:
        raise UserError(
            f"{', '.join(each.name for each in side)}: their headlines are of different methods"
            f" ({', '.join(sorted(methods))}); choose one with --method"
        )
    (method,) = methods
    for each in side:
        if f"{method}_good" not in each.rows.column_names:
            there = [name.removesuffix("_good") for name in each.rows.column_names if name.endswith("_good")]
            raise UserError(f"{each.name} has no scores of method {method}; it has {', '.join(there)}")
    return method


def check_same(models: Sequence[ScoredModel], suite: str, code: str) -> None:
    """Raise a UserError unless all models were scored on the same pairs in the same way."""
    first = models[0]
    for other in models[1:]:
        described = [_origin(each.about["languages"][code]["pairs"]) for each in (first, other)]
        if described[0] != described[1]:
            raise UserError(
                f"{suite}, {code}: {first.name} was scored on {described[0]}, {other.name} on {described[1]}: these are"
                " not the same pairs; score one of them again"
            )
        if any(not _of(first, code)[key].equals(_of(other, code)[key]) for key in ("good", "bad")):
            raise UserError(
                f"{suite}, {code}: {first.name} and {other.name} were not scored on the same pairs: score one again"
            )


def _origin(figures: dict[str, Any]) -> str:
    """Return where the pairs of a suite come from: a commit, or files with their sha256."""
    if hub := figures["hub"]:
        return f"{hub['repository']} at {hub['commit'][:12]}"
    return ", ".join(f"{Path(source['path']).name} ({source['sha256'][:12]})" for source in figures["sources"])


def _of(model: ScoredModel, code: str) -> pa.Table:
    """Return the rows of a language."""
    return model.rows.filter(pa.array([language == code for language in model.rows["language"].to_pylist()]))


def compare(
    sides: tuple[Sequence[ScoredModel], Sequence[ScoredModel]], suite: str, code: str, asked: str | None, count: int
) -> Comparison:
    """Compare two sides in a language.

    Args:
        sides: the models of each side.
        suite: the name of the suite, for errors.
        code: the code of the language.
        asked: the method; None for that of each side's headline.
        count: how many of the pairs on which the sides differ most to return.

    Raises:
        UserError: the sides cannot be compared, or there is no pair for which both have scores.
    """
    everyone = [*sides[0], *sides[1]]
    check_same(everyone, suite, code)
    methods = method_of(sides[0], asked), method_of(sides[1], asked)
    rows = _of(everyone[0], code)
    scores = [np.array([_scores(each, code, methods[i]) for each in side]) for i, side in enumerate(sides)]
    common = reduce(np.logical_and, (~np.isnan(each).any((0, 1)) for each in scores))
    if not common.any():
        raise UserError(f"{suite}, {code}: no pair was scored for both sides; score them with the same masked_pairs")
    scores = [each[:, :, common] for each in scores]
    points = [right(each[:, 0], each[:, 1]) for each in scores]  # [models, pairs] of each side
    table = rows.filter(pa.array(common))
    sampled = any(most_pairs(each.about, methods[i]) is not None for i, side in enumerate(sides) for each in side)
    score = SuiteScore.of(table, everyone[0].about["headline"]["of"], rows if sampled else None)
    means, several = [each.mean(0) for each in points], max(map(len, points)) > 1
    margins = [(each[:, 0] - each[:, 1]).mean(0) for each in scores]
    return Comparison(
        methods=methods,
        of=score.how,
        pairs=len(rows),
        compared=len(table),
        headlines=[_headline(each, score) for each in points],
        seeds=[[score(one)["score"] for one in each] for each in points],
        interval=score.interval(points[0], points[1]),
        test=mcnemar(means[0], means[1], several),
        phenomena=_phenomena(table["phenomenon"].to_pylist(), means, score, several),
        most=_most(table, margins, count),
    )


class SuiteScore(NamedTuple):
    """The score of a suite, computed on some pairs as `results.summary` computes it on those that were scored.

    Attributes:
        how: "pairs" or "paradigms", see `Comparison.of`.
        paradigms: the paradigm of each pair.
        sizes: see `results.share_of`.
    """

    how: str
    paradigms: np.ndarray
    sizes: dict[str, int] | None

    @classmethod
    def of(cls, table: pa.Table, how: str, everything: pa.Table | None) -> "SuiteScore":
        """Return the score of the pairs in `table`; `everything`: all pairs, if these are a sample of them."""
        sizes = None if everything is None else dict(Counter(everything["paradigm"].to_pylist()))
        return cls(how, np.array(table["paradigm"].to_pylist(), object), sizes)

    def __call__(self, points: np.ndarray) -> dict[str, Any]:
        """Return the score from the points of one model, [pairs]."""
        if self.how == "paradigms":
            return mean_of_groups(by(self.paradigms.tolist(), points).values())
        return share_of(points, self.paradigms.tolist(), self.sizes)

    def interval(self, first: np.ndarray, second: np.ndarray) -> list[float]:
        """Return the interval of the difference of two sides, see `bootstrap`."""
        if self.how != "paradigms" and self.sizes is None:
            return bootstrap(first, second)
        names, strata = np.unique(self.paradigms, return_inverse=True)
        weighted = self.sizes if self.how != "paradigms" else None
        return bootstrap(first, second, strata, [weighted[name] for name in names] if weighted else ())

    def among(self, chosen: np.ndarray) -> "SuiteScore":
        """Return the share of the right pairs among some pairs, bool [pairs]."""
        return SuiteScore("pairs", self.paradigms[chosen], self.sizes)


def _scores(model: ScoredModel, code: str, method: str) -> np.ndarray:
    """Return the scores of the good and the bad sentences: [2, pairs]; nan if a pair has none."""
    rows = _of(model, code)
    return np.array([rows[f"{method}_{key}"].to_numpy().astype(float) for key in ("good", "bad")])


def _headline(points: np.ndarray, score: SuiteScore) -> dict[str, Any]:
    """Return the headline score of a side from the points of its models, [models, pairs]."""
    found = score(points.mean(0))
    if len(points) == 1:
        return found
    return found | {"interval": score.interval(points, np.zeros((1, points.shape[1])))}


def _phenomena(names: list[str], means: list[np.ndarray], score: SuiteScore, several: bool) -> list[Phenomenon]:
    """Return the phenomena, the smallest p first; an empty list if there is only one phenomenon.

    Args:
        names: the phenomenon of each pair.
        means: for each side, the mean points of its models, [pairs].
        score: the score of all pairs.
        several: see `means` of `mcnemar`.
    """
    groups = {name: np.array(names, object) == name for name in sorted(set(names))}
    if len(groups) == 1:
        return []
    tests = {name: mcnemar(means[0][mine], means[1][mine], several) for name, mine in groups.items()}
    corrected = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    found = []
    for name, mine in groups.items():
        shares = [float(score.among(mine)(each[mine])["score"]) for each in means]
        found.append(Phenomenon(name, int(mine.sum()), (shares[0], shares[1]), corrected[name]))
    return sorted(found, key=lambda each: (each.p, -abs(each.shares[0] - each.shares[1])))


def _most(table: pa.Table, margins: list[np.ndarray], count: int) -> list[Pair]:
    """Return at most `count` pairs whose margins differ most; pairs with equal margins are left out."""
    differences = np.abs(margins[0] - margins[1])
    order = [i for i in np.argsort(-differences, kind="stable")[:count] if differences[i]]
    sentences = [table[key].to_pylist() for key in ("good", "bad")]
    return [Pair(sentences[0][i], sentences[1][i], (float(margins[0][i]), float(margins[1][i]))) for i in order]
