"""What the numbers in `evaluation.json` are: its readers take names, units and meanings from the file itself.

`evaluation.json` holds `metrics`, one entry for each metric that was measured, and for each variant of the weights a
score for each of them (`validation_text.Score`), beside that of the baseline: `unigram`, or `most_frequent` of a model
of labels (`label_report.py`). A new metric is an entry here and one in `evaluate.SCORERS`.
"""

from dataclasses import asdict, dataclass
from typing import Any

TEXT = "the validation text"
SHARE = "share"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What a score is.

    Attributes:
        name: as it stands in `evaluation.json` and everywhere else.
        unit: of its value and standard error; less is better, of a `SHARE` more.
        bound: the true value is at most this.
        measured_on: what the number is about.
        meaning: how each token is scored.
        perplexity: exp(nats per token) is one (or, of a bound, at least it): the score is that of a distribution over
            texts, and compares with the unigram model's.
        task: in the Hub's words; "" for a baseline.
    """

    name: str
    unit: str
    bound: bool = False
    measured_on: str = TEXT
    meaning: str
    perplexity: bool = False
    task: str


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            name="causal",
            unit="bits per byte",
            meaning="each token from those before it",
            perplexity=True,
            task="text-generation",
        ),
        Metric(
            name="masked",
            unit="bits per byte",
            meaning="each token hidden once, from both sides",
            task="fill-mask",
        ),
        Metric(
            name="diffusion",
            unit="bits per byte",
            bound=True,
            meaning="any share of the tokens hidden, from both sides: an upper bound of what each text needs",
            perplexity=True,
            task="fill-mask",
        ),
        Metric(
            name="unigram",
            unit="bits per byte",
            meaning="each token by its frequency in the training text",
            perplexity=True,
            task="",
        ),
        Metric(
            name="exact",
            unit=SHARE,
            meaning="texts whose codes are all right, and no other",
            task="text-classification",
        ),
        Metric(
            name="f1",
            unit=SHARE,
            meaning="harmonic mean of precision and recall of all codes together",
            task="text-classification",
        ),
    )
}


def described(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the entries `metrics` of evaluation.json."""
    return {name: asdict(METRICS[name]) for name in names}


def metrics_of(evaluation: dict[str, Any]) -> dict[str, Metric]:
    """Return what evaluation.json says of its metrics; those of earlier versions said nothing."""
    if "metrics" not in evaluation:
        return {name: metric for name, metric in METRICS.items() if metric.unit != SHARE}
    return {name: Metric(**about) for name, about in evaluation["metrics"].items()}


def units(evaluation: dict[str, Any]) -> str:
    """Return the unit of the scores, or all units."""
    return ", ".join(dict.fromkeys(metric.unit for metric in metrics_of(evaluation).values()))


def value_of(score: dict[str, Any]) -> float:
    """Return the value of a score of evaluation.json; earlier versions called it by its unit."""
    return score["value"] if "value" in score else score["bits_per_byte"]


def shown(score: dict[str, Any], metric: Metric | None = None) -> str:
    """Return a score with its standard error, if it has one, and what its `metric` says of it."""
    error = score.get("standard_error")
    text = f"{value_of(score):.3f}" + (f" ± {error:.3f}" if error is not None else "")
    return f"at most {text}" if metric is not None and metric.bound else text
