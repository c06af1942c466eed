"""Check values of the configuration beyond what types can say, and give equal settings one spelling.

Equal settings must be equal values: `8/16` becomes `1/2`, `size` becomes 1.0. A ValueError says what is allowed.
"""

import re
from fractions import Fraction
from typing import Any, TypeVar

T = TypeVar("T")

SCIENTIFIC = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")  # YAML 1.1 reads 1e4 as text


def number(value: Any) -> Any:
    """Return a number: 1e4 is one, though YAML 1.1 reads it as text; true and false, pydantic's 1 and 0, are none."""
    if isinstance(value, bool):
        raise ValueError("a number is expected")
    return float(value) if isinstance(value, str) and SCIENTIFIC.fullmatch(value) else value


def typed(value: Any) -> Any:
    """Return the values of a `model.config` as transformers needs them: YAML leaves 1e-4 and `yes` as text."""
    if isinstance(value, dict):
        return {key: typed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [typed(each) for each in value]
    if isinstance(value, str) and value.lower() in ("yes", "no", "on", "off"):
        raise ValueError(f"true or false is expected, not {value}")
    return value if isinstance(value, bool) else number(value)


def each_once(names: list[T]) -> list[T]:
    """Refuse a list with a repeated entry, since it would be read or built twice."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} appears {names.count(twice)} times")
    return names


def one_or_more(value: Any) -> Any:
    """Return a list of names; a single name becomes a list of one."""
    return [value] if isinstance(value, str) else value


def delimiter(text: str) -> str:
    """Refuse a text that cannot separate the fields of a .csv."""
    if len(text) != 1 or text in '"\r\n':
        raise ValueError("one character that can separate fields is expected, such as ';' or \"\\t\"")
    return text


def ratio(value: object) -> str:
    """Reduce "8/16" to "1/2", so that equal ratios are equal settings."""
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", str(value))
    if not match or not 0 < int(match[1]) < int(match[2]):
        raise ValueError("a ratio n/d with 0 < n < d is expected, such as 15/16")
    return str(Fraction(int(match[1]), int(match[2])))


FACTORS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
AMOUNT = r"\s*([1-9]\d*(?:\.\d+)?|0\.\d+)\s*"


def word_count(value: Any) -> Any:
    """Return a number of words: 100M and "100M words" are 100,000,000."""
    match = re.fullmatch(rf"{AMOUNT}([kMG])\s*(words)?\s*", str(value))
    if match:
        return round(float(match[1]) * FACTORS[match[2]])
    if isinstance(value, str) and not re.fullmatch(r"\d+", value) and not SCIENTIFIC.fullmatch(value):
        raise ValueError("a number of words is expected, such as 10M, 500k or 100000000")
    return number(value)


def document_unit(value: Any) -> Any:
    """Return what one document of a text file is; raise a ValueError if it is none of the possible units."""
    if value not in ("file", "paragraph", "line") and not words_of_document(str(value)):
        raise ValueError("file, paragraph, line or a number of words is expected, such as 300 words")
    return value


def words_of_document(unit: str) -> int | None:
    """Return how many words the lines of one document have together; None if a document is something else."""
    match = re.fullmatch(r"([1-9]\d*) words", unit)
    return int(match[1]) if match else None


def budget(value: float | str | None) -> float | str | None:
    """Return megabytes as a number, or "N words", "N exact words" or "N documents"; 500k and 5M mean words."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(rf"{AMOUNT}([kMG]?)\s*(MB|words|exact words|documents|)\s*", value)
    digits, factor, unit = match.groups() if match else ("0", "", "")
    amount = float(digits) * FACTORS[factor]
    if not amount or (factor and unit == "MB"):
        raise ValueError("megabytes are expected, or a text such as 500k words, 10M exact words or 5M documents")
    if unit == "MB" or not (factor or unit):
        return amount
    return f"{round(amount)} {unit or 'words'}"


REPO_FIELDS = ("username", "architecture", "model", "causal_suffix", "variant_suffix")


def place_of_checkpoints(url: str) -> str:
    """Return a place for checkpoints, if it is one of the two kinds and holds no keys (`key:secret@bucket`)."""
    if re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]+(/[^/@?#\s]+)*/?|file://(/[^/?#%]+)+/?", url):
        return url.rstrip("/")
    raise ValueError(
        "s3://bucket/prefix or file:///path is expected, without keys of the store, with spaces as they are"
    )


def repo_template(text: str) -> str:
    """Check that a template is `owner/name`, with known fields in braces, and return it."""
    name = text
    for field in REPO_FIELDS:
        name = name.replace(f"{{{field}}}", "x")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise ValueError(f"owner/name is expected, with fields of {', '.join(REPO_FIELDS)} in braces")
    return text


def exponent(value: Any) -> float:
    """Return the exponent that a word stands for, so that `size` and 1 are equal settings."""
    try:
        return {"size": 1.0, "uniform": 0.0}[value] if value in ("size", "uniform") else float(number(value))
    except (TypeError, ValueError):
        raise ValueError("size, uniform or a number from 0 to 1 is expected") from None


def language_tag(tag: str) -> str:
    """Return the tag of a language; raise a ValueError if the Hub does not accept it. "" means the usual tag."""
    if tag and not re.fullmatch("[a-z]{2,3}|code|multilingual", tag):
        raise ValueError("a code of ISO 639 is expected, such as en or gsw, or code or multilingual")
    return tag
