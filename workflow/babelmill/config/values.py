"""Check values of the configuration beyond what types can say, and give equal settings one spelling.

Equal settings must be equal values: `8/16` becomes `1/2`, `size` becomes 1.0. A ValueError says what is allowed.
"""

import os
import re
from fractions import Fraction
from typing import Any, TypeVar

from babelmill.config.layers import nearest
from babelmill.core.files import UserError

T = TypeVar("T")

SCIENTIFIC = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")  # YAML 1.1 reads 1e4 as text
DISPUTED = re.compile(r"[-+]?(0\d[\d_]*|\d+(_\d*)+)")  # 8 or 10 in YAML, another number or an error in Python


def number(value: Any) -> Any:
    """Return a number: 1e4 is one, though YAML 1.1 reads it as text; true and false, pydantic's 1 and 0, are none."""
    if isinstance(value, bool):
        raise ValueError("a number is expected")
    if isinstance(value, str) and DISPUTED.fullmatch(value):
        raise ValueError("a number in plain digits is expected, without leading zeros and without _")
    return float(value) if isinstance(value, str) and SCIENTIFIC.fullmatch(value) else value


def typed(value: Any) -> Any:
    """Turn texts such as "1e-3" or "true" into numbers and booleans: a module's `config:` may have only text."""
    if isinstance(value, dict):
        return {key: typed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [typed(each) for each in value]
    if not isinstance(value, str):
        return value
    if value in ("true", "false"):
        return value == "true"
    if value.lower() in ("yes", "no", "on", "off"):
        raise ValueError(f"{value} is a boolean or a text, depending on the reader of YAML: write true or false")
    if DISPUTED.fullmatch(value):
        return value
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    return float(value) if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", value) else value


def local_path(text: str) -> str:
    """Return a path with the user's home folder in place of `~`."""
    try:
        return os.path.expanduser(text)
    except UserError as error:
        raise ValueError(str(error)) from None


def each_once(names: list[T]) -> list[T]:
    """Refuse a list with a repeated entry, since it would be read or built twice."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} appears {names.count(twice)} times; name it once")
    return names


def column_names(value: Any) -> Any:
    """Return a list of names; a single name becomes a list of one."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and "" in names:
        raise ValueError(
            '"" is not the name of a column: columns without a name cannot be read; give the column a name'
        )
    return names


def delimiter(text: str) -> str:
    """Refuse a text that cannot separate the fields of a .csv."""
    if len(text) != 1 or text in '"\r\n':
        raise ValueError(f"{text!r} is not one character that can separate fields, such as ';' or \"\\t\"")
    return text


def precision(value: Any) -> Any:
    """Refuse fp16 with the reason, since people want it for GPUs without bf16."""
    if str(value).lower() in ("fp16", "float16", "half", "16"):
        raise ValueError(
            "fp16 is not supported: without scaling of the loss, its gradients get too small or too large, and scaling"
            " would change the trained model; choose auto, which is bf16 (the same speed and memory), or fp32 on GPUs"
            " without bf16"
        )
    return value


def two_numbers(value: Any) -> Any:
    """Refuse any value that is not a list of two."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("a list of two numbers is expected, such as [0.9, 0.98]")
    return value


def ratio(value: object) -> str:
    """Reduce "8/16" to "1/2", so that equal ratios are equal settings."""
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", str(value))
    if not match or not int(match[2]) > 0 or not 0 < int(match[1]) < int(match[2]):
        raise ValueError("expected a ratio n/d with 0 < n < d, for instance 1/2 or 15/16")
    reduced = Fraction(int(match[1]), int(match[2]))
    return f"{reduced.numerator}/{reduced.denominator}"


def word_count(value: Any) -> Any:
    """Return a number of words: 100M and "100M words" are 100,000,000."""
    match = re.fullmatch(r"\s*([1-9]\d*(?:\.\d+)?|0\.\d+)\s*([kMG])\s*(words)?\s*", str(value))
    return round(float(match[1]) * {"k": 1e3, "M": 1e6, "G": 1e9}[match[2]]) if match else number(value)


def document_unit(value: Any) -> Any:
    """Return what one document of a text file is; raise a ValueError if it is none of the possible units."""
    if value not in ("file", "paragraph", "line") and not words_of_document(str(value)):
        raise ValueError(
            "expected file, paragraph, line, or a number of words, such as 300 words (whole lines that have so many"
            " words together)"
        )
    return value


def words_of_document(unit: str) -> int | None:
    """Return how many words the lines of one document have together; None if a document is something else."""
    match = re.fullmatch(r"([1-9]\d*) words", unit)
    return int(match[1]) if match else None


def budget(value: float | str | None) -> float | str | None:
    """Return megabytes as a number, or "N words", "N exact words" or "N documents"; 500k and 5M mean words."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*([1-9]\d*(?:\.\d+)?|0\.\d+)\s*([kMG]?)\s*(MB|words|exact words|documents|)\s*", value)
    digits, factor, unit = match.groups() if match else ("0", "", "")
    amount = float(digits) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[factor]
    if not amount or (factor and unit == "MB"):
        raise ValueError(
            "expected megabytes of English-equivalent text, or a text such as 500k words, 10M exact words or 5M"
            " documents"
        )
    if unit == "MB" or not (factor or unit):
        return amount
    return f"{round(amount)} {unit or 'words'}"


