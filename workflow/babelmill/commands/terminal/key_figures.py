"""Give the key figures of a stage's results in a few words, which a run prints when the stage ends.

They are read from the results, not from a stage's messages, since a stage may have run on another machine.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from babelmill.commands.status import tail
from babelmill.core import manifest
from babelmill.core.escape import some
from babelmill.core.files import UserError, read_json
from babelmill.core.words import and_words
from babelmill.evaluation.metrics import metrics_of, shown, units
from babelmill.evaluation.suite_scores import headline, headline_method, sample_of
from babelmill.settings import bytes_per_word
from babelmill.stages import STAGES

UNREADABLE = (UserError, OSError, LookupError, TypeError, ValueError)  # from old or damaged results


def amount(count: float) -> str:
    """Shorten a number of bytes, tokens or parameters: `950`, `8.9 k`, `31.4 M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.1f} {letter}"
    return f"{count:.0f}"


def span(values: Iterable[float]) -> str:
    """Return a number as text, or the smallest and the largest of several."""
    ordered = [f"{value:.2f}" for value in sorted(values)]
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"


def default_variant(evaluation: dict[str, Any], exported: Path) -> str:
    """Return the measured variant that is in `model.safetensors` of the exported folder."""
    return next(name for name in evaluation["variants"] if not (exported / f"model.{name}.safetensors").exists())


def scores(evaluation: dict[str, Any], exported: Path) -> str:
    """Return the scores of the default variant, which is the one in `model.safetensors` of the exported folder.

    The text has standard errors and the size of the sample of validation documents if the evaluation has them, and a
    note if the tokenizer changes documents.
    """
    metrics = metrics_of(evaluation)
    variant = evaluation["variants"][default_variant(evaluation, exported)]
    found = [f"{shown(score, metrics[name])} {name}" for name, score in variant.items()]
    documents = evaluation.get("documents", {"scored": 0, "of": 0})
    scored, lossy = documents["scored"], documents.get("changed", 0)
    notes = [f"{scored:,} of {documents['of']:,} documents"] if scored != documents["of"] else []
    notes += [f"the tokenizer changes {lossy:,} of {scored:,}"] if lossy else []
    return ", ".join(found) + (f" ({'; '.join(notes)})" if notes else "")


def of_download(folder: Path) -> str:
    """Name the datasets and their commits."""
    figures = manifest.read(folder)["figures"]
    return ", ".join(f"{part['repository']} at {part['commit'][:8]}" for part in figures.get("parts", [figures]))


def of_base_model(folder: Path) -> str:
    """Name the model and its commit, and count its parameters."""
    figures = manifest.read(folder)["figures"]
    origin = f"{figures['repository']} at {figures['commit'][:8]}" if "commit" in figures else figures["folder"]
    return f"{origin}, {amount(figures['parameters'])} parameters"


def of_corpus(folder: Path) -> str:
    """Count documents, words and bytes, and the documents that were dropped."""
    figures = manifest.read(folder)["figures"]
    documents, size, dropped = figures["documents"], figures["bytes"]["train"], sum(figures["dropped"].values())
    by_bytes = bytes_per_word(folder.name)
    words = and_words(figures["words"]["train"], size, by_bytes) if "words" in figures else ""
    shown = f"{documents['train']:,} documents{words}, {amount(size)}B; {documents['validation']:,} for validation"
    return f"{shown}; {dropped:,} dropped" if dropped else shown


def of_tokenizer(folder: Path) -> str:
    """Give the size of the vocabulary and the tokens per word."""
    figures = manifest.read(folder)["figures"]
    per_word = span(report["tokens_per_word"] for report in figures["report"].values())
    return f"{figures['vocab_size']:,} entries, {per_word} tokens per word"


def of_shards(folder: Path) -> str:
    """Count tokens."""
    tokens = manifest.read(folder)["figures"]["tokens"]
    return f"{amount(tokens['train'])} tokens; {amount(tokens['validation'])} for validation"


def of_train(folder: Path) -> str:
    """Count steps, tokens and words, give the last loss on the validation text, and name missing snapshots."""
    figures = manifest.verify(folder, "metrics.jsonl")["figures"]
    lines = [json.loads(line) for line in tail(folder / "metrics.jsonl")]
    losses = [line["loss"] for line in lines if line["kind"] == "validation"]
    loss = f", validation loss {losses[-1]:.3f}" if losses and losses[-1] is not None else ""
    words = f", {amount(figures['words'])} words" if "words" in figures else ""
    lost = f", no snapshot {some(missing, 2)}" if (missing := figures.get("missing_snapshots")) else ""
    return f"{figures['steps']:,} steps, {amount(figures['tokens'])} tokens{words}{loss}{lost}"


def of_export(folder: Path) -> str:
    """Give the size of the weights."""
    return f"{amount(manifest.read(folder)['files']['model.safetensors']['bytes'])}B, equal to the trained model"


def of_evaluate(folder: Path) -> str:
    """Give the scores and their unit."""
    manifest.verify(folder, "evaluation.json")
    exported, evaluation = STAGES["export"].path(folder.name, ""), read_json(folder / "evaluation.json")
    return f"{units(evaluation)} {scores(evaluation, exported)}"


def of_suite(folder: Path) -> str:
    """Count pairs."""
    figures = manifest.read(folder)["figures"]
    return f"{figures['pairs']:,} pairs of {figures['paradigms']:,} paradigms"


def of_score(folder: Path) -> str:
    """Give the share of right pairs of each language, with its interval."""
    manifest.verify(folder, "scores.json")
    found = read_json(folder / "scores.json")
    method, shares = headline_method(found), []
    for code in found["languages"]:
        if share := headline(found, code):
            low, high = (100 * end for end in share["interval"])
            shares.append(f"{code} {100 * share['score']:.1f} % right ({low:.1f} to {high:.1f}, n = {share['n']:,})")
    some = f" ({of})" if (of := sample_of(found, method)) else ""
    return f"{found['suite']}, {method}{some}: {', '.join(shares)}"


def of_convert(folder: Path) -> str:
    """Name the folder of the model."""
    return folder.as_posix()


def of_predict(about: Path) -> str:
    """Count rows, and name the file with them."""
    figures, table = manifest.read(about)["figures"], about.with_suffix(".csv")
    return f"{figures['rows']:,} rows, {figures['without_text']:,} without text: {table.as_posix()}"


def of_publish(receipt: Path) -> str:
    """Name the place of the model on the Hub."""
    return manifest.read_sealed(receipt)["url"]


FIGURES: dict[str, Callable[[Path], str]] = {
    "download": of_download,
    "base_model": of_base_model,
    "corpus": of_corpus,
    "tokenizer": of_tokenizer,
    "shards": of_shards,
    "train": of_train,
    "export": of_export,
    "suite": of_suite,
    "score": of_score,
    "evaluate": of_evaluate,
    "convert": of_convert,
    "predict": of_predict,
    "publish": of_publish,
}


def key_figures(stage: str, folder: Path) -> str:
    """Return the key figures of a stage's results; "" if there are none or they cannot be read."""
    try:
        return FIGURES[stage](folder) if stage in FIGURES else ""
    except UNREADABLE:
        return ""


def of_converted(model: str) -> tuple[str, str, str]:
    """Return the parameters and the scores of a converted model, and its folder, all as text."""
    folder = STAGES["convert"].path(model, "")
    try:
        parameters = f"{amount(manifest.read(STAGES['train'].path(model, ''))['figures']['parameters'])}"
        figures = scores(manifest.read(folder)["figures"]["evaluation"], folder)
    except UNREADABLE:
        parameters = figures = ""
    return parameters, figures, folder.as_posix()


def units_of(models: list[str]) -> str:
    """Return the units of the scores of converted models, joined by commas; "scores" if no unit can be read."""
    found: list[str] = []
    for model in models:
        try:
            found.append(units(manifest.read(STAGES["convert"].path(model, ""))["figures"]["evaluation"]))
        except UNREADABLE:
            continue
    return ", ".join(dict.fromkeys(found)) or "scores"
