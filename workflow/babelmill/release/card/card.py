"""Write the model card. It says what stages have measured and what the user has declared, and nothing else.

The stage `convert` writes it. `huggingface_hub` writes the front matter, with a model-index, so that the Hub shows the
results next to those of other models.
"""

import dataclasses
import math
from importlib import metadata
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData
from huggingface_hub.utils import yaml_dump

from babelmill import __version__
from babelmill.config.layers import flatten
from babelmill.config.objectives import OBJECTIVES
from babelmill.core.escape import code, markdown, plain
from babelmill.core.files import atomic_write
from babelmill.evaluation.metrics import METRICS, metrics_of, shown, units, value_of
from babelmill.labels import card as label_card
from babelmill.labels import picture
from babelmill.release.card import suite_card, training_history
from babelmill.release.card.card_beginning import base_model, before_and_after, beginning, instructed
from babelmill.release.card.card_data import datasets_of, separates_words, training_data, with_prompt
from babelmill.release.card.card_table import table
from babelmill.release.card.card_usage import GENERATED, SNIPPETS, adapter_use, notes, pipelines, use, weights
from babelmill.release.card.earlier_card import EarlierCard
from babelmill.release.card.suite_card import Scored
from babelmill.release.card.training_history import PICTURE, Line, read_record, training_hours

PAPER = "https://arxiv.org/abs/2410.24159"
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")


@dataclasses.dataclass
class Facts:
    """Holds all facts that a card can state.

    Attributes:
        name: the model's name.
        variants, default_variant, logits_alignment: as in the export of the folder.
        parameters: the number of parameters. If the output matrix is the embedding, it counts once.
        code: {code file: sha256}.
        languages: {code: {"name", "tag", "script"}}.
        settings: sections of the training settings: `model` or another shape; `train` if known; and `mixture` if there
            are several languages.
        license, authors, description, carbon_grams: the values of the user's section `card`.
        model_type: the name that transformers gives to this kind of model; None for a GPT-BERT.
        mask: the tokenizer's mask token; None if the tokenizer has no name for it.
        padless: whether it is a model of transformers whose configuration or tokenizer names no padding token.
        adapter: `export.adapter`, which says whether the folder has no adapters, only adapters, or both.
        published_tokenizer: whether the tokenizer is the unchanged one of a published model.
        origin: where the model comes from, if this workflow did not train it.
        earlier: the card that the model's repository had before.
        evaluation: evaluation.json.
        corpora: {language: manifest of its corpus}.
        tokenizer_source: `tokenizer.source`, or the model that the tokenizer comes from.
        begun_with: the model with whose weights training began: `name`, `sha256`, and what else is known about it.
        figures: the figures in the train stage's manifest.
        labels: `labels` in config.json, if this is a model of labels.
        suites: the suites of minimal pairs that the model was scored on.
        snapshots: the names of the snapshots that the folder has.

    All of it is data, and is escaped where it is written, except for `origin`, `earlier.sections`, `authors` and
    `description`, which are Markdown.
    """

    name: str
    variants: list[str]
    default_variant: str
    parameters: int
    code: dict[str, str]
    languages: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    license: str | None = None
    authors: list[str] = dataclasses.field(default_factory=list)
    description: str = ""
    carbon_grams: float | None = None
    origin: str = ""
    earlier: EarlierCard | None = None
    logits_alignment: str = "mlm"
    model_type: str | None = None
    mask: str | None = "<mask>"
    padless: bool = False
    adapter: str = "none"
    published_tokenizer: bool = False
    evaluation: dict[str, Any] | None = None
    corpora: dict[str, dict[str, Any]] | None = None
    tokenizer_source: str | None = None
    begun_with: dict[str, Any] | None = None
    figures: dict[str, Any] | None = None
    labels: dict[str, Any] | None = None
    suites: list[Scored] = dataclasses.field(default_factory=list)
    snapshots: list[str] = dataclasses.field(default_factory=list)

    @property
    def objective(self) -> str:
        """Return the training objective. If it is not known, this is "hybrid", as for the published models."""
        return self.settings.get("train", {}).get("objective", "hybrid")

    @property
    def scores(self) -> tuple[str, ...]:
        """Return the metrics by which a model of this objective is scored."""
        return OBJECTIVES[self.objective].scores

    @property
    def unmasks(self) -> int:
        """Return how many tokens the model can read, if it generates by filling masks; 0 if it does not."""
        if not OBJECTIVES[self.objective].unmasks:
            return 0
        return self.settings.get("model", {}).get("max_position_embeddings", 2 * GENERATED)

    @property
    def gated(self) -> bool:
        """Return whether attention has gates."""
        return self.settings.get("model", {}).get("gate", True)

    @property
    def alignment(self) -> str:
        """Return the alignment: for which token a position has masked scores. Models of transformers have "mlm"."""
        return "mlm" if self.model_type else self.logits_alignment

    @property
    def tasks(self) -> list[str]:
        """Return the tasks that the model can do without further training, by the Hub's names."""
        if self.labels:
            return [label_card.TASK]
        tasks = {METRICS[name].task for name in self.scores} - {"fill-mask" if self.alignment == "mntp" else ""}
        return [task for task in SNIPPETS if task in tasks]


