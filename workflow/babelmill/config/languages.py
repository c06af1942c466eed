"""Read the language table, `config/languages.tsv`, as updated by the `languages:` entries of the configuration."""

import csv
import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from babelmill.config.layers import nearest
from babelmill.config.schema import language_tag
from babelmill.core.escape import line
from babelmill.core.files import UserError

WORD = 5.43  # bytes per English word, as in the tiers of BabyBabelLM: 100 million words are 543 MB
TIER_BYTES = {1: 543e6, 2: 54.3e6, 3: 5.43e6}  # of English text in the BabyBabelLM tiers
DOCUMENT = 2000  # bytes per document, in English
UNSPACED = ("Hani", "Hans", "Hant", "Jpan", "Khmr", "Laoo", "Mymr", "Thai", "Tibt")  # scripts without spaces
CODE = re.compile(r"[a-z]{3}(_[A-Z][a-z]{3})?")


@dataclasses.dataclass(frozen=True)
class Language:
    """A language.

    `tag` is the code that the Hub uses (ISO 639-1 where there is one). `byte_premium` is the number of UTF-8 bytes
    that a text needs per byte of the same text in English. `language` is the code of the language that it is in, if it
    is a text of its own, such as `babylm_strict` (`languages.NAME.language`); "" if it is the language itself.
    """

    code: str
    name: str
    tier: int
    script: str
    byte_premium: float
    tag: str
    language: str = ""

    @property
    def language_code(self) -> str:
        """Return the code of the language, also of a text with a name of its own."""
        return self.language or self.code

    @property
    def bytes_per_word(self) -> float | None:
        """Return how many bytes count as a word, as in budgets; None if the script separates words by spaces."""
        return WORD * self.byte_premium if self.script in UNSPACED else None


def tag_of(code: str) -> str:
    """Return the Hub's name of a language that the table does not have, without its script; "" if it has none."""
    return code.partition("_")[0] if CODE.fullmatch(code) else ""


def language_on_card(code: str, table: dict[str, Language]) -> dict[str, str]:
    """Return what a card needs to know about a language: {"name", "tag"}."""
    known = table.get(code)
    return {"name": known.name, "tag": known.tag} if known else {"name": code, "tag": tag_of(code)}


def nearest_or_new(word: str, known: Iterable[str]) -> str:
    """Return what an unknown name may have meant and, if it looks like a code, how to add it as a new language."""
    entry = f"languages: {{{word}: {{name: NAME, corpus: {{files: [texts/{word}/*.txt]}}}}}}"
    return nearest(word, known) + (f" (to add a new language, write `{entry}`)" if CODE.fullmatch(word) else "")


def read_table(path: Path) -> dict[str, Language]:
    """Read the table, a file of the project; lines that start with # are comments."""
    table = {}
    with open(path, encoding="utf-8", newline="") as file:
        lines = [each for each in file if each.strip() and not each.startswith("#")]
    for row in csv.DictReader(lines, delimiter="\t"):
        try:
            given: dict[str, Any] = {"tier": int(row["tier"]), "byte_premium": float(row["byte_premium"])}
            given = {**row, **given, "tag": language_tag(row["tag"])}
            table[row["code"]] = Language(**given)
        except (KeyError, TypeError, ValueError) as error:
            expected = "code, name, tier, script, byte_premium and tag, with tabs between them, are expected"
            raise UserError(f"{path}: {line(row.get('code'))}: {expected} ({line(error)})") from None
    return table


def budget_bytes(budget: float | str, byte_premium: float) -> float:
    """Return about how many bytes of text `corpus.budget` asks for."""
    if not isinstance(budget, str):
        return budget * 1e6 * byte_premium
    count, unit = budget.split(maxsplit=1)
    return int(count) * (DOCUMENT if unit == "documents" else WORD) * byte_premium
