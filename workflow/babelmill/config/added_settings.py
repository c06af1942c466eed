"""Compute what stages add to the sections in their settings files, and which languages, models and tables they are for.

The table of stages (`stages.py`) names these functions. Each takes the configuration and the name of the language or
model. If a function returns a section, its values replace those of the configuration. None instead of a section leaves
the section out, and LEFT_OUT as a value leaves its key out.
"""

from pathlib import Path
from typing import Any

from babelmill.config import inputs, schema, suites
from babelmill.config.earlier_results import (
    chosen_otherwise,
    labels_stay_as_they_stand,
    quoting_in_settings,
    quoting_of_download,
)
from babelmill.config.objectives import OBJECTIVES
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError, not_found, sha256

DOWNLOADS = Path("results/downloads")
LEFT_OUT = object()
OF_SUITES = (
    "suites",
    "pairs",
    "masked_pairs",
    "within_word_l2r",
    "snapshots",
)  # keys of `evaluation` that the stage `score` reads


def add_nothing(_configuration: Configuration, _name: str) -> dict[str, Any]:
    """Add nothing: the sections contain all that the stage needs."""
    return {}


def add_download(configuration: Configuration, name: str) -> dict[str, Any]:
    """Name the datasets on the Hub and, with a budget, the keys that decide when it is used up."""
    corpus, found = configuration.corpus(name).corpus, [each for _, each in inputs.hub_datasets(configuration, name)]
    asked: dict[str, Any] = {"source": found[0]} if isinstance(corpus.hub, str) else {"parts": found}
    if found and chosen_otherwise(DOWNLOADS / name):
        asked["chosen_again"] = True
    if corpus.budget:
        return asked | {"counted": inputs.counted(corpus), "byte_premium": configuration.table[name].byte_premium}
    usual: dict[str, Any] = {"text_column": "text", "prompt_column": None, "label_columns": [], "context_column": None}
    usual |= {"delimiter": ",", "encoding": "utf-8", "format": None, "quoting": "format"}
    if columns := {key: getattr(corpus, key) for key, value in usual.items() if getattr(corpus, key) != value}:
        asked["columns"] = columns
    return asked


def add_base_model(configuration: Configuration, name: str) -> dict[str, Any]:
    """Name the model that this model continues."""
    return inputs.base_model(configuration, name)


def add_corpus(configuration: Configuration, name: str) -> dict[str, Any]:
    """Describe the local text. Without a download, leave out the dataset's name: changing it then reruns nothing."""
    corpus = configuration.corpus(name).corpus
    added: dict[str, Any] = {"sources": inputs.corpus_sources(configuration, name)}
    quoting = quoting_in_settings(corpus.quoting, [*corpus.files, *corpus.validation_files], said=corpus.format)
    if not inputs.hub_datasets(configuration, name):
        added["corpus"] = {"hub": None, "revision": "", "quoting": quoting or LEFT_OUT}
    elif quoting := quoting or quoting_of_download(corpus, inputs.CORPORA / name, DOWNLOADS / name):
        added["corpus"] = {"quoting": quoting}
    if corpus.budget:
        added["byte_premium"] = configuration.table[name].byte_premium
    if corpus.label_columns:
        for_classes = inputs.labels_are_classes(configuration, name)
        download = DOWNLOADS / name if from_the_hub(configuration, name) else None
        if labels_stay_as_they_stand(corpus, for_classes, inputs.CORPORA / name, download):
            added["raw_labels"] = True
    return added


def add_tokenizer(configuration: Configuration, name: str) -> dict[str, Any]:
    """Name the source of an adopted tokenizer; leave out its mixture, and for a local file also the revision."""
    of_source, positions = inputs.has_tokenizer_of_source(configuration, name), inputs.characters(configuration, name)
    if of_source or positions:
        unread = schema.Tokenizer(source=None, revision="", vocab_size=16 + 256, min_frequency=1)
        added = {"source": None, "sources": {}, "mixture": None, "tokenizer": unread.model_dump()}
        return added | (
            {"of_model": configuration.model(name).model.source} if of_source else {"characters": positions}
        )
    added = inputs.tokenizer_source(configuration, name)
    if configuration.model(name).tokenizer.source:
        added["mixture"] = None
    if not added["source"]:
        added["tokenizer"] = {"revision": ""}
    return added


def without_labels(configuration: Configuration, name: str) -> dict[str, Any]:
    """Leave the section `labels` out if the model has no labels."""
    return {} if configuration.model(name).train.objective == "labels" else {"labels": None}


def how_codes_are_read(configuration: Configuration, name: str) -> dict[str, Any]:
    """Keep the settings for reading codes, and leave out those for learning them."""
    if without := without_labels(configuration, name):
        return without
    learnt = dict.fromkeys(("blocks_weight", "decoder_layers", "class_weights"), LEFT_OUT)
    path = configuration.model(name).labels.codes
    if path and not Path(path).is_file():
        raise UserError(f"labels.codes = {path}: {not_found(path)}")
    return {"labelled": True, "labels": learnt} | ({"code_list": sha256(path)} if path else {})


