"""Write the model card. It says what stages have measured and what the user has declared, and nothing else.

The prose is in the template `card.md` and in what it includes. This module holds the facts and makes the tables, and
the front matter with a model-index, so that the Hub shows the results next to those of other models. The stage
`convert` writes the card; `labels/card.py` is the card of a label model.

When a repository's model is converted again, its licence, languages and other declared fields stay as they were, except
for the library and, if it no longer fits, the task. The new card replaces the sections about the use of the files. The
other sections follow under their own headings.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from huggingface_hub import EvalResult, ModelCardData

from babelmill import __version__
from babelmill.config.languages import UNSPACED
from babelmill.config.models import OBJECTIVES
from babelmill.config.schema import Export
from babelmill.core import escape
from babelmill.core.escape import Markdown, code, markdown
from babelmill.core.files import copy_file, read_text, write_text
from babelmill.core.words import plural
from babelmill.core.yaml_file import FRONT, front_matter
from babelmill.evaluation.metrics import (
    CLASSIFICATION,
    FILL_MASK,
    GENERATION,
    METRICS,
    Metric,
    metrics_of,
    shown,
    units,
)
from babelmill.evaluation.overlaps import MEANING, in_training_text
from babelmill.evaluation.suite_scores import chance, measure_of, sample_of, weighting
from babelmill.evaluation.tuned_scores import TunedScore
from babelmill.release.card import training_history
from babelmill.release.card.templates import render
from babelmill.release.card.training_history import PICTURE, RECORD, Line, read_record, training_hours

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")
METRICS_OF_TASKS = {"mcc": "matthews_correlation", "span_f1": "f1"}  # the Hub's names, where they are others
TASKS = (FILL_MASK, GENERATION)  # the first one that a model can do is its main one
GENERATED = 64  # how many tokens an example generates at most
# Types that transformers 4.57 can also read (tested). Others are new in 5, or have other names of weights in 4.57.
ALSO_IN_4 = ("bert", "distilbert", "electra", "gpt2", "llama", "mistral", "modernbert", "opt", "qwen3", "roberta")
# Headings of sections that the new card writes itself, since they must fit the new files.
SAID_ANEW = re.compile(
    r"\b(usage|use|using|quick|start|variants?|files?|config\w*|load\w*|example|inference|shape)\b", re.I
)

OF_A_SCRIPT = "Weights are the exact trained parameters"  # a sentence in the notes by BabyBabelLM's script


class SuiteScores(NamedTuple):
    """Holds the scores of a model on a suite."""

    title: str  # the name of the suite in the card
    found: dict[str, Any]  # scores.json
    # overlap.json, which says what of the suite stands in the training text; None if there is none.
    overlap: dict[str, Any] | None = None


class EarlierCard(NamedTuple):
    """Holds the card that a repository had before."""

    data: Mapping[str, Any] = {}  # its front matter
    sections: str = ""  # the sections that the new card does not replace, as Markdown

    def joined(self, ours: dict[str, Any], tasks: list[str]) -> dict[str, Any]:
        """Return the new front matter: `ours`, overridden by the declared fields. `tasks` are the model's tasks."""
        joined = ours | {key: value for key, value in self.data.items() if value is not None}
        joined["library_name"] = ours["library_name"]
        tags = self.data.get("tags") or []
        joined["tags"] = list(dict.fromkeys([*ours["tags"], *([tags] if isinstance(tags, str) else tags)]))
        if joined.get("pipeline_tag") not in tasks:
            joined["pipeline_tag"] = ours.get("pipeline_tag")
        return {key: value for key, value in joined.items() if value is not None}


def read_card(path: Path | None, where: str) -> EarlierCard:
    """Read a README.md (None: an empty card); raise a UserError if its front matter cannot be read."""
    if path is None:
        return EarlierCard()
    data = front_matter(path, f"{where}: the front matter of README.md")
    return EarlierCard(data, kept_sections(FRONT.sub("", read_text(path), count=1)))


def kept_sections(text: str) -> str:
    """Return the second-level sections that the new card does not replace. Headings in code blocks do not count."""
    sections, fenced = [""], False
    for line in text.splitlines(keepends=True):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        if not fenced and re.match(r"##? ", line):
            sections.append("")
        sections[-1] += line
    kept = [each.strip() for each in sections if each.startswith("## ") and OF_A_SCRIPT not in each]
    return "\n\n".join(each for each in kept if not SAID_ANEW.search(each.partition("\n")[0]))


