"""The language table: `config/languages.tsv`, with the `languages:` entries of the configuration laid over it."""

import csv
import dataclasses
from pathlib import Path

from babelmill.core.files import UserError


@dataclasses.dataclass(frozen=True)
class Language:
    """A language. `tag` is the code that the Hub uses (ISO 639-1 where there is one); `byte_premium` is the number of
    UTF-8 bytes that say what one byte of English says."""

    code: str
    name: str
    tier: int
    script: str
    byte_premium: float
    tag: str


def read_table(path: Path) -> dict[str, Language]:
    """Read the table; lines that start with # are comments. A bad line is a UserError naming file and line."""
    table = {}
    with open(path, encoding="utf-8", newline="") as file:
        numbered = [(number, line) for number, line in enumerate(file, 1) if line.strip() and not line.startswith("#")]
    rows = csv.DictReader((line for _, line in numbered), delimiter="\t")
    for (number, _), row in zip(numbered[1:], rows, strict=True):
        try:
            language = Language(
                row["code"], row["name"], int(row["tier"]), row["script"], float(row["byte_premium"]), row["tag"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path}, line {number}: expected code, name, tier, script, byte_premium, tag ({error})"
            ) from None
        table[language.code] = language
    return table
