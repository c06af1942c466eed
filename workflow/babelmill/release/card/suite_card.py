"""Write what a model card says about the suites of minimal pairs on which a model was scored."""

from typing import Any, NamedTuple

from huggingface_hub import EvalResult

from babelmill.core import escape
from babelmill.evaluation.suite_scores import sample_of
from babelmill.release.card.card_table import table

MEANINGS = {
    "causal": "causal: each token, given the tokens before it",
    "masked": "masked: each token, hidden one at a time, given all others",
    "fused": "fused: the sum of both",
    "bound": "bound: the evidence lower bound of masked diffusion",
}


class Scored(NamedTuple):
    """Holds the scores of a model on a suite.

    Attributes:
        title: the name of the suite in the card.
        found: scores.json.
        baselines: the suite's baselines (`suite_section.Baseline`), as mappings.
    """

    title: str
    found: dict[str, Any]
    baselines: list[dict[str, Any]]

    @property
    def methods(self) -> list[str]:
        """Return the methods by which sentences were scored. The last one is the main method."""
        first = next(iter(self.found["languages"].values()))
        return list(first["methods"])

    def score(self, code: str, method: str) -> dict[str, Any] | None:
        """Return the share of right pairs of a language, with its interval, or None if no pair has a score."""
        return self.found["languages"][code]["methods"][method][self.found["headline"]["of"]]


def percent(share: dict[str, Any] | None) -> str:
    """Return a share with its interval and its number of pairs, such as 81.2 (79.9 to 82.5), n = 67,000."""
    if share is None:
        return ""
    low, high = (100 * end for end in share["interval"])
    return f"{100 * share['score']:.1f} ({low:.1f} to {high:.1f}), n = {share['n']:,}"


def sections(suites: list[Scored], languages: dict[str, Any]) -> list[str]:
    """Return the sections with the scores on all suites, what they mean, and published scores for comparison."""
    if not suites:
        return []
    methods = [name for name in MEANINGS if any(name in suite.methods for suite in suites)]
    rows = []
    for suite in suites:
        for code in suite.found["languages"]:
            scores = [suite.score(code, name) if name in suite.methods else None for name in methods]
            rows.append([suite.title, languages[code]["name"], *map(percent, scores)])
    meanings = "; ".join(MEANINGS[name] for name in methods)
    lines = [
        "## Minimal pairs",
        "Each pair is a good and a bad sentence. The scores say in how many percent of n pairs the good sentence is"
        " more probable, with 95 % intervals. Probabilities are sums of log-probabilities in fp32, and equal ones count"
        f" half. {meanings[0].upper()}{meanings[1:]}. Chance is 50."
        f" {_notes(suites)}".rstrip(),
        table(["suite", "language", *methods], rows),
    ]
    published = [
        [suite.title, languages[line["language"]]["name"], line["model"], line["score"], line["pipeline"]]
        for suite in suites
        for line in suite.baselines
        if line["language"] in suite.found["languages"]
    ]
    if published:
        lines += [
            "The table shows published scores and the pipeline of each. In another pipeline, the same model has other"
            " scores.",
            table(["suite", "language", "model", "score", "pipeline"], published),
        ]
    return lines


def _notes(suites: list[Scored]) -> str:
    """Return notes on the scores: means over paradigms, samples, and where the pairs come from."""
    notes = []
    if means := [escape.markdown(suite.title) for suite in suites if suite.found["headline"]["of"] == "paradigms"]:
        notes.append(f"The score of {', '.join(means)} is the unweighted mean over paradigms.")
    samples = {(sample_of(suite.found, name), name): None for suite in suites for name in suite.methods}
    for some in dict.fromkeys(some for some, _ in samples if some):
        names = sorted({name for said, name in samples if said == some})
        notes.append(f"The {' and '.join(names)} scores are of a {some} at most.")
    hubs = {
        f"{escape.code(hub['repository'])} at {escape.code(hub['commit'])}": None
        for suite in suites
        for entry in suite.found["languages"].values()
        if (hub := entry["pairs"]["hub"])
    }
    if hubs:
        notes.append(f"The pairs come from {', '.join(hubs)}.")
    return " ".join(notes)


def results(suites: list[Scored], languages: dict[str, Any]) -> list[EvalResult]:
    """Return the lines of the model-index: a score for each suite, language and method."""
    found = []
    for suite in suites:
        for code, entry in suite.found["languages"].items():
            for name in suite.methods:
                if share := suite.score(code, name):
                    hub = entry["pairs"]["hub"] or {}
                    low, high = share["interval"]
                    some = f", {of}" if (of := sample_of(suite.found, name)) else ""
                    found.append(
                        EvalResult(
                            task_type="text-generation" if name == "causal" else "fill-mask",
                            dataset_type=hub.get("repository", suite.found["suite"]),
                            dataset_name=f"{suite.title}, {languages[code]['name']}",
                            dataset_config=code,
                            dataset_revision=hub.get("commit"),
                            metric_type="accuracy",
                            metric_name=f"accuracy, {name} (95 % interval {low:.3f} to {high:.3f}{some})",
                            metric_value=round(share["score"], 4),
                        )
                    )
    return found
