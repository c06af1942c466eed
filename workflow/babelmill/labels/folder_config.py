"""Add the results of the evaluation to the config.json of a label model."""

from typing import Any

from babelmill.config import schema
from babelmill.tokens.clean_text import Cleaning


def completed(
    config: dict[str, Any], evaluation: dict[str, Any], variant: str, corpora: list[schema.Corpus]
) -> dict[str, Any]:
    """Return config.json of an exported folder with what is known after the evaluation.

    Its `labels` get up to four more keys: the `names` of codes; the `threshold`, the probability from which on the
    classifier gives a second or later code; `cleaning`, which says how all training text was cleaned, so that other
    texts can be cleaned in the same way; and whether the training text had `contexts`.

    Args:
        config: config.json of the exported folder.
        evaluation: evaluation.json.
        variant: the default variant.
        corpora: the settings of the corpora that the model was trained on.
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
