"""Write what a model card says about the model that training continued from: its name, scores and licence."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from babelmill.core.escape import code, markdown
from babelmill.release.card.card_table import table


def without_path(source: str) -> str:
    """Return the name of a model or tokenizer. For a local file or folder, the name does not include its parents."""
    own = source.endswith(".json") or source.startswith(("./", "../", "/"))
    return Path(source).name if own else source


def lineage(begun_with: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the model that training continued from, the model that this one continued from, and so on to the first."""
    found = []
    while begun_with:
        found.append(begun_with)
        begun_with = begun_with.get("source")
    return found


def base_model(begun_with: dict[str, Any] | None) -> str | None:
    """Return the repository that a model descends from, for the card's `base_model`, or None if there is none."""
    return next((base["repository"] for base in reversed(lineage(begun_with)) if "repository" in base), None)


def beginning(begun_with: dict[str, Any] | None) -> str:
    """Return a sentence that names the models that training continued from, or "" if it began with random weights."""
    parts = []
    for base in lineage(begun_with):
        if "repository" in base:
            licence = f"licence: {markdown(base['license'])}" if base.get("license") else "its card names no licence"
            repository = f"[{code(base['repository'])}](https://huggingface.co/{quote(base['repository'])})"
            parts.append(f"{repository} at commit {code(base['commit'])} ({licence})")
        else:
            parts.append(f"{code(without_path(base['name']))} (weights with sha256 {code(base['sha256'])}{read(base)})")
    return f"Training continued from the weights of {', which continued from '.join(parts)}." if parts else ""


def read(base: dict[str, Any]) -> str:
    """Return what a model of the workflow was trained on; "" if it is not known, as for older results."""
    if "languages" not in base:
        return ""
    words = f" ({base['words']:,} words)" if "words" in base else ""
    return f", trained on {base['tokens']:,} tokens{words} of {', '.join(map(code, base['languages']))}"


def instructed(begun_with: dict[str, Any] | None, corpora: dict[str, dict[str, Any]] | None) -> str:
    """Return a warning if a model tuned on instructions was trained on text without prompts; otherwise ""."""
    tuned = any(base.get("instructed") for base in lineage(begun_with))
    raw = [code for code, made in (corpora or {}).items() if not made["settings"]["corpus"].get("prompt_column")]
    if not tuned or not raw:
        return ""
    return (
        "**Note:** the base model was tuned on instructions, but this training text has no prompts"
        " (`corpus.prompt_column`). So this model may follow instructions less well than its base model."
    )


def before_and_after(begun_with: dict[str, Any] | None, record: list[dict[str, Any]], variant: str) -> str:
    """Return the validation losses before and after training, as training measured them.

    Each loss is named by its kind of rows (`record.py`).

    Args:
        begun_with: the model that training continued from; if it is None, the result is "".
        record: the lines of metrics.jsonl.
        variant: the folder's default variant of the weights, `main` or `ema`.
    """
    lines = [line for line in record if line["kind"] == "validation"]
    if not begun_with or not lines or lines[0]["step"] != 0:
        return ""
    if lines[0].get("targets") != lines[-1].get("targets"):
        return ""  # `run.validation_tokens` changed meanwhile, by an upgrade or the user: another sample of the text
    prefix = "ema_loss_" if variant == "ema" else "loss_"
    before, after = lines[0], lines[-1]
    names = [name for name in before if name.startswith(prefix) and before[name] is not None]
    rows = [
        [name.removeprefix(prefix), *("unknown" if line[name] is None else line[name] for line in (before, after))]
        for name in names
    ]
    name = begun_with.get("repository") or without_path(begun_with["name"])
    return (
        "Loss before and after training, in nats per target, on the same validation text, with context lengths as in"
        " training (lower is better).\n\n" + table(["prediction", code(name), "this model"], rows)
    )
