"""Compare the cells of an experiment with its reference cell, score by score, over seeds.

A cell and the reference are compared seed by seed, since equal seeds have equal order of the data. The differences of
all seeds give a t test (Student, 1908) and its interval. All tests of an experiment are corrected together (Holm,
1979), so the chance that any of its bold marks is false is at most 5 %.
"""

import statistics
from typing import Any, NamedTuple

from scipy import stats

from babelmill.evaluation.statistics import holm, over_seeds
from babelmill.reporting.table import less_is_better

LEVEL = 0.05
ROUNDING = 1e-9  # differences of scores that are equal differ by less, relative to the scores


class Column(NamedTuple):
    """What is compared: a score of a suite, or on the validation text."""

    suite: str  # the name of the suite; "" for the validation text
    method: str  # how sentences are scored; on the validation text, the metric
    unit: str  # the unit of the score, such as "share"

    @property
    def more_is_better(self) -> bool:
        """Return whether the best score is the largest one."""
        return not less_is_better(self.unit)


class Effect(NamedTuple):
    """The difference of a cell from the reference."""

    difference: float  # the mean over seeds of the cell's score minus the reference's
    half: float | None  # half of its 95 % interval; None if there are fewer than two common seeds
    # The p value of the paired t test, corrected for all tests of the experiment; None for a single seed. Equal
    # differences for all seeds, which scores of few items have by chance, count as a test with p = 1.
    p: float | None

    @property
    def significant(self) -> bool:
        """Return whether the difference is unlikely to come from the choice of seeds."""
        return self.p is not None and self.p < LEVEL


class Line(NamedTuple):
    """A row of the table: a cell, the base that it inherits from, and a language of it."""

    base: str
    language: str
    cell: str


Scores = dict[Line, dict[Column, dict[int, float]]]  # by seed


def effects(scores: Scores, reference: str | None) -> dict[tuple[Line, Column], Effect]:
    """Return the differences of all cells from the reference cell, for the same base, language and score."""
    found: dict[tuple[Line, Column], Effect] = {}
    for line, columns in scores.items():
        of_reference = scores.get(line._replace(cell=reference), {}) if reference else {}
        for column, values in columns.items() if line.cell != reference else ():
            theirs = of_reference.get(column, {})
            differences = [values[seed] - theirs[seed] for seed in values if seed in theirs]
            if differences:
                (mean, half), size = over_seeds(differences), max(map(abs, [*values.values(), *theirs.values()]))
                test: Any = stats.ttest_1samp(differences, 0) if half and half > ROUNDING * size else None
                p = float(test.pvalue) if test else None if half is None else 1.0
                found[line, column] = Effect(mean, half, p)
    tested = [key for key, effect in found.items() if effect.p is not None]
    corrected = holm([p for key in tested if (p := found[key].p) is not None])
    return found | {key: found[key]._replace(p=p) for key, p in zip(tested, corrected, strict=True)}


def best(scores: Scores, found: dict[tuple[Line, Column], Effect], reference: str | None) -> set[tuple[Line, Column]]:
    """Return the best cell of each base, language and score, if its lead is significant.

    The best cell must differ from the reference; if the reference is the best, all others must differ from it.
    """
    groups: dict[tuple[str, str, Column], dict[Line, float]] = {}
    for line, columns in scores.items():
        for column, values in columns.items():
            groups.setdefault((line.base, line.language, column), {})[line] = statistics.fmean(values.values())
    marked = set()
    for (_, _, column), means in groups.items():
        first = (max if column.more_is_better else min)(means, key=means.__getitem__)
        rivals = [line for line in means if line != first] if first.cell == reference else [first]
        effects_of_rivals = [found.get((rival, column)) for rival in rivals]
        if rivals and all(effect and effect.significant for effect in effects_of_rivals):
            marked.add((first, column))
    return marked
