"""Describe each `train.objective` for stages other than `train`; the training has its own table."""

from typing import NamedTuple


class About(NamedTuple):
    """The properties of a model that was trained with an objective."""

    scores: tuple[str, ...]  # the metrics that its evaluation measures (`evaluation/metrics.py`)
    # The methods that score sentences (`evaluation/rows.py`); the last is the headline of a suite, unless another
    # scored more pairs (`evaluation/suite_scores.py`).
    sentences: tuple[str, ...] = ()
    suffix: str = ""  # the value of `{causal_suffix}` in the name of its repository
    unmasks: bool = False  # whether it generates by filling masks in any order, with code of its own
    # The Auto class of a transformers model; None if no transformers model has this objective.
    auto_class: str | None = "AutoModelForMaskedLM"


OBJECTIVES = {
    "hybrid": About(scores=("causal", "masked"), sentences=("causal", "masked", "fused"), auto_class=None),
    "masked": About(scores=("masked",), sentences=("masked",)),
    "causal": About(scores=("causal",), sentences=("causal",), suffix="-causal", auto_class="AutoModelForCausalLM"),
    "diffusion": About(scores=("diffusion",), sentences=("bound", "masked"), unmasks=True),
    "labels": About(scores=("exact", "f1"), auto_class="AutoModelForSequenceClassification"),
}
