"""Describe the metrics of `evaluation.json`, whose readers take names, units and meanings from the file itself.

`evaluation.json` holds `metrics`, with one entry per metric that was measured. For each variant of the weights it holds
one score per metric (`Score`), beside the score of the baseline: `unigram`, or `most_frequent` for a
label model (`labels/evaluation.py`). To add a metric, add an entry here, and see `rows.of_method`.
"""

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import numpy as np

DOCUMENTS = "documents.parquet"  # beside evaluation.json, see `validation_text.of_documents`
BITS, SHARE = "bits per byte", "share"
OF_DIFFUSION = "any share of the tokens hidden, from both sides: an upper bound of what each text needs"
GENERATION, FILL_MASK, CLASSIFICATION = "text-generation", "fill-mask", "text-classification"  # names of the Hub


@dataclass(frozen=True)
class Metric:
    """A metric: what its scores mean."""

    name: str  # the metric's name in `evaluation.json` and everywhere else
    unit: str  # the unit of value and standard error. Less is better, except for the unit `SHARE`, where more is better
    meaning: str  # how each token is scored
    task: str  # the task, by the Hub's name; "" for a baseline
    # Whether exp(nats per token) is a perplexity, or an upper bound of it if `bound`. The score is then that of a
    # distribution over texts, and can be compared with that of the unigram model.
    perplexity: bool = False
    bound: bool = False  # whether the score is an upper bound of the true value


METRICS = {
    metric.name: metric
    for metric in (
        Metric("causal", BITS, "each token from those before it", GENERATION, perplexity=True),
        Metric("masked", BITS, "each token hidden once, from both sides", FILL_MASK),
        Metric("diffusion", BITS, OF_DIFFUSION, FILL_MASK, perplexity=True, bound=True),
        Metric("unigram", BITS, "each token by its frequency in the training text", "", perplexity=True),
        Metric("exact", SHARE, "texts whose codes are all right, and no other", CLASSIFICATION),
        Metric("f1", SHARE, "harmonic mean of precision and recall of all codes together", CLASSIFICATION),
    )
}


def described(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the entry `metrics` of evaluation.json for metrics with these names."""
    return {name: asdict(METRICS[name]) for name in names}


def metrics_of(evaluation: dict[str, Any]) -> dict[str, Metric]:
    """Return the metrics that evaluation.json describes."""
    return {name: Metric(**about) for name, about in evaluation["metrics"].items()}


def units(evaluation: dict[str, Any]) -> str:
    """Return the unit of the scores; if there are several, all units, separated by commas."""
    return ", ".join(dict.fromkeys(metric.unit for metric in metrics_of(evaluation).values()))


def shown(score: dict[str, Any], metric: Metric | None = None) -> str:
    """Return a score as text, with its standard error if it has one, and "at most" if its `metric` is a bound."""
    error = score.get("standard_error")
    text = f"{score['value']:.3f}" + (f" ± {error:.3f}" if error is not None else "")
    return f"at most {text}" if metric is not None and metric.bound else text


def in_words(evaluation: dict[str, Any], variant: str) -> str:
    """Return the scores of a variant of the weights as text.

    They have standard errors and the size of the sample of validation documents if the evaluation has them, and a note
    if the tokenizer changes documents.
    """
    metrics = metrics_of(evaluation)
    found = [f"{shown(score, metrics[name])} {name}" for name, score in evaluation["variants"][variant].items()]
    documents = evaluation.get("documents", {"scored": 0, "of": 0})
    scored, lossy = documents["scored"], documents.get("changed", 0)
    notes = [f"{scored:,} of {documents['of']:,} documents"] if scored != documents["of"] else []
    notes += [f"the tokenizer changes {lossy:,} of {scored:,}"] if lossy else []
    return f"{units(evaluation)} {', '.join(found)}" + (f" ({'; '.join(notes)})" if notes else "")


class Score(TypedDict):
    """A score in evaluation.json, see `entry`; its `Metric` says what its value means."""

    value: float
    standard_error: float | None
    nats_per_token: float
    tokens: int
    bytes: int


def entry(nats: "np.ndarray", size: "np.ndarray", tokens: int) -> Score:
    """Return an entry of evaluation.json, of -ln p and the UTF-8 bytes of each document, [documents].

    Its standard error says how much the score would vary with other documents like these. Bits per byte are a ratio of
    two sums over documents, and the error is that of such a ratio (Cochran 1977, section 2.11, without the finite
    population correction). It is None for a single document. `tokens`: how many tokens were scored.
    """
    documents, total, whole, error = len(size), float(nats.sum()), int(size.sum()), None
    if documents > 1:
        residuals = nats - total / whole * size
        error = math.sqrt(documents / (documents - 1) * float((residuals**2).sum())) / whole / math.log(2)
    return {
        "value": total / math.log(2) / whole,
        "standard_error": error,
        "nats_per_token": total / tokens,
        "tokens": tokens,
        "bytes": whole,
    }


def pooled(entries: list[Score], whole: list[int]) -> Score:
    """Return one score over the texts of several languages; for one language, exactly its own score.

    Each language is weighted by the UTF-8 bytes of its whole validation text, even if only a sample of it was scored.
    """
    if len(entries) == 1:
        return entries[0]
    factors = [size / score["bytes"] for score, size in zip(entries, whole, strict=True)]
    pairs = list(zip(entries, factors, strict=True))
    tokens, size = sum(score["tokens"] * factor for score, factor in pairs), sum(whole)
    nats = sum(score["nats_per_token"] * score["tokens"] * factor for score, factor in pairs)
    known = [(score["standard_error"], part) for score, part in zip(entries, whole, strict=True)]
    errors = [error * part for error, part in known if error is not None]
    return {
        "value": nats / math.log(2) / size,
        "standard_error": math.hypot(*errors) / size if len(errors) == len(entries) else None,
        "nats_per_token": nats / tokens,
        "tokens": sum(score["tokens"] for score in entries),
        "bytes": sum(score["bytes"] for score in entries),
    }
