"""Write the card of a label model: how to use it, what was measured, and which codes it knows.

The prose is in the template `card.md`. Beside the card, a picture shows how well the probabilities are calibrated, and
what share of the codes is right. The folder's config.json gets what is known after the evaluation, too.
"""

import dataclasses
from pathlib import Path
from typing import IO, Any, ClassVar

from babelmill.config import schema
from babelmill.core.escape import Markdown, code, markdown
from babelmill.core.files import atomic_write
from babelmill.evaluation.metrics import shown
from babelmill.release.card.card import ModelCard
from babelmill.release.card.training_history import COLOURS
from babelmill.tokens.clean_text import Cleaning

TASK = "text-classification"
CODES = 50  # how many codes the card lists at most
MISTAKES = 10
SYSTEMS = {
    "classes": "classes",
    "general": "codes",
    "hisco": "[HISCO](https://historyofwork.iisg.nl) codes of occupations",
    "occ1950": "OCC1950 codes of occupations",
}
METHODS = {"blocks": "the decoder, symbol by symbol", "linear": "the classifier"}
PICTURE = "reliability.png"
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 3}  # below the curves


@dataclasses.dataclass(kw_only=True)
class LabelsCard(ModelCard):
    """Holds all facts that the card of a label model can state, and makes the card."""

    template = "labels/card.md"
    hub_metrics: ClassVar = {"exact": ("accuracy", "exact set of codes"), "f1": ("f1", "micro F1")}

    labels: dict[str, Any]  # `labels` in config.json

    def write(self, folder: Path) -> list[str]:
        """Write the files of any card and, if there is an evaluation, the picture. Return the names of the files."""
        files = super().write(folder)
        if self.evaluation:
            with atomic_write(folder / PICTURE) as file:
                draw(self.evaluation, self.default_variant, self.name, file)
            files.append(PICTURE)
        return files

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

    @property
    def methods(self) -> dict[str, dict[str, Any]]:
        """Return the figures of the default weights, by method."""
        return self.evaluation["labels"]["figures"][self.default_variant]

    @property
    def example(self) -> dict[str, Any]:
        """Return a text, its context and its prediction, which is a correct one of the evaluation if there is any."""
        found = self.evaluation.get("labels", {}).get("example")
        return {"text": "A text", "context": "", "likeliest": []} | (found or {})

    def method_rows(self) -> list[dict[str, Any]]:
        """Return the table of the figures over all texts, by method."""
        names = {name: Markdown(f"`{name}`: {meaning}") for name, meaning in METHODS.items()}
        rows = [{"method": names[name]} | rates(entry) for name, entry in self.methods.items()]
        return [*rows, {"method": "the most frequent codes"} | rates(self.evaluation["labels"]["baseline"])]

    def part_rows(self) -> list[list[dict[str, Any]]]:
        """Return the tables of the main method's figures by language, by context and by column of labels."""
        own, tables = self.methods[self.evaluation["labels"]["method"]], []
        if len(own["languages"]) > 1:
            rows = own["languages"].items()
            tables.append([{"language": self.languages[key]["name"]} | rates(entry) for key, entry in rows])
        if len(own["contexts"]) > 1:
            tables.append([{"context": context_name(entry)} | rates(entry) for entry in own["contexts"]])
        if own["columns"]:
            columns = {"texts": "texts", "found": "codes found", "top_1": "top 1", "top_3": "top 3", "top_5": "top 5"}
            rows = own["columns"].items()
            shown = [{"column of labels": short(n)} | {columns[k]: entry[k] for k in columns} for n, entry in rows]
            tables.append(shown)
        return tables

    def mistake_rows(self) -> list[dict[str, Any]]:
        """Return the table of the most frequent mistakes."""
        return [
            {
                "true code": called(entry["true"]),
                "predicted": called(entry["predicted"]),
                "texts": entry["count"],
                "for example": short(entry["examples"][0]["text"]),
            }
            for entry in self.methods[self.evaluation["labels"]["method"]]["mistakes"][:MISTAKES]
        ]

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


