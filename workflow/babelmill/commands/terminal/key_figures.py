"""Give the key figures of a stage's results in a few words, which a run prints when the stage ends.

They are read from the results, not from a stage's messages, since a stage may have run on another machine.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from babelmill.commands.progress.logs import metrics
from babelmill.core import manifest
from babelmill.core.escape import line, some
from babelmill.core.files import UNREADABLE, read_json
from babelmill.core.words import and_words, short
from babelmill.evaluation.metrics import metrics_of, shown, units
from babelmill.evaluation.suite_scores import in_words
from babelmill.stages import ConvertStage


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


def of_download(figures: dict[str, Any]) -> str:
    """Name the datasets and their commits."""
    return ", ".join(f"{part['repository']} at {part['commit'][:8]}" for part in figures.get("parts", [figures]))


def of_corpus(figures: dict[str, Any], bytes_per_word: float | None) -> str:
    """Count documents, words and bytes of a language, and the documents that were dropped."""
    documents, size, dropped = figures["documents"], figures["bytes"]["train"], sum(figures["dropped"].values())
    words = and_words(figures["words"]["train"], size, bytes_per_word) if "words" in figures else ""
    text = f"{documents['train']:,} documents{words}, {short(size)}B; {documents['validation']:,} for validation"
    return f"{text}; {dropped:,} dropped" if dropped else text


def of_train(figures: dict[str, Any], folder: Path) -> str:
    """Count steps, tokens and words, give the last loss on the validation text, and name missing snapshots."""
    losses = [line["loss"] for line in metrics(folder) if line["kind"] == "validation"]
    loss = f", validation loss {losses[-1]:.3f}" if losses and losses[-1] is not None else ""
    words = f", {short(figures['words'])} words" if "words" in figures else ""
    lost = f", no snapshot {some(missing, 2)}" if (missing := figures.get("missing_snapshots")) else ""
    return f"{figures['steps']:,} steps, {short(figures['tokens'])} tokens{words}{loss}{lost}"


def key_figures(stage: str, folder: Path) -> str:
    """Return the key figures of a stage's results; "" if there are none or they cannot be read.

    `folder` is the folder of the results, or for `predict` and `publish` their JSON file.
    """
    try:
        return figures_of(stage, folder)
    except UNREADABLE:
        return ""


def figures_of(stage: str, folder: Path) -> str:
    """Return the key figures of a stage's results; "" if it has none. Errors of reading are the caller's."""
    if stage == "publish":
        return manifest.read_sealed(folder)["url"]
    if stage == "convert":
        return folder.as_posix()
    read = {"train": "metrics.jsonl", "evaluate": "evaluation.json", "score": "scores.json", "tune": "scores.json"}
    about = manifest.verify(folder, read[stage]) if stage in read else manifest.read(folder)
    figures = about["figures"]
    match stage:
        case "download":
            return of_download(figures)
        case "base_model":
            origin = f"{figures['repository']} at {figures['commit'][:8]}" if "commit" in figures else figures["folder"]
            return f"{origin}, {short(figures['parameters'])} parameters"
        case "corpus":
            return of_corpus(figures, about["settings"].get("bytes_per_word"))
        case "tokenizer":
            per_word = span(report["tokens_per_word"] for report in figures["report"].values())
            return f"{figures['vocab_size']:,} entries, {per_word} tokens per word"
        case "shards":
            tokens = figures["tokens"]
            return f"{short(tokens['train'])} tokens; {short(tokens['validation'])} for validation"
        case "train":
            return of_train(figures, folder)
        case "export":
            return f"{short(about['files']['model.safetensors']['bytes'])}B, equal to the trained model"
        case "evaluate":
            evaluation = read_json(folder / "evaluation.json")
            return f"{units(evaluation)} {scores(evaluation, Path(about['settings']['made_from']['export'][0]))}"
        case "suite":
            items = "items" if "chance" in figures else "pairs"
            return f"{figures['pairs']:,} {items} of {figures['paradigms']:,} paradigms"
        case "score":
            return in_words(read_json(folder / "scores.json"))
        case "task":
            rows, what = figures["rows"], "sentences" if "words" in figures else "rows"
            return (
                f"{rows['train']:,} {what} to learn from, {rows['test']:,} to test, {len(figures['classes']):,} classes"
            )
        case "tune":
            return of_tuning(read_json(folder / "scores.json"))
        case "submission":
            return f"{figures['leaderboard']['score']:.2f} on the leaderboard: {folder.as_posix()}"
        case "predict":
            table = folder.with_suffix(".csv")
            return f"{figures['rows']:,} rows, {figures['without_text']:,} without text: {table.as_posix()}"
    return ""


def of_tuning(scored: dict[str, Any]) -> str:
    """Give the score of each language after fine-tuning, and say if the model answers with one class."""
    found = []
    for code, each in scored["languages"].items():
        same = f" (always {line(each['majority']['class'])})" if each.get("majority") else ""
        found.append(f"{code} {100 * each['score']:.1f}{same}")
    return f"{scored['metric']}: {', '.join(found)}"


def of_converted(model: str) -> tuple[str, str, str]:
    """Return the parameters and the scores of a converted model, and its folder, all as text."""
    folder = ConvertStage.path_of(model)
    try:
        about = manifest.read(folder)
        figures = scores(about["figures"]["evaluation"], folder)
        trained = Path(about["settings"]["made_from"]["train"][0])
        parameters = f"{short(manifest.read(trained)['figures']['parameters'])}"
    except UNREADABLE:
        parameters = figures = ""
    return parameters, figures, folder.as_posix()


def units_of(models: list[str]) -> str:
    """Return the units of the scores of converted models, joined by commas; "scores" if no unit can be read."""
    found: list[str] = []
    for model in models:
        try:
            found.append(units(manifest.read(ConvertStage.path_of(model))["figures"]["evaluation"]))
        except UNREADABLE:
            continue
    return ", ".join(dict.fromkeys(found)) or "scores"