@dataclasses.dataclass(kw_only=True)
class ModelCard:
    """Holds all facts that the card of a model can state, and makes the card.

    All of it is data, and is escaped where it is written, except for `origin`, `earlier.sections`, `authors` and
    `description`, which are Markdown.
    """

    template: ClassVar[str] = "release/card/card.md"
    # {metric: (name on the Hub, description)}, if it has another
    hub_metrics: ClassVar[dict[str, tuple[str, str]]] = {}

    name: str  # the model's name: letters, digits and `-_./`
    export: Export  # the section by which the folder was made
    parameters: int  # the number of parameters. If the output matrix is the embedding, it counts once
    code: dict[str, str]  # {code file: sha256}
    languages: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  # {code: {"name", "tag", "script"}}
    # Sections of the training settings: `model` or another shape; `train` if known; and `mixture` if there are several
    # languages.
    settings: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    # license, authors, description: the values of the user's section `card`.
    license: str | None = None
    authors: list[str] = dataclasses.field(default_factory=list)
    description: str = ""
    origin: str = ""  # where the model comes from, if this workflow did not train it
    earlier: EarlierCard = dataclasses.field(default_factory=EarlierCard)  # the card of its repository before
    model_type: str | None = None  # the name that transformers gives to this kind of model; None for our architectures
    mask: str | None = "<mask>"  # the tokenizer's mask token; None if the tokenizer has no name for it
    padless: bool = False  # whether it is a transformers model whose configuration or tokenizer names no padding token
    published_tokenizer: bool = False  # whether the tokenizer is the unchanged one of a published model
    prefix_space: bool = False  # whether the tokenizer puts a space before each text (`tokenizer.prefix_space`)
    evaluation: dict[str, Any] = dataclasses.field(default_factory=dict)  # evaluation.json
    corpora: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  # {language: manifest of its corpus}
    tokenizer_source: str | None = None  # `tokenizer.source`, or the model that the tokenizer comes from
    # The model with whose weights training began: `name`, `sha256`, and what else is known about it.
    begun_with: dict[str, Any] | None = None
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)  # the figures in the train stage's manifest
    # The suites of minimal pairs that the model was scored on.
    suites: list[SuiteScores] = dataclasses.field(default_factory=list)
    # The scores of the model after it was fine-tuned for tasks.
    tuned: list[TunedScore] = dataclasses.field(default_factory=list)
    # {task: {"title", "protocol"}}: the names of tasks and protocols.
    about_tasks: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    snapshots: list[str] = dataclasses.field(default_factory=list)  # the names of the snapshots that the folder has
    metrics_file: Path | None = None  # metrics.jsonl of its training, if that is known

    def write(self, folder: Path) -> list[str]:
        """Write README.md and, if the training is known, its record and a picture. Return the names of the files."""
        write_text(folder / "README.md", self.text())
        if self.metrics_file:
            copy_file(self.metrics_file, folder / RECORD)
            training_history.draw(folder, self.name)
        return ["README.md", *(name for name in (RECORD, PICTURE) if (folder / name).is_file())]

    def text(self) -> str:
        return render(self.template, self.values())

    @cached_property
    def record(self) -> list[Line]:
        """Return the lines of metrics.jsonl, [] if it is not known."""
        return read_record(self.metrics_file) if self.metrics_file else []

    def values(self) -> dict[str, Any]:
        """Return what the template shows: the facts, the card itself, and functions that put facts into words."""
        versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
        functions = (chance, in_training_text, measure_of, origin_of_text, sample_of, scored_text, weighting)
        functions += (licences, separates_words, shown, units)
        values = {function.__name__: function for function in functions} | vars(self)
        return values | {
            "card": self,
            "name": Markdown(self.name),
            "origin": Markdown(self.origin),
            "description": Markdown(self.description),
            "authors": [Markdown(" ".join(author.split())) for author in self.authors],
            "earlier_sections": Markdown(self.earlier.sections),
            "made_by": f"Babelmill {__version__} with {versions}",
            "trust": Markdown("" if self.model_type else ", trust_remote_code=True"),
            "also_in_4": ALSO_IN_4,
            "meaning_of_overlap": MEANING,
            "record": self.record,
            "hours": training_hours(self.record),
        }

    @property
    def objective(self) -> str:
        """Return the training objective. If it is not known, this is "hybrid", as for the published models."""
        return self.settings.get("train", {}).get("objective", "hybrid")

    @property
    def scores(self) -> tuple[str, ...]:
        """Return the metrics by which a model of this objective is scored."""
        return OBJECTIVES[self.objective].scores

    @property
    def generated(self) -> int:
        """Return how many tokens an example generates by filling masks; 0 if the model does not generate so."""
        if not OBJECTIVES[self.objective].unmasks:
            return 0
        positions = self.settings.get("model", {}).get("max_position_embeddings", 2 * GENERATED)
        return min(GENERATED, max(1, positions // 2))

    @property
    def alignment(self) -> str:
        """Return the alignment: for which token a position has masked scores. Transformers models have "mlm"."""
        return "mlm" if self.model_type else self.export.logits_alignment

    @property
    def tasks(self) -> list[str]:
        """Return the tasks that the model can do without further training, by the Hub's names."""
        tasks = {METRICS[name].task for name in self.scores} - {FILL_MASK if self.alignment == "mntp" else ""}
        return [task for task in TASKS if task in tasks]

    @property
    def tags(self) -> list[str]:
        if self.model_type:
            return [self.model_type, "babylm"]
        return [*(["norbert4"] if self.is_norbert4 else []), "gpt-bert", "babylm", "custom_code"]

    @property
    def is_norbert4(self) -> bool:
        return self.settings.get("model", {}).get("architecture") == "norbert4"

    @property
    def lineage(self) -> list[dict[str, Any]]:
        """Return the model that training continued from, the model that this one continued from, and so on."""
        found, base = [], self.begun_with
        while base:
            found.append(base | {"name": without_path(base["name"])})
            base = base.get("source")
        return found

    @property
    def with_prompt(self) -> int:
        """Return how many training documents are a prompt and a response."""
        return sum(made["figures"].get("with_prompt", {"train": 0})["train"] for made in self.corpora.values())

    def front_matter(self) -> dict[str, Any]:
        """Return the card's front matter: languages, licence, tags, data and the model-index."""
        datasets = [dataset["repository"] for corpus in self.corpora.values() for dataset in datasets_of(corpus)]
        bases, results = [base["repository"] for base in self.lineage if "repository" in base], [*self.results()]
        card = ModelCardData(
            language=list(dict.fromkeys(each["tag"] for each in self.languages.values() if each["tag"])) or None,
            library_name="transformers",
            pipeline_tag=next(iter(self.tasks), None),
            tags=self.tags,
            license=self.license,
            datasets=list(dict.fromkeys(datasets)) or None,
            base_model=bases[-1] if bases else None,
            model_name=self.name if results else None,
            eval_results=results or None,
        )
        return self.earlier.joined(card.to_dict(), self.tasks)

    def results(self) -> Iterator[EvalResult]:
        """Yield the scores for the model-index: on the validation text, on suites, and after fine-tuning."""
        for key, entry in self.evaluation.get("languages", {}).items():
            for name, score in entry["variants"][self.export.default_variant].items() if key in self.languages else ():
                metric, title = self.metrics[name], f"{scored_text(entry)}, {self.languages[key]['name']}"
                kind = metric.unit.replace(" ", "_"), f"{metric.unit}{' at most' if metric.bound else ''}, {name}"
                kind, said = self.hub_metrics.get(name, kind)
                more: dict[str, Any] = {"metric_name": said, "dataset_config": key, "dataset_split": "validation"}
                yield EvalResult(metric.task, "babelmill-validation", title, kind, round(score["value"], 4), **more)
        for suite, key, method, share in self.suite_scores():
            hub, metric = suite.found["languages"][key]["pairs"]["hub"] or {}, measure_of(suite.found) or "accuracy"
            title = f"{suite.title}, {self.languages[key]['name']}"
            task = GENERATION if method == "causal" else FILL_MASK
            sample = f", {of}" if (of := sample_of(suite.found, method)) else ""
            more = {"metric_name": f"{metric}, {method} ({interval(share['interval'])}{sample})"}
            more |= {"dataset_config": key, "dataset_revision": hub.get("commit")}
            source, value = hub.get("repository", suite.found["suite"]), round(share["score"], 4)
            yield EvalResult(task, source, title, metric.lower(), value, **more)
        for each in self.tuned:
            about, metric = self.about_tasks[each.task], METRICS_OF_TASKS.get(each.metric, each.metric)
            how = f"{each.metric}, fine-tuned, {about['protocol']} protocol, {plural(each.seeds, 'seed')}"
            more = {"metric_name": f"{how} ({interval(each.interval)})"}
            more |= {"dataset_config": each.language, "dataset_split": "test"}
            task = "token-classification" if "kind" in about else CLASSIFICATION
            title = f"{about['title']}, {self.languages[each.language]['name']}"
            yield EvalResult(task, each.task, title, metric, round(each.mean, 4), **more)

    @property
    def metrics(self) -> dict[str, Metric]:
        return metrics_of(self.evaluation)

    def suite_scores(self) -> Iterator[tuple[SuiteScores, str, str, dict[str, Any]]]:
        """Yield each suite with a language, a method, and the score with its interval."""
        for suite in self.suites:
            for language, entry in suite.found["languages"].items():
                for method, shares in entry["methods"].items():
                    if share := shares[suite.found["headline"]["of"]]:
                        yield suite, language, method, share


def snapshot_card(model: str, snapshot: str, license: str, figures: dict[str, Any]) -> str:
    """Return the card of a snapshot of a model. `figures` are those in the manifest of the snapshot."""
    values = figures | {"name": Markdown(model), "snapshot": Markdown(snapshot), "license": license}
    return render("release/card/card.snapshot.md", values)


def shown_settings(settings: dict[str, Any], precision: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the sections of the training settings that a card shows. A section without any value is not shown.

    Settings leave out a key at its neutral value, so a section may be empty: `labels` of plain classes. `precision`:
    the one that ran, if it is known, since the settings may say `auto`.
    """
    shown = {name: settings[name] for name in ("model", "train", "mixture", "labels") if settings.get(name)}
    return shown | ({"train": settings["train"] | {"precision": precision}} if precision else {})


def without_path(source: str) -> str:
    """Return the name of a model or tokenizer. For a local file or folder, the name does not include its parents."""
    own = source.endswith(".json") or source.startswith(("./", "../", "/"))
    return Path(source).name if own else source


def scored_text(evaluation: dict[str, Any]) -> str:
    """Return which text was scored: all validation documents or a sample.

    `evaluation` is evaluation.json, or the entry of one language in it.
    """
    documents = evaluation["documents"]
    scored, whole, with_prompt = documents["scored"], documents["of"], documents.get("with_prompt", 0)
    text = f"{'all' if scored == whole else f'a sample of {scored:,} of the'} {whole:,} validation documents"
    if with_prompt == scored:
        text = f"the responses in {text}, given their prompts"
    elif with_prompt:
        text = f"{text} (only the response of the {with_prompt:,} with a prompt)"
    if lossy := documents.get("changed", 0):
        text = f"{text} (the tokenizer changes {lossy:,} of them, and the scores are those of the changed text)"
    return text


def datasets_of(corpus: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the Hub datasets that the text of a corpus came from, each with repository and commit."""
    hub = corpus["figures"].get("hub") or []
    return hub if isinstance(hub, list) else [hub]


def origin_of_text(corpus: dict[str, Any]) -> Markdown:
    """Return where the training text of a corpus manifest came from. `corpus.validation_files` do not count."""
    settings = corpus["settings"]["corpus"]
    aside = settings.get("validation_files", [])
    held_out = sum(listed["files"] for glob, listed in corpus["settings"].get("sources", {}).items() if glob in aside)
    files = len(corpus["figures"].get("sources") or []) - held_out
    parts = [plural(files, "local file")] if files else []
    parts += [markdown(settings["builtin"])] if settings.get("builtin") else []
    datasets = {(dataset["repository"], dataset["commit"]) for dataset in datasets_of(corpus)}
    parts += [f"{code(repository)} at {code(commit)}" for repository, commit in sorted(datasets)]
    text, budget = " and ".join(parts), settings.get("budget")
    if budget is not None:
        size = budget if isinstance(budget, str) else f"{budget:g} MB of English-equivalent text"
        text = f"{text}, a sample of {markdown(size)}"
    return Markdown(text)


def licences(corpus: dict[str, Any]) -> str:
    """Return the licences that the documents of a corpus name; if no document names one, those of the datasets."""
    if named := corpus["figures"].get("licenses"):
        return escape.some(sorted(named))
    declared = {dataset.get("license") for dataset in datasets_of(corpus)}
    return escape.some(sorted(f"{name} (the dataset's card)" if name else "unknown" for name in declared)) or "unknown"


def separates_words(language: dict[str, Any]) -> bool:
    """Return whether whitespace separates the words of a language, {"script"}."""
    return language.get("script") not in UNSPACED


def interval(ends: Sequence[float]) -> str:
    """Return a 95 % interval for the name of a metric."""
    return f"95 % interval {ends[0]:.3f} to {ends[1]:.3f}"