def completed(
    config: dict[str, Any], evaluation: dict[str, Any], variant: str, corpora: list[schema.Corpus]
) -> dict[str, Any]:
    """Return config.json of an exported folder with what is known after the evaluation.

    Its `labels` get up to four more keys: the `names` of codes; the `threshold`, the probability from which on the
    classifier gives a second or later code; `cleaning`, which says how all training text was cleaned, so that other
    texts can be cleaned in the same way; and whether the training text had `contexts`. `corpora`: the settings of the
    corpora that the model was trained on.
    """
    found = evaluation["labels"]
    names = {entry["code"]: entry["name"] for entry in found["codes"] if "name" in entry}
    best = found["figures"][variant]["linear"]["threshold"]
    contexts = any(corpus.context_column or corpus.context for corpus in corpora)
    cleaning: dict[str, str] = {}
    for key, neutral in Cleaning()._asdict().items():
        values = {getattr(corpus, key) for corpus in corpora}
        cleaning |= {key: values.pop()} if len(values - {neutral}) == len(values) == 1 else {}
    more = {"names": names, "threshold": best and best["value"], "cleaning": cleaning}
    return config | {
        "labels": config["labels"] | {key: value for key, value in more.items() if value} | {"contexts": contexts}
    }


def rates(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of texts as a part of a row of a table."""
    micro = entry["micro"]
    found = {"exact": entry["exact"], "precision": micro["precision"], "recall": micro["recall"], "F1": micro["f1"]}
    found |= {"macro F1": entry["macro"]["f1"]} | {f"top {k}": entry[f"top_{k}"] for k in (1, 3, 5)}
    return {"texts": entry["texts"]} | {name: f"{rate:.3f}" for name, rate in found.items()}


def context_name(entry: dict[str, Any]) -> str:
    """Return the name of a context, for a table."""
    if entry["context"] is None:
        return f"{entry['contexts']:,} others"
    return code(short(entry["context"])) or "none"


def called(entry: dict[str, Any] | None) -> str:
    """Return a code with its name; "none" if there is no code."""
    if entry is None:
        return "none"
    return Markdown(f"{code(short(entry['code']))} {markdown(short(entry.get('name', '')))}".strip())


def short(text: str) -> str:
    """Return text as one line of at most 80 characters, for a table."""
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"


def draw(evaluation: dict[str, Any], variant: str, name: str, file: IO[bytes]) -> None:
    """Draw a PNG of two panels.

    The left panel shows the share of texts whose most probable code is right, over the probability of this code, and
    the number of texts in each bin. The right panel shows shares of texts that are right.
    """
    from matplotlib.figure import Figure

    found = evaluation["labels"]["figures"][variant]
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], [0, 1], color="grey", lw=1, ls="--", label="perfect calibration")
    counts = left.twinx()
    for (method, figures), colour, marker in zip(found.items(), COLOURS, "os", strict=False):
        bins, error = figures["calibration"]["bins"], figures["calibration"]["expected_error"]
        known = [entry for entry in bins if entry["texts"]]
        points = [entry["chance"] for entry in known], [entry["right"] for entry in known]
        left.plot(*points, color=colour, marker=marker, lw=1.4, label=f"{method} (error {error:.3f})")
        edges = [i / len(bins) for i in range(len(bins) + 1)]
        counts.stairs([entry["texts"] for entry in bins], edges, color=colour, alpha=0.2, fill=True)
    counts.set(ylabel="texts in the bin (areas)", ylim=(0, 2.5 * counts.get_ylim()[1]))
    left.set(title="Reliability", xlabel="probability of the most probable code", ylabel="share that is right")
    left.set(xlim=(0, 1), ylim=(0, 1.02))
    left.grid(alpha=0.3)
    left.legend(fontsize="small", **BELOW)
    _bars(right, found)
    figure.suptitle(f"{name}: {evaluation['documents']['scored']:,} validation texts")
    figure.savefig(file, format="png", dpi=120, metadata={"Software": None})


def _bars(axes: Any, found: dict[str, Any]) -> None:
    """Draw the shares of texts that are right: all codes, one of the most probable codes, the first symbols."""
    names: list[str] = []
    width = 0.8 / len(found)
    for place, ((method, figures), colour) in enumerate(zip(found.items(), COLOURS, strict=False)):
        shares = {"exact": figures["exact"]} | {f"top\n{k}": figures[f"top_{k}"] for k in (1, 3, 5)}
        shares |= {f"first\n{n}": share for n, share in enumerate(figures["digits"][:8], 1)}
        names = list(shares)
        at = [i + (place - (len(found) - 1) / 2) * width for i in range(len(names))]
        axes.bar(at, list(shares.values()), width, color=colour, label=method)
    axes.set_xticks(range(len(names)), names, fontsize="small")
    axes.set(title="Share of texts that are right", ylim=(0, 1.02))
    axes.set(xlabel="n most probable codes; first n symbols of the code")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize="small", **BELOW)