def add_train(configuration: Configuration, name: str) -> dict[str, Any]:
    """Name the weights that training begins with; for a model of this workflow, the default ones of its export."""
    source = configuration.model(name).source
    unread = {"model": {"revision": LEFT_OUT}} | without_labels(configuration, name)
    if source is None:
        return unread
    ours = source.kind == "model" and configuration.model(source.name).export.default_variant == "ema"
    added: dict[str, Any] = {"begin_with": "ema.safetensors" if ours else "model.safetensors"}
    if source.beside:
        added["shape"] = source.beside
    return added | unread


def add_evaluate(configuration: Configuration, name: str) -> dict[str, Any]:
    """Add which metrics to compute, whether the tokenizer may lose text, and how codes are read."""
    lossy = {"lossy": True} if inputs.has_tokenizer_of_source(configuration, name) else {}
    scores = {"scores": list(OBJECTIVES[configuration.model(name).train.objective].scores)}
    added: dict[str, Any] = scores | lossy | how_codes_are_read(configuration, name)
    unread: dict[str, Any] = dict.fromkeys(OF_SUITES, LEFT_OUT)
    if has_labels(configuration, name):  # the whole validation text is predicted, unchanged
        unread |= {"sequence_length": 2, "disjoint_masks": 2, "diffusion_samples": LEFT_OUT, "documents": LEFT_OUT}
    return added | {"evaluation": unread}


def add_score(configuration: Configuration, name: str) -> dict[str, Any]:
    """Add how sentences are scored."""
    resolved = configuration.model(name)
    evaluation, methods = resolved.evaluation, OBJECTIVES[resolved.train.objective].sentences
    asked: dict[str, Any] = {"methods": list(methods)} | ({"snapshots": True} if evaluation.snapshots else {})
    if evaluation.pairs != "all":
        asked["pairs"] = evaluation.pairs
    if "masked" in methods:
        asked |= {"masked_pairs": evaluation.masked_pairs, "within_word_l2r": evaluation.within_word_l2r}
    return asked


def add_suite_scored(configuration: Configuration, name: str, part: str) -> dict[str, Any]:
    """Add the suite that a model is scored on, and those of its languages that are scored."""
    covered = suites.languages_of_suite(configuration, name, part)
    return {"suite": part, "covered": covered, "headline": configuration.suite(part).headline}


def is_scored(configuration: Configuration, name: str) -> bool:
    """Return whether a model is scored on a suite."""
    return bool(suites.suites_of_model(configuration, name))


def has_suites(configuration: Configuration, name: str) -> bool:
    """Return whether some model of a language is scored on a suite that covers the language."""
    return bool(suites.suites_of_language(configuration, name))


def add_convert(configuration: Configuration, name: str) -> dict[str, Any]:
    """Add the names, tags and scripts of the languages, and the titles and baselines of the suites, for the card."""
    rows = {code: configuration.table[code] for code in configuration.languages_of(name)}
    known = {"language_table": {c: {"name": r.name, "tag": r.tag, "script": r.script} for c, r in rows.items()}}
    scored = {suite: configuration.suite(suite) for suite in suites.suites_of_model(configuration, name)}
    about = {
        suite: {"title": said.title or suite, "baselines": [line.model_dump() for line in said.baselines]}
        for suite, said in scored.items()
    }
    return known | ({"suites": about} if about else {})


def add_predict(_configuration: Configuration, _name: str) -> dict[str, Any]:
    """Leave out the keys about tables: `add_table` adds the values for one table."""
    said = ("inputs", "text_column", "context_column", "context", "delimiter", "encoding", "quoting")
    return {"predict": dict.fromkeys(said, LEFT_OUT)}


def add_table(configuration: Configuration, name: str, part: str) -> dict[str, Any]:
    """Add which table is predicted, and how it is read."""
    return {"input": part, "table": inputs.prediction_table(configuration, name, part)}


def tables_of(configuration: Configuration, name: str) -> list[str]:
    """Return the names of the tables that a model predicts."""
    return list(configuration.model(name).predict.inputs)


def has_labels(configuration: Configuration, name: str) -> bool:
    """Return whether a model learns labels."""
    return configuration.model(name).train.objective == "labels"


def add_publish(configuration: Configuration, name: str) -> dict[str, Any]:
    """Name the repository on the Hub.

    In the template, the architecture's name replaces {architecture}. So settings files look the same as before this
    field existed.
    """
    template = configuration.model(name).publish.repo_template
    said = template.replace("{architecture}", inputs.architecture_name(configuration, name))
    return {"repository": inputs.repository(configuration, name), "publish": {"repo_template": said}}


def add_no_part(_configuration: Configuration, _name: str, _part: str) -> dict[str, Any]:
    """Add nothing to the settings of a part."""
    return {}


def whole(_configuration: Configuration, _name: str) -> list[str]:
    """Return no parts, for stages with one settings file."""
    return []


def from_the_hub(configuration: Configuration, language: str) -> bool:
    """Return whether a language's text must be downloaded."""
    return bool(inputs.hub_datasets(configuration, language))


def always(_configuration: Configuration, _name: str) -> bool:
    """Return True, for stages that every language or model has."""
    return True
