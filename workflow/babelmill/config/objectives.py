"""What the other stages have to know of `train.objective`: one entry for each; the training has its own table."""

from typing import NamedTuple


class About(NamedTuple):
    """What is said of a model of an objective.

    Attributes:
        scores: the metrics that its evaluation measures (`evaluation/metrics.py`).
        suffix: what `{causal_suffix}` is in the name of its repository.
        sentences: how it scores sentences (`suites/sentences.py`); the last is the headline of a suite.
        unmasks: it generates by filling masks in any order, with code of its own.
        auto_class: of a model of transformers; None where there is none.
    """

    scores: tuple[str, ...]
    sentences: tuple[str, ...] = ()
    suffix: str = ""
    unmasks: bool = False
    auto_class: str | None = "AutoModelForMaskedLM"


OBJECTIVES = {
    "hybrid": About(scores=("causal", "masked"), sentences=("causal", "masked", "fused"), auto_class=None),
    "masked": About(scores=("masked",), sentences=("masked",)),
    "causal": About(scores=("causal",), sentences=("causal",), suffix="-causal", auto_class="AutoModelForCausalLM"),
    "diffusion": About(scores=("diffusion",), sentences=("bound", "masked"), unmasks=True),
    "labels": About(scores=("exact", "f1"), auto_class="AutoModelForSequenceClassification"),
}
