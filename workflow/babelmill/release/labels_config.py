"""What config.json of a model of labels says beyond that of its exported folder, once it was measured."""

from typing import Any

from babelmill.config import schema
from babelmill.tokens.clean_text import Cleaning


def completed(
    config: dict[str, Any], evaluation: dict[str, Any], variant: str, corpora: list[schema.Corpus]
) -> dict[str, Any]:
    """Return config.json of an exported folder with what is known once it was measured, as far as there is any.

    `labels` says then what codes are called (`names`), from which probability on the classifier gives a further code
    (`threshold`), and what was changed in all training text, so that others can be read alike (`cleaning`), and
    whether it had contexts (`contexts`).

    Args:
        config: of the exported folder.
        evaluation: evaluation.json.
        variant: the default one.
        corpora: that it was trained on.
    """
    found = evaluation["labels"]
    names = {entry["code"]: entry["name"] for entry in found["codes"] if "name" in entry}
    best = found["figures"][variant]["linear"]["threshold"]
    contexts = any(corpus.context_column or corpus.context for corpus in corpora)
    cleaning: dict[str, str] = {}
    for key, neutral in Cleaning()._asdict().items():
        said = {getattr(corpus, key) for corpus in corpora}
        cleaning |= {key: said.pop()} if len(said - {neutral}) == len(said) == 1 else {}
    more = {"names": names, "threshold": best and best["value"], "cleaning": cleaning}
    return config | {
        "labels": config["labels"] | {key: value for key, value in more.items() if value} | {"contexts": contexts}
    }
