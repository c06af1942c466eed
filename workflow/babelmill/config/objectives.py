"""What the other stages have to know of `train.objective`: one entry for each; the training has its own table."""

from typing import NamedTuple


class About(NamedTuple):
    """What is said of a model of an objective.

    Attributes:
        scores: the metrics that its evaluation measures (`evaluation/metrics.py`).
        suffix: what `{causal_suffix}` is in the name of its repository.
        unmasks: it generates by filling masks in any order, with code of its own.
    """

    scores: tuple[str, ...]
    suffix: str = ""
    unmasks: bool = False


OBJECTIVES = {
    "hybrid": About(scores=("causal", "masked")),
    "masked": About(scores=("masked",)),
    "causal": About(scores=("causal",), suffix="-causal"),
    "diffusion": About(scores=("diffusion",), unmasks=True),
}