REPO_FIELDS = ("username", "architecture", "model", "causal_suffix", "variant_suffix")


def place_of_checkpoints(url: str) -> str:
    """Return a place for checkpoints, if it is one of the two kinds and holds no keys (`key:secret@bucket`)."""
    if re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]+(/[^/@?#\s]+)*/?|file://(/[^/?#]+)+/?", url):
        return url.rstrip("/")
    raise ValueError("expected s3://bucket/prefix or file:///path; keys of a store come from the environment (AWS_*)")


def repo_template(text: str) -> str:
    """Check that a template is `owner/name`, with known fields in braces, and return it."""
    name = text
    for field in REPO_FIELDS:
        name = name.replace(f"{{{field}}}", "x")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise ValueError(
            f"expected owner/name, with letters, digits, dots, hyphens, underscores and the fields"
            f" {', '.join(f'{{{field}}}' for field in REPO_FIELDS)}"
        )
    return text


def exponent(value: Any) -> float:
    """Return the exponent that a word stands for, so that `size` and 1 are equal settings."""
    try:
        return {"size": 1.0, "uniform": 0.0}[value] if value in ("size", "uniform") else float(number(value))
    except (TypeError, ValueError):
        raise ValueError("expected size, uniform or a number from 0 to 1") from None


# Names that the Hugging Face Hub accepts in a model card. It refuses a card with any other name when the finished model
# is uploaded, which may be days later.
# ISO 639-1; `sh` is no longer part of it, but still in use.
_TWO = (
    "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo"
    " es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka"
    " kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng"
    " nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st"
    " su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
TWO_LETTERS = frozenset(_TWO.split())
NO_LANGUAGE = ("code", "multilingual")  # what else the Hub accepts

_LICENCES = (
    "apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m"
    " afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0"
    " cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0"
    " cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0"
    " cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl"
    " gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc h-research intel-research lppl-1.3c ms-pl apple-ascl apple-amlr"
    " mpl-2.0 odc-by odbl openmdw-1.0 openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr"
    " deepfloyd-if-license fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3 llama4"
    " grok2-community gemma unknown other"
)
LICENCES = frozenset(_LICENCES.split())


def language_tag(tag: str) -> str:
    """Return the tag of a language; raise a ValueError if the Hub does not accept it. "" means the usual tag."""
    if not tag or tag in NO_LANGUAGE or tag in TWO_LETTERS or re.fullmatch("[a-z]{3}", tag, re.ASCII):
        return tag
    if re.fullmatch("[a-z]{2}", tag, re.ASCII):
        raise ValueError(f"{tag!r} is no code of ISO 639-1{nearest(tag, TWO_LETTERS)}")
    begun = re.split("[_-]", tag)[0].lower()
    instead = f", such as {begun}" if re.fullmatch("[a-z]{2,3}", begun, re.ASCII) else ", such as en or gsw"
    raise ValueError(
        f"the Hub does not accept {tag!r}: a code of ISO 639 is expected, two or three small letters without country or"
        f" script{instead}; or {' or '.join(NO_LANGUAGE)}"
    )


def licence(name: str) -> str:
    """Return the name of a licence; raise a ValueError if the Hub does not accept it."""
    if name not in LICENCES:
        raise ValueError(
            f"the Hub does not accept this name of a licence{nearest(name, LICENCES)} (write other for a licence that"
            " the Hub has no name for)"
        )
    return name
