"""Write the model card. It says what stages have measured and what the user has declared, and nothing else.

The prose is in the template `card.md` and in what it includes. This module holds the facts and makes the tables, and
the front matter with a model-index, so that the Hub shows the results next to those of other models. The stage
`convert` writes the card; `labels/card.py` is the card of a label model.
"""

import dataclasses
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from huggingface_hub import EvalResult, ModelCardData
from huggingface_hub.utils import yaml_dump

from babelmill import __version__
from babelmill.config.languages import UNSPACED
from babelmill.config.layers import flatten
from babelmill.config.objectives import OBJECTIVES
from babelmill.core import escape
from babelmill.core.escape import Markdown, code, markdown, plain
from babelmill.core.files import write_text
from babelmill.core.words import plural
from babelmill.evaluation.metrics import METRICS, Metric, metrics_of, shown, units
from babelmill.evaluation.overlaps import MEANING, in_training_text
from babelmill.evaluation.suite_scores import chance, measure_of, sample_of
from babelmill.evaluation.tuned_scores import TunedScore
from babelmill.release.card import training_history
from babelmill.release.card.earlier_card import EarlierCard
from babelmill.release.card.templates import render
from babelmill.release.card.training_history import Line, training_hours

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")
TASKS = ("fill-mask", "text-generation")  # the first one that a model can do is its main one
GENERATED = 64  # how many tokens an example generates at most
# Types that transformers 4.57 can also read (tested). Others are new in 5, or have other names of weights in 4.57.
ALSO_IN_4 = ("bert", "distilbert", "electra", "gpt2", "llama", "mistral", "modernbert", "opt", "qwen3", "roberta")
# How the methods score the sentences of suites, in the order of the table.
SUITE_METHODS = {
    "causal": "each token, given the tokens before it",
    "masked": "each token, hidden one at a time, given all others",
    "fused": "the sum of both",
    "bound": "the evidence lower bound of masked diffusion",
}


class SuiteScores(NamedTuple):
    """Holds the scores of a model on a suite of minimal pairs, or of another kind."""

    title: str  # the name of the suite in the card
    found: dict[str, Any]  # scores.json
    baselines: list[dict[str, Any]]  # the suite's baselines (`entries.Baseline`), as mappings
    # overlap.json, which says what of the suite stands in the training text; None if there is none.
    overlap: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        return self.found.get("kind", "pairs")

    @property
    def measure(self) -> str:
        """Return what its score is, "" if it is a share of right answers."""
        return measure_of(self.found)

    @property
    def methods(self) -> list[str]:
        """Return the methods by which sentences were scored. The last one is the main method."""
        first = next(iter(self.found["languages"].values()))
        return list(first["methods"])

    def score(self, language: str, method: str) -> dict[str, Any] | None:
        """Return the score of a language with its interval, or None if no item has a score."""
        return self.found["languages"][language]["methods"][method][self.found["headline"]["of"]]


def percent(share: dict[str, Any] | None) -> str:
    """Return a share with its interval and its number of pairs, such as 81.2 (79.9 to 82.5), n = 67,000."""
    if share is None:
        return ""
    low, high = (100 * end for end in share["interval"])
    return f"{100 * share['score']:.1f} ({low:.1f} to {high:.1f}), n = {share['n']:,}"


