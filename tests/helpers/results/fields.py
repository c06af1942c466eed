"""Compare the fields of result files with docs/fields.md, which lists all of them."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from babelmill.corpus.tally import CHANGED, CONTAINED, DROPPED
from conftest import ROOT

PAGE = ROOT / "docs/fields.md"
# The words in braces that do not stand for names that a user, a language or a suite chooses.
NAMES = {
    "kind": "masked|causal|diffusion|blocks|classes",
    "variant": "main|ema",
    "metric": "causal|masked|diffusion|unigram|exact|f1|accuracy|mcc|span_f1",
    "method": "causal|masked|fused|bound",
    "reason": "|".join(DROPPED),
    "step": "|".join({**DROPPED, **CHANGED}),
    "sign": "|".join(CONTAINED),
}


@cache
def documented(section: str) -> frozenset[tuple[str, ...]]:
    """The paths of a section's tables; a row that links to another section has the fields of that one, too."""
    text = PAGE.read_text(encoding="utf-8")
    part = re.split(r"\n#+ ", text.split(f"# {section}\n", 1)[1])[0]
    found = set()
    for names, meaning in re.findall(r"^\| (`[^|]+`) \|(?:[^|]+\|)? ([^|]+) \|$", part, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", names):
            path = tuple(name.split("."))
            found.add(path)
            if link := re.search(r"\[a (score|share)\]", meaning):
                found |= {(*path, *below) for below in documented(f"A {link[1]}")}
            found |= {(*path, word) for word in re.findall(r"`([\w{}]+)`", meaning)}
    if ("snapshots",) in found:
        found |= {("snapshots", *path) for path in found if path[0] == "languages"}
    return frozenset(found)


def fits(path: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Whether a path is the one that a pattern describes; {words} stand for any name, or for those in NAMES."""
    as_regex = [
        re.sub(r"\\{(\w+)\\}", lambda word: f"({NAMES.get(word[1], '.+')})", re.escape(part)) for part in pattern
    ]
    return len(path) == len(pattern) and all(map(re.fullmatch, as_regex, path))


def paths(value: Any, above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The paths of all fields of a value of JSON; lists of objects are looked into."""
    if isinstance(value, dict):
        return {(*above, key) for key in value}.union(*(paths(each, (*above, key)) for key, each in value.items()))
    return set().union(*(paths(each, above) for each in value)) if isinstance(value, list) else set()


def undocumented(file: Path, section: str = "") -> list[str]:
    """The fields of a result file that the page does not list in the section of that file."""
    patterns = documented(section or file.name)
    # What stands above a field that is listed needs no row of its own.
    above = {pattern[:length] for pattern in patterns for length in range(len(pattern))}
    found = set()
    for line in file.read_text(encoding="utf-8").splitlines() if file.suffix == ".jsonl" else [file.read_text()]:
        found |= paths(json.loads(line))
    return sorted(".".join(path) for path in found if not any(fits(path, each) for each in patterns | above))