def shown_settings(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sections of the training settings that a card shows. A section without any value is not shown.

    Settings leave out a key at its neutral value, so a section may be empty: `labels` of plain classes.
    """
    names = ["model", "train", *(["mixture"] if len(settings["languages"]) > 1 else [])]
    if settings["train"].get("objective") == "labels":
        names.append("labels")
    return {name: settings[name] for name in names if settings.get(name)}


TRAINED = {
    "hybrid": "trained on masked and causal prediction at once: one set of weights fills masks and generates text",
    "masked": "trained on masked prediction, to fill masks",
    "causal": "trained on causal prediction, to generate text",
    "diffusion": "trained by masked diffusion, to generate text in any order and to fill masks",
    "labels": "trained to predict the codes of texts",
}


def front_matter(facts: Facts) -> str:
    """Return the card's front matter in YAML: languages, licence, tags, data, carbon and the model-index."""
    results = []
    if facts.evaluation:
        metrics = metrics_of(facts.evaluation)
        measured = {key: facts.languages[key] for key in facts.evaluation["languages"] if key in facts.languages}
        for key, language in measured.items():
            scores = facts.evaluation["languages"][key]["variants"][facts.default_variant]
            for name, score in scores.items():
                metric = metrics[name]
                kind = metric.unit.replace(" ", "_"), f"{metric.unit}{' at most' if metric.bound else ''}, {name}"
                kind = label_card.HUB_METRICS.get(name, kind)
                results.append(
                    EvalResult(
                        task_type=metric.task,
                        dataset_type="babelmill-validation",
                        dataset_name=f"{scored_text(facts.evaluation['languages'][key])}, {language['name']}",
                        dataset_config=key,
                        dataset_split="validation",
                        metric_type=kind[0],
                        metric_name=kind[1],
                        metric_value=round(value_of(score), 4),
                    )
                )
    results += suite_card.results(facts.suites, facts.languages)
    datasets = [dataset["repository"] for corpus in (facts.corpora or {}).values() for dataset in datasets_of(corpus)]
    known: dict[str, Any] = {"license": facts.license, "datasets": list(dict.fromkeys(datasets)) or None}
    if base := base_model(facts.begun_with):
        known["base_model"] = base
    if facts.carbon_grams is not None:
        known["co2_eq_emissions"] = {"emissions": facts.carbon_grams, "training_type": "pre-training"}
    card = ModelCardData(
        language=list(dict.fromkeys(language["tag"] for language in facts.languages.values() if language["tag"]))
        or None,
        library_name="transformers",
        pipeline_tag=next(iter(facts.tasks), None),
        tags=tags(facts),
        **({"model_name": facts.name, "eval_results": results} if results else {}),
        **known,
    )
    front = plain(card.to_dict())
    if facts.earlier:
        front = facts.earlier.joined(front, facts.tasks)
    return f"---\n{yaml_dump(front, sort_keys=False).strip()}\n---"


def tags(facts: Facts) -> list[str]:
    """Return the card's tags."""
    own = facts.model_type or "gpt-bert"
    if facts.labels:
        return [own, label_card.TASK, "custom_code"]
    return [own, "babylm"] if facts.model_type else [own, "babylm", "custom_code"]


def introduction(facts: Facts) -> str:
    """Return one or two sentences that say what the model is."""
    names = ", ".join(markdown(language["name"]) for language in facts.languages.values())
    count = f"{facts.parameters:,}" if facts.parameters < 1e6 else f"{facts.parameters / 1e6:.1f} million"
    trained = f", {TRAINED[facts.objective]}" if "train" in facts.settings else ""
    kind = code(facts.model_type) if facts.model_type else f"[GPT-BERT]({PAPER})"
    if facts.labels:
        return label_card.introduction(kind, names, count, facts.labels)
    return f"A {kind} language model{f' of {names}' if names else ''}: {count} parameters{trained}."


def results(evaluation: dict[str, Any], languages: dict[str, Any]) -> str:
    """Return the table of scores by language and variant, with those of the unigram model."""
    metrics, rows, names = metrics_of(evaluation), [], []
    for language, entry in evaluation["languages"].items():
        for variant, scores in entry["variants"].items():
            names = list(scores)
            cells = [shown(score, metrics[name]) for name, score in scores.items()]
            rows.append([languages[language]["name"], variant, *cells, shown(entry["unigram"])])
    return table(["language", "weights", *names, "unigram model"], rows)


def scored_text(evaluation: dict[str, Any]) -> str:
    """Return which text was scored: all validation documents or a sample.

    `evaluation` is evaluation.json, or the entry of one language in it.
    """
    if "documents" not in evaluation:  # an earlier version made the folder
        return "the validation text"
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


def tokenizer_figures(evaluation: dict[str, Any], languages: dict[str, Any]) -> str:
    """Return the table of the tokenizer's figures on the validation text of each language."""
    keys = ("bytes_per_token", "tokens_per_word", "vocabulary_used", "round_trip_rate")
    rows = [
        [languages[language]["name"], *(float(entry[key]) for key in keys)]
        for language, entry in evaluation["tokenizer"].items()
    ]
    return table(["language", *(key.replace("_", " ") for key in keys)], rows)


def words_in_all(facts: Facts) -> str:
    """Return how many words the model was trained on, and where they are counted by bytes; "" if it is not known."""
    words = (facts.figures or {}).get("words")
    if words is None:
        return ""
    by_bytes = [markdown(each["name"]) for each in facts.languages.values() if not separates_words(each)]
    measure = f" (in {', '.join(by_bytes)}, a fixed number of bytes counts as a word)" if by_bytes else ""
    return f", {words:,} words in all{measure}"


def training(facts: Facts, hours: float | None) -> list[str]:
    """Return the length, energy, carbon, curves and settings of the training run, as far as they are known."""
    parts, figures = [], facts.figures
    if figures:
        parts.append(
            f"{figures['steps']:,} steps, {figures['tokens']:,} tokens, {figures['epochs']:.1f} passes over the text"
            f"{words_in_all(facts)}."
        )
    if hours is not None:
        time = f"{hours:.2g} hours" if hours >= 0.1 else f"{hours * 60:.2g} minutes"
        energy = (figures or {}).get("energy_kwh")
        parts.append(f"The steps took {time}{'' if energy is None else f', and the GPUs used {energy:.2g} kWh'}.")
    if facts.carbon_grams is not None:
        parts.append(f"Its authors state that training emitted {facts.carbon_grams:,g} g of CO2 equivalent.")
    lines = [" ".join(parts)]
    if hours is not None:
        lines.append(f"![losses on the training and the validation text, learning rate, sequence length]({PICTURE})")
    for section, values in facts.settings.items():
        unused = ["epochs"] if values.get("max_steps") is not None else []
        known = flatten({key: value for key, value in values.items() if key not in unused}, f"{section}.")
        rows = [[code(key), value] for key, value in known.items()]
        lines.append(table(["setting", "value"], rows))
    return lines


def measured_results(evaluation: dict[str, Any], facts: Facts) -> list[str]:
    """Return the section with the scores and what they mean."""
    metrics, scores = metrics_of(evaluation), evaluation["variants"][facts.default_variant]
    meanings = "; ".join(f"{name}: {metrics[name].meaning}" for name in scores)
    perplexities = "".join(
        f" The default weights' {name} perplexity is {'at most ' if metrics[name].bound else ''}"
        f"{math.exp(score['nats_per_token']):.1f} per token, with a vocabulary of {evaluation['vocab_size']:,}."
        for name, score in scores.items()
        if metrics[name].perplexity
    )
    unit = units(evaluation)
    return [
        "## Results",
        f"{unit[0].upper()}{unit[1:]} of {scored_text(evaluation)}, on which the model was not trained, with"
        f" {evaluation['sequence_length']} tokens of context (lower is better), ± the standard error over documents."
        f" {meanings[0].upper()}{meanings[1:]}.{perplexities} The unigram model knows only how frequent each token is,"
        " and not its context: a model that is not better than the unigram model has learned little.",
        results(evaluation, facts.languages),
    ]


def tokenizer(evaluation: dict[str, Any], facts: Facts) -> list[str]:
    """Return the section about the tokenizer: where it comes from, and its figures."""
    source = facts.tokenizer_source
    kind = f"The tokenizer of {code(source)}, with" if source else "Byte-level BPE with"
    return [
        "## Tokenizer",
        f"{kind} {evaluation['vocab_size']:,} entries; {given_back(evaluation)}",
        tokenizer_figures(evaluation, facts.languages),
    ]


def given_back(evaluation: dict[str, Any]) -> str:
    """Return a sentence that says whether decoding restores every text."""
    if all(entry["round_trip_rate"] == 1 for entry in evaluation["tokenizer"].values()):
        return "decoding its tokens restores every text exactly."
    return (
        "decoding its tokens does not restore every text exactly (see the round trip rate). So bits per byte are those"
        " of the changed text, and cannot be compared with those of a tokenizer that changes nothing."
    )


def snapshots(names: list[str], missing: list[str]) -> list[str]:
    """Return the section that says which snapshots there are, and which were asked for and are missing."""
    if not names:
        return []
    ended = (
        f" There is none for {', '.join(map(code, missing))}: training ended before, or was already further when it was"
        " asked for."
        if missing
        else ""
    )
    return [
        "## Snapshots",
        f"Weights that were kept after so many million words of training: {', '.join(map(code, names))}.{ended} In the"
        " repository, each is a branch: load it with `revision=`. Before publication, they are in the folder"
        " `snapshots`.",
    ]


def files_and_versions(digests: dict[str, str]) -> list[str]:
    """Return the section with the versions that made the folder, and the digests of its code."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    lines = ["## Files and versions", f"Made by Babelmill {__version__} with {versions}."]
    if digests:
        lines.append(table(["code file", "sha256"], [[code(name), code(digests[name])] for name in sorted(digests)]))
    return lines


def usage(facts: Facts) -> list[str]:
    """Return the sections that show how to use the folder: the model, its adapters, or both."""
    if facts.labels:
        example = (facts.evaluation or {"labels": {}})["labels"].get("example")
        weights_there = weights(facts.variants, facts.default_variant)
        return label_card.use(facts.name, facts.labels, example, facts.model_type, weights_there)
    hides = facts.objective != "causal"
    adapters = [adapter_use(facts.name, facts.begun_with or {}, hides)] if facts.adapter != "none" else []
    if facts.adapter == "only":
        return ["## Use", f"`{facts.name}` means this folder, or its name on the Hub.", *adapters]
    return [
        *use(
            facts.name,
            facts.tasks,
            facts.gated,
            facts.unmasks,
            facts.model_type,
            facts.mask,
            with_prompt(facts.corpora) > 0,
            facts.padless,
        ),
        *adapters,
        notes(facts.variants, facts.default_variant, facts.alignment, facts.unmasks > 0, facts.model_type),
        pipelines(facts.name, facts.scores, facts.alignment, facts.model_type, facts.published_tokenizer),
    ]


def render(facts: Facts, record: list[Line] | None = None) -> str:
    """Return the whole card. `record` is the lines of metrics.jsonl; if it is None, the card shows no picture."""
    hours = None if record is None else training_hours(record)
    sections = [
        front_matter(facts),
        f"# {facts.name}",
        introduction(facts),
        facts.origin,
        beginning(facts.begun_with),
        instructed(facts.begun_with, facts.corpora),
        facts.description,
        f"Authors: {', '.join(' '.join(name.split()) for name in facts.authors)}." if facts.authors else "",
    ]
    if facts.evaluation and facts.labels:
        sections += label_card.results(facts.evaluation, facts.default_variant, facts.languages)
    elif facts.evaluation:
        sections += measured_results(facts.evaluation, facts)
    sections += suite_card.sections(facts.suites, facts.languages)
    if record is not None:
        sections.append(before_and_after(facts.begun_with, record, facts.default_variant))
    figures = facts.figures or {}
    sections += [*usage(facts), *snapshots(facts.snapshots, figures.get("missing_snapshots", []))]
    if facts.evaluation and facts.labels:
        sections += label_card.label_list(facts.evaluation)
    if facts.corpora:
        data = training_data(facts.corpora, facts.languages, facts.evaluation, figures.get("shares"))
        sections += ["## Training data", data]
    if facts.evaluation and "tokenizer" in facts.evaluation:
        sections += tokenizer(facts.evaluation, facts)
    if facts.settings:
        sections += ["## Training" if "train" in facts.settings else "## Shape", *training(facts, hours)]
    sections += [facts.earlier.sections if facts.earlier else "", *files_and_versions(facts.code)]
    return "\n\n".join(section for section in sections if section) + "\n"


def write(folder: Path, facts: Facts, metrics: Path | None) -> list[str]:
    """Write README.md, the training history if there is a metrics.jsonl, and the picture of a model of labels.

    Returns:
        the names of the files.
    """
    record = None if metrics is None else read_record(metrics)
    with atomic_write(folder / "README.md", "w") as file:
        file.write(render(facts, record))
    files = ["README.md", *([] if record is None else training_history.write(folder, record, facts.name))]
    if facts.labels and facts.evaluation:
        files += picture.write(folder, facts.evaluation, facts.default_variant, facts.name)
    return files
