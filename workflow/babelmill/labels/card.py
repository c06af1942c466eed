"""Write the card of a label model: how to use it, what was measured, and which codes it knows.

The prose is in the template `card.md`. The folder's config.json gets what is known after the evaluation, too.
"""

import dataclasses
from typing import Any, ClassVar

from babelmill.config import schema
from babelmill.core.escape import Markdown, code
from babelmill.evaluation.metrics import shown
from babelmill.release.card.card import ModelCard
from babelmill.tokens.label_text import Cleaning

TASK = "text-classification"
CODES = 50  # how many codes the card lists at most
SYSTEMS = {
    "classes": "classes",
    "general": "codes",
    "hisco": "[HISCO](https://historyofwork.iisg.nl) codes of occupations",
    "occ1950": "OCC1950 codes of occupations",
}
METHODS = {"blocks": "the decoder, symbol by symbol", "linear": "the classifier"}


@dataclasses.dataclass(kw_only=True)
class LabelsCard(ModelCard):
    """Holds all facts that the card of a label model can state, and makes the card."""

    template = "labels/card.md"
    hub_metrics: ClassVar = {"exact": ("accuracy", "exact set of codes"), "f1": ("f1", "micro F1")}

    labels: dict[str, Any]  # `labels` in config.json

    def values(self) -> dict[str, Any]:
        return super().values() | {"shown": shown, "codes_listed": CODES}

    @property
    def tasks(self) -> list[str]:
        return [TASK]

    @property
    def tags(self) -> list[str]:
        return [self.model_type or "gpt-bert", TASK, "custom_code"]

    @property
    def system(self) -> Markdown:
        """Return what the codes are."""
        return Markdown(SYSTEMS[self.labels["code"]])

    def method_rows(self) -> list[dict[str, Any]]:
        """Return the table of the figures of the default weights over all texts, by method."""
        figures = self.evaluation["labels"]["figures"][self.export.default_variant]
        names = {name: Markdown(f"`{name}`: {meaning}") for name, meaning in METHODS.items()}
        rows = [{"method": names[name]} | rates(entry) for name, entry in figures.items()]
        return [*rows, {"method": "the most frequent code"} | rates(self.evaluation["labels"]["baseline"])]

    def language_rows(self) -> list[dict[str, Any]]:
        """Return the table of the scores by language; [] for one language."""
        rows = [
            {"language": self.languages[key]["name"], "texts": entry["documents"]["scored"]}
            | {name: shown(score) for name, score in entry["variants"][self.export.default_variant].items()}
            for key, entry in self.evaluation["languages"].items()
        ]
        return rows if len(rows) > 1 else []

    def label_rows(self) -> list[dict[str, Any]]:
        """Return the table of the codes that the model knows, or of the most frequent ones if there are many."""
        codes = self.evaluation["labels"]["codes"]
        named = any("name" in entry for entry in codes)
        return [
            {"code": code(short(entry["code"]))}
            | ({"name": short(entry.get("name", ""))} if named else {})
            | {"training texts": entry["training"]}
            for entry in codes[:CODES]
        ]


def completed(config: dict[str, Any], evaluation: dict[str, Any], corpora: list[schema.Corpus]) -> dict[str, Any]:
    """Return config.json of an exported folder with what is known after the evaluation.

    Its `labels` get up to three more keys: the `names` of codes; `cleaning`, which says how all training text was
    cleaned, so that other texts can be cleaned in the same way; and whether the training text had `contexts`.
    `corpora`: the settings of the corpora that the model was trained on.
    """
    names = {entry["code"]: entry["name"] for entry in evaluation["labels"]["codes"] if "name" in entry}
    contexts = any(corpus.context_column or corpus.context for corpus in corpora)
    cleaning: dict[str, str] = {}
    for key, neutral in Cleaning()._asdict().items():
        values = {getattr(corpus, key) for corpus in corpora}
        cleaning |= {key: values.pop()} if len(values - {neutral}) == len(values) == 1 else {}
    more = {"names": names, "cleaning": cleaning}
    return config | {
        "labels": config["labels"] | {key: value for key, value in more.items() if value} | {"contexts": contexts}
    }


def rates(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of texts as a part of a row of a table."""
    micro = entry["micro"]
    found = {"exact": entry["exact"], "precision": micro["precision"], "recall": micro["recall"], "F1": micro["f1"]}
    found["macro F1"] = entry["macro"]["f1"]
    return {"texts": entry["texts"]} | {name: f"{rate:.3f}" for name, rate in found.items()}


def short(text: str) -> str:
    """Return text as one line of at most 80 characters, for a table."""
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"
