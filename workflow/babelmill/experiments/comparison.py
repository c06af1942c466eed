"""Compare the cells of an experiment with its reference cell, score by score, over seeds.

A cell and the reference are compared seed by seed, since equal seeds have equal order of the data. The differences of
all seeds give a t test (Student, 1908) and its interval. All tests of an experiment are corrected together (Holm,
1979), so the chance that any of its bold marks is false is at most 5 %.
"""

from typing import Any, NamedTuple

from scipy import stats

from babelmill.evaluation.statistics import holm, over_seeds
from babelmill.reporting.table import Frame, frame_of, less_is_better

LEVEL = 0.05
ROUNDING = 1e-9  # differences of scores that are equal differ by less, relative to the scores
ALIKE = ["base", "language", "suite", "method", "unit"]  # scores that can be compared are equal in these columns


class Compared(NamedTuple):
    """A score of a cell over its seeds. `half`, `spread`: half of a 95 % interval; None if there is one seed."""

    base: str  # the model that the cell inherits from
    language: str
    suite: str  # the name of the suite; "" for the validation text
    method: str  # how sentences are scored; on the validation text, the metric
    unit: str
    cell: str
    seeds: tuple[float, ...]  # the scores of all seeds
    mean: float
    half: float | None
    simple: float  # what guessing gets, or on the validation text a unigram model
    difference: float | None = None  # the mean over common seeds of the cell's score minus the reference's
    spread: float | None = None
    # The p value of the paired t test, corrected for all tests of the experiment. Equal differences for all seeds,
    # which scores of few items have by chance, count as a test with p = 1.
    p: float | None = None
    best: bool = False  # whether it is the best of those that can be compared, and its lead is significant


def compare(scores: Frame, reference: str) -> Frame:
    """Return each score of each cell, with the columns of `Compared`; `reference`: the name of a cell, or "".

    `scores`: one row per score and seed, with the columns of ALIKE, and cell, seed, score and simple.
    """
    found = []
    for of, alike in scores.groupby(ALIKE, sort=False):
        cells = {cell: rows.set_index("seed") for cell, rows in alike.groupby("cell", sort=False)}
        by_seed = {cell: rows["score"].to_dict() for cell, rows in cells.items()}
        theirs = by_seed.get(reference, {})
        for cell, ours in by_seed.items():
            (mean, half), what = over_seeds([*ours.values()]), dict(zip(ALIKE, of, strict=True))
            simple = cells[cell]["simple"].mean()
            each = Compared(**what, cell=cell, seeds=(*ours.values(),), mean=mean, half=half, simple=simple)
            pairs = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
            if cell != reference and pairs:
                (mean, half), size = over_seeds(pairs), max(map(abs, [*ours.values(), *theirs.values()]))
                test: Any = stats.ttest_1samp(pairs, 0) if half and half > ROUNDING * size else None
                p = float(test.pvalue) if test else None if half is None else 1.0
                each = each._replace(difference=mean, spread=half, p=p)
            found.append(each)
    numbers = dict.fromkeys(("mean", "half", "difference", "spread", "p"), float)
    table = frame_of(found, Compared._fields).astype(numbers | {"best": bool})
    table.loc[table["p"].notna(), "p"] = holm(table["p"].dropna().tolist())
    for (*_, unit), alike in table.groupby(ALIKE, sort=False):
        first = alike["mean"].idxmin() if less_is_better(unit) else alike["mean"].idxmax()
        # The best must differ from the reference; if the reference is the best, all others must differ from it.
        rivals = alike.drop(first) if alike["cell"][first] == reference else alike.loc[[first]]
        table.loc[first, "best"] = len(rivals) > 0 and (rivals["p"] < LEVEL).all()
    return table
