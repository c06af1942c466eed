"""Write labelled tables, and configure corpora of them."""

import csv

from babelmill.config.resolve import Configuration

COLUMNS = {"text_column": "occ1", "label_columns": ["code1", "code2"], "context_column": "lang"}


def configuration_of(train: dict | None = None, **corpus) -> Configuration:
    """Return the configuration of a corpus with these columns and settings."""
    return Configuration([("test", {"train": train or {}, "languages": {"eng": {"corpus": {**COLUMNS, **corpus}}}})])


def write_csv(name: str, rows: list[tuple]) -> None:
    """Write a table with a text, its context and two codes in each row."""
    with open(name, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("occ1", "lang", "code1", "code2"), *rows])
