"""Find which table a model predicts, and how to read it: as the section `predict` says, or else like its corpora."""

import glob
from pathlib import Path
from typing import Any

from babelmill.config.headings import heading_of
from babelmill.config.layers import nearest
from babelmill.config.quotation_marks import in_settings
from babelmill.config.resolve import Configuration
from babelmill.core import escape, known_hashes
from babelmill.core.files import UserError
from babelmill.core.formats import DELIMITERS, split_name

PARTIAL = Path("results/predictions")  # {model}/{input}: the rows of unfinished predictions; hashes of tables


def prediction_table(configuration: Configuration, model: str, name: str) -> dict[str, Any]:
    """Return the file of a table, the sha256 of its content (None if there is no file), and how it is read.

    Raises:
        UserError: the model predicts no such table, or its corpora do not agree on a column.
    """
    section = configuration.model(model).predict
    if name not in section.inputs:
        example = f"; name its file: predict: {{inputs: {{{name}: data/{name}.csv}}}}"
        known = nearest(name, section.inputs) if section.inputs else example
        raise UserError(f"model {model} has no table {name!r} to predict{known}")
    own = section.inputs[name]
    said = {"delimiter": own.delimiter or section.delimiter, "encoding": own.encoding or section.encoding}
    said["text_column"] = own.text_column or section.text_column or _of_corpora(configuration, model, "text_column")
    contexts = [(layer.context_column, layer.context) for layer in (own, section)]
    column, context = next((pair for pair in contexts if pair != (None, None)), (None, None))
    if column is None and context is None:
        column, context = (_of_corpora(configuration, model, key) for key in ("context_column", "context"))
    said |= {"context_column": column, "context": context}
    _refuse_missing(own.file, said, own.quoting or section.quoting, name)
    said["quoting"] = in_settings(own.quoting or section.quoting, [glob.escape(own.file)])
    return {"file": own.file, "sha256": _digest(own.file, model, name)} | {k: v for k, v in said.items() if v}


def _refuse_missing(path: str, said: dict[str, Any], quoting: str, name: str) -> None:
    """Raise a UserError if a table lacks a column; otherwise this would show only after the training."""
    there = heading_of(path, said["delimiter"], said["encoding"], quoting)
    for key in ("text_column", "context_column"):
        if there and said[key] and said[key] not in there:
            delimited = len(there) == 1 and split_name(path)[0] in DELIMITERS
            hint = "; does the file have another delimiter (predict.delimiter)?" if delimited else ""
            found = escape.some(map(repr, there))
            raise UserError(
                f"{path}: no column {said[key]!r} (predict.inputs.{name}: {key}); its columns are {found}{hint}"
            )


def _digest(path: str, model: str, name: str) -> str | None:
    if not Path(path).is_file():
        return None
    return known_hashes.hashes([path], PARTIAL / model / f"{name}.hash.json")[path]


def _of_corpora(configuration: Configuration, model: str, key: str) -> str | None:
    """Return the value that the corpora of a model have for a key; raise a UserError if they differ."""
    said = {code: getattr(configuration.corpus(code).corpus, key, None) for code in configuration.languages_of(model)}
    if len(set(said.values())) > 1:
        found = escape.some(f"{code}: {value!r}" for code, value in said.items())
        raise UserError(f"model {model}: its corpora differ in corpus.{key} ({found}); set predict.{key}")
    return next(iter(said.values()))
