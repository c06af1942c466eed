"""Write labelled tables, and configure corpora of them."""

import csv
import random

from babelmill.config.resolve import Configuration

COLUMNS = {"text_column": "occ1", "label_columns": ["code1", "code2"], "context_column": "lang"}


def configuration_of(train: dict | None = None, **corpus) -> Configuration:
    """Return the configuration of a corpus with these columns and settings."""
    return Configuration([("test", {"train": train or {}, "languages": {"eng": {"corpus": {**COLUMNS, **corpus}}}})])


def write_csv(name: str, rows: list[tuple]) -> None:
    """Write a table with a text, its context and two codes in each row."""
    with open(name, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("occ1", "lang", "code1", "code2"), *rows])


# By code: a wording in each language.
OCCUPATIONS = {
    "61110": ("farmer", "Bauer", "boer"),
    "64100": ("fisher", "Fischer", "visser"),
    "83110": ("blacksmith", "Schmied", "smid"),
    "77610": ("baker", "Bäcker", "bakker"),
    "75400": ("weaver", "Weber", "wever"),
    "06105": ("physician", "Arzt", "geneesheer"),
    "-1": ("no occupation", "ohne Beruf", "zonder beroep"),
}


def write_occupations(name: str, count: int) -> None:
    """Write a table of occupations in three languages with codes of HISCO: in each seventh row two, in some "-1"."""
    chance, rows = random.Random(1), []
    for number in range(count):
        language = chance.randrange(3)
        codes = chance.sample([*OCCUPATIONS][:-1], 2 - (number % 7 > 0)) if number % 30 else ["-1"]
        text = " and ".join(f"{chance.choice(('master ', 'old ', ''))}{OCCUPATIONS[code][language]}" for code in codes)
        place = chance.choice(("", " in London", " hierselbst", " alhier", " at the harbour"))
        rows.append((text + place, ("eng", "deu", "nld")[language], *[*codes, ""][:2]))
    write_csv(name, rows)