@dataclasses.dataclass(kw_only=True)
class ModelCard:
    """Holds all facts that the card of a model can state, and makes the card.

    All of it is data, and is escaped where it is written, except for `origin`, `earlier.sections`, `authors` and
    `description`, which are Markdown.
    """

    template: ClassVar[str] = "release/card/card.md"
    hub_metrics: ClassVar[
        dict[str, tuple[str, str]]
    ] = {}  # {metric: (name on the Hub, description)}, if it has another

    name: str  # the model's name: letters, digits and `-_./`
    # variants, default_variant, logits_alignment: as in the export of the folder.
    variants: list[str]
    default_variant: str
    parameters: int  # the number of parameters. If the output matrix is the embedding, it counts once
    code: dict[str, str]  # {code file: sha256}
    languages: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  # {code: {"name", "tag", "script"}}
    # Sections of the training settings: `model` or another shape; `train` if known; and `mixture` if there are several
    # languages.
    settings: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    # license, authors, description, carbon_grams: the values of the user's section `card`.
    license: str | None = None
    authors: list[str] = dataclasses.field(default_factory=list)
    description: str = ""
    carbon_grams: float | None = None
    origin: str = ""  # where the model comes from, if this workflow did not train it
    earlier: EarlierCard | None = None  # the card that the model's repository had before
    logits_alignment: str = "mlm"
    model_type: str | None = None  # the name that transformers gives to this kind of model; None for our architectures
    mask: str | None = "<mask>"  # the tokenizer's mask token; None if the tokenizer has no name for it
    padless: bool = False  # whether it is a transformers model whose configuration or tokenizer names no padding token
    adapter: str = "none"  # `export.adapter`, which says whether the folder has no adapters, only adapters, or both
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
    # {task: {"title", "protocol", "baselines"}}: the names of tasks and protocols, and published scores.
    about_tasks: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    snapshots: list[str] = dataclasses.field(default_factory=list)  # the names of the snapshots that the folder has
    record: list[Line] | None = None  # the lines of metrics.jsonl; if it is None, the card shows no picture

    def write(self, folder: Path) -> list[str]:
        """Write README.md and, if there is a record, the training history. Return the names of the files."""
        write_text(folder / "README.md", self.text())
        return ["README.md", *([] if self.record is None else training_history.write(folder, self.record, self.name))]

    def text(self) -> str:
        return render(self.template, self.values())

    def values(self) -> dict[str, Any]:
        """Return what the template shows: the facts, and the card itself with its tables."""
        versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
        return vars(self) | {
            "card": self,
            "name": Markdown(self.name),
            "origin": Markdown(self.origin),
            "description": Markdown(self.description),
            "authors": [Markdown(" ".join(author.split())) for author in self.authors],
            "earlier_sections": Markdown(self.earlier.sections if self.earlier else ""),
            "made_by": f"Babelmill {__version__} with {versions}",
            "trust": Markdown("" if self.model_type else ", trust_remote_code=True"),
            "also_in_4": ALSO_IN_4,
            "scored_text": scored_text,
            "meaning_of_overlap": MEANING,
            "units": units,
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
        return "mlm" if self.model_type else self.logits_alignment

    @property
    def tasks(self) -> list[str]:
        """Return the tasks that the model can do without further training, by the Hub's names."""
        tasks = {METRICS[name].task for name in self.scores} - {"fill-mask" if self.alignment == "mntp" else ""}
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
    def architecture(self) -> Markdown:
        """Return what kind of network the model is."""
        if self.model_type:
            return code(self.model_type)
        gpt_bert = "[GPT-BERT](https://arxiv.org/abs/2410.24159)"
        return Markdown(f"NorBERT4 (second-generation {gpt_bert})" if self.is_norbert4 else gpt_bert)

    @property
    def size(self) -> str:
        """Return the number of parameters as text."""
        return f"{self.parameters:,}" if self.parameters < 1e6 else f"{self.parameters / 1e6:.1f} million"

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

    @property
    def may_forget_instructions(self) -> bool:
        """Return whether a model tuned on instructions was trained on text without prompts."""
        raw = any(not made["settings"]["corpus"].get("prompt_column") for made in self.corpora.values())
        return raw and any(base.get("instructed") for base in self.lineage)

    @property
    def counted_by_bytes(self) -> list[str]:
        """Return the names of the languages whose words no spaces separate."""
        return [language["name"] for language in self.languages.values() if not separates_words(language)]

    @cached_property
    def hours(self) -> float | None:
        """Return the hours that the training steps took, if they are known."""
        return None if self.record is None else training_hours(self.record)

    def front_matter(self) -> Markdown:
        """Return the card's front matter in YAML: languages, licence, tags, data, carbon and the model-index."""
        results = self.text_results() + self.suite_results() + self.tuned_results()
        datasets = [dataset["repository"] for corpus in self.corpora.values() for dataset in datasets_of(corpus)]
        known: dict[str, Any] = {"license": self.license, "datasets": list(dict.fromkeys(datasets)) or None}
        if bases := [base["repository"] for base in self.lineage if "repository" in base]:
            known["base_model"] = bases[-1]
        if self.carbon_grams is not None:
            known["co2_eq_emissions"] = {"emissions": self.carbon_grams, "training_type": "pre-training"}
        if results:
            known |= {"model_name": self.name, "eval_results": results}
        card = ModelCardData(
            language=list(dict.fromkeys(each["tag"] for each in self.languages.values() if each["tag"])) or None,
            library_name="transformers",
            pipeline_tag=next(iter(self.tasks), None),
            tags=self.tags,
            **known,
        )
        front = plain(card.to_dict())
        if self.earlier:
            front = self.earlier.joined(front, self.tasks)
        return Markdown(yaml_dump(front, sort_keys=False).strip())

    def text_results(self) -> list[EvalResult]:
        """Return the lines of the model-index for the validation text: one for each language and metric."""
        found = []
        for key, entry in self.evaluation.get("languages", {}).items():
            if key not in self.languages:
                continue
            for name, score in entry["variants"][self.default_variant].items():
                metric = self.metrics[name]
                kind = metric.unit.replace(" ", "_"), f"{metric.unit}{' at most' if metric.bound else ''}, {name}"
                metric_type, metric_name = self.hub_metrics.get(name, kind)
                found.append(
                    EvalResult(
                        task_type=metric.task,
                        dataset_type="babelmill-validation",
                        dataset_name=f"{scored_text(entry)}, {self.languages[key]['name']}",
                        dataset_config=key,
                        dataset_split="validation",
                        metric_type=metric_type,
                        metric_name=metric_name,
                        metric_value=round(score["value"], 4),
                    )
                )
        return found

    def suite_results(self) -> list[EvalResult]:
        """Return the lines of the model-index for the suites: one for each suite, language and method."""
        found = []
        for suite in self.suites:
            for key, entry in suite.found["languages"].items():
                for name in suite.methods:
                    if share := suite.score(key, name):
                        hub, metric = entry["pairs"]["hub"] or {}, suite.measure or "accuracy"
                        low, high = share["interval"]
                        some = f", {of}" if (of := sample_of(suite.found, name)) else ""
                        found.append(
                            EvalResult(
                                task_type="text-generation" if name == "causal" else "fill-mask",
                                dataset_type=hub.get("repository", suite.found["suite"]),
                                dataset_name=f"{suite.title}, {self.languages[key]['name']}",
                                dataset_config=key,
                                dataset_revision=hub.get("commit"),
                                metric_type=metric.lower(),
                                metric_name=f"{metric}, {name} (95 % interval {low:.3f} to {high:.3f}{some})",
                                metric_value=round(share["score"], 4),
                            )
                        )
        return found

    def tuned_results(self) -> list[EvalResult]:
        """Return the lines of the model-index for the tasks that the model was fine-tuned for."""
        return [
            EvalResult(
                task_type="token-classification" if "kind" in self.about_tasks[each.task] else "text-classification",
                dataset_type=each.task,
                dataset_name=f"{self.about_tasks[each.task]['title']}, {self.languages[each.language]['name']}",
                dataset_config=each.language,
                dataset_split="test",
                metric_type={"mcc": "matthews_correlation", "span_f1": "f1"}.get(each.metric, each.metric),
                metric_name=f"{each.metric}, fine-tuned, {self.about_tasks[each.task]['protocol']} protocol,"
                f" {plural(each.seeds, 'seed')} (95 % interval {each.interval[0]:.3f} to {each.interval[1]:.3f})",
                metric_value=round(each.mean, 4),
            )
            for each in self.tuned
        ]

    @property
    def metrics(self) -> dict[str, Metric]:
        return metrics_of(self.evaluation)

    def score_rows(self) -> list[dict[str, Any]]:
        """Return the table of scores by language and variant, with those of the unigram model."""
        return [
            {"language": self.languages[language]["name"], "weights": variant}
            | {name: shown(score, self.metrics[name]) for name, score in scores.items()}
            | {"unigram model": shown(entry["unigram"])}
            for language, entry in self.evaluation["languages"].items()
            for variant, scores in entry["variants"].items()
        ]

    def suites_by_kind(self) -> list[tuple[str, list[SuiteScores]]]:
        """Return the suites of minimal pairs, those of choices, and all others, without empty groups."""
        kinds = {kind: [suite for suite in self.suites if suite.kind == kind] for kind in ("pairs", "choices")}
        kinds["others"] = [suite for suite in self.suites if suite.kind not in kinds]
        return [(kind, suites) for kind, suites in kinds.items() if suites]

    def suite_methods(self, suites: list[SuiteScores]) -> dict[str, str]:
        """Return the methods that scored suites, and what they mean."""
        scored = {name for suite in suites for name in suite.methods}
        return {name: meaning for name, meaning in SUITE_METHODS.items() if name in scored}

    def suite_rows(self, suites: list[SuiteScores]) -> list[dict[str, Any]]:
        """Return the table of scores on suites, by language and method."""
        methods = self.suite_methods(suites)
        return [
            {"suite": suite.title, "language": self.languages[language]["name"]}
            | {n: percent(suite.score(language, n)) if n in suite.methods else "" for n in methods}
            for suite in suites
            for language in suite.found["languages"]
        ]

    def tuned_rows(self) -> list[dict[str, Any]]:
        """Return the table of scores after fine-tuning, by task and language."""
        rows = [
            {
                "task": self.about_tasks[each.task]["title"],
                "language": self.languages[each.language]["name"],
                "protocol": self.about_tasks[each.task]["protocol"],
                "metric": {"f1": "F1", "mcc": "MCC", "span_f1": "span F1"}.get(each.metric, each.metric),
                "score": each.text,
                "": each.remarks,
            }
            for each in self.tuned
        ]
        known = [column for column in (rows[0] if rows else []) if any(row[column] for row in rows)]
        return [{column: row[column] for column in known} for row in rows]

    def published_rows(self, suites: list[SuiteScores]) -> list[dict[str, Any]]:
        """Return the table of published scores on suites, for comparison."""
        return [
            {"suite": suite.title, "language": self.languages[line["language"]]["name"]}
            | {key: line[key] for key in ("model", "score", "pipeline")}
            for suite in suites
            for line in suite.baselines
            if line["language"] in suite.found["languages"]
        ]

    def overlaps(self, suites: list[SuiteScores]) -> list[tuple[str, str, str]]:
        """Return (suite, language, what of it stands in the training text) for the suites of which this is known."""
        return [
            (suite.title, self.languages[language]["name"], in_training_text(suite.overlap, language))
            for suite in suites
            if suite.overlap
            for language in suite.found["languages"]
        ]

    def chances(self, suites: list[SuiteScores]) -> dict[str, list[str]]:
        """Return {chance in percent: the suites of choices where guessing gets this score}."""
        found: dict[str, list[str]] = {}
        for suite in suites:
            if suite.kind == "choices" and not suite.measure:
                found.setdefault(f"{100 * chance(suite.found):.3g}", []).append(suite.title)
        return found

    def samples(self, suites: list[SuiteScores]) -> dict[str, list[str]]:
        """Return {description of a sample of pairs: the methods that scored only this sample}."""
        found: dict[str, set[str]] = {}
        for suite in suites:
            for name in suite.methods:
                found.setdefault(sample_of(suite.found, name), set()).add(name)
        return {sample: sorted(names) for sample, names in found.items() if sample}

    def pair_sources(self, suites: list[SuiteScores]) -> list[tuple[str, str]]:
        """Return the repositories and commits that the pairs or items of suites come from."""
        entries = [entry for suite in suites for entry in suite.found["languages"].values()]
        hubs = [hub for entry in entries if (hub := entry["pairs"]["hub"])]
        return list(dict.fromkeys((hub["repository"], hub["commit"]) for hub in hubs))

    def loss_rows(self) -> list[dict[str, Any]]:
        """Return the table of the validation losses before and after training, as training measured them.

        Each loss is named by its kind of rows (`record.py`). The table is empty if training began with random weights,
        or if the losses are not known for the same text.
        """
        lines = [line for line in self.record or [] if line["kind"] == "validation"]
        if not self.begun_with or not lines or lines[0]["step"] != 0:
            return []
        before, after = lines[0], lines[-1]
        if before.get("targets") != after.get("targets"):
            return []  # `run.validation_tokens` changed meanwhile, so this is another sample of the text
        base = self.begun_with.get("repository") or without_path(self.begun_with["name"])
        prefix = "ema_loss_" if self.default_variant == "ema" else "loss_"
        return [
            {
                "prediction": name.removeprefix(prefix),
                code(base): before[name],
                "this model": "unknown" if after[name] is None else after[name],
            }
            for name in before
            if name.startswith(prefix) and before[name] is not None
        ]

    def data_rows(self) -> list[dict[str, Any]]:
        """Return the table of size, origin and licence of each language's text, without the columns that are empty."""
        shares = self.figures.get("shares", {})
        rows = [
            {
                "language": self.languages[key]["name"],
                "source": origin_of_text(made),
                "documents": made["figures"]["documents"]["train"],
                "words": words_cell(made, self.languages[key]),
                "MB": made["figures"]["bytes"]["train"] / 1e6,
                "share of training": f"{100 * shares[key]:.1f} %" if shares else "",
                "licence of the text": licences(made),
            }
            for key, made in self.corpora.items()
        ]
        known = [column for column in rows[0] if any(row[column] for row in rows)]
        return [{column: row[column] for column in known} for row in rows]

    def tokenizer_rows(self) -> list[dict[str, Any]]:
        """Return the table of the tokenizer's figures on the validation text of each language."""
        keys = ("bytes_per_token", "tokens_per_word", "vocabulary_used", "round_trip_rate")
        return [
            {"language": self.languages[language]["name"]} | {key.replace("_", " "): float(entry[key]) for key in keys}
            for language, entry in self.evaluation["tokenizer"].items()
        ]

    def settings_rows(self) -> list[list[dict[str, Any]]]:
        tables = []
        for section, values in self.settings.items():
            unused = ["epochs"] if values.get("max_steps") or values.get("words") else []
            known = flatten({key: value for key, value in values.items() if key not in unused}, f"{section}.")
            tables.append([{"setting": code(key), "value": value} for key, value in known.items()])
        return tables

    def code_rows(self) -> list[dict[str, Any]]:
        return [{"code file": code(name), "sha256": code(digest)} for name, digest in sorted(self.code.items())]


def snapshot_card(model: str, snapshot: str, license: str, figures: dict[str, Any]) -> str:
    """Return the card of a snapshot of a model. `figures` are those in the manifest of the snapshot."""
    values = {
        "name": Markdown(model),
        "snapshot": Markdown(snapshot),
        "front_matter": Markdown(yaml_dump({"license": plain(license)}).strip()),
        "read": [f"{figures[unit]:,} {unit}" for unit in ("tokens", "words") if unit in figures],
    }
    return render("release/card/card.snapshot.md", figures | values)


def shown_settings(settings: dict[str, Any], precision: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the sections of the training settings that a card shows. A section without any value is not shown.

    Settings leave out a key at its neutral value, so a section may be empty: `labels` of plain classes. `precision`:
    the one that ran, if it is known, since the settings may say `auto`.
    """
    names = ["model", "train", *(["mixture"] if len(settings["languages"]) > 1 else [])]
    if settings["train"].get("objective") == "labels":
        names.append("labels")
    shown = {name: settings[name] for name in names if settings.get(name)}
    return shown | ({"train": settings["train"] | {"precision": precision}} if precision else {})


def without_path(source: str) -> str:
    """Return the name of a model or tokenizer. For a local file or folder, the name does not include its parents."""
    own = source.endswith(".json") or source.startswith(("./", "../", "/"))
    return Path(source).name if own else source


def scored_text(evaluation: dict[str, Any]) -> str:
    """Return which text was scored: all validation documents or a sample.

    `evaluation` is evaluation.json, or the entry of one language in it.
    """
    scored, all_of = evaluation["documents"]["scored"], evaluation["documents"]["of"]
    text = f"all {all_of:,} validation documents"
    if "with_code" in evaluation["documents"]:
        text = f"all {scored:,} validation texts with a code"
    elif scored != all_of:
        text = f"a sample of {scored:,} of the {all_of:,} validation documents"
    with_prompt = evaluation["documents"].get("with_prompt", 0)
    if with_prompt == scored:
        text = f"the responses in {text}, given their prompts"
    elif with_prompt:
        text = f"{text} (only the response of the {with_prompt:,} with a prompt)"
    if lossy := evaluation["documents"].get("changed", 0):
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


def words_cell(corpus: dict[str, Any], language: dict[str, Any]) -> int | str:
    """Return the number of words of a corpus's training text; "" if no spaces separate words."""
    return corpus["figures"]["words"]["train"] if separates_words(language) else ""
