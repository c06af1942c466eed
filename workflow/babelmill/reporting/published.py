"""Read `config/published.yaml`: the scores that others published for models that papers compare with."""

import functools
from typing import Any, NamedTuple

from babelmill.config.submissions import Rules
from babelmill.core.places import ROOT
from babelmill.core.yaml_file import read_yaml

FILE = ROOT / "config/published.yaml"  # a file of the project, which its tests check


class PublishedScore(NamedTuple):
    """A score of a published model."""

    model: str  # the name of the model, for readers
    language: str  # the code of the language
    suite: str  # the name of the suite, or of the task
    protocol: str  # the program that scored the model, and how
    score: float  # percent of the items that are right
    source: str  # where the score was read


def published(suite: str, language: str) -> list[PublishedScore]:
    """Return the published scores on a suite in a language, in order."""
    return [row for row in read() if (row.suite, row.language) == (suite, language)]


def beside(rules: Rules) -> dict[str, list[dict[str, Any]]]:
    """Return {number of a challenge: the published scores that stand beside it}."""
    return {
        name: [row._asdict() for row in published(each.published, each.language) if row.protocol in rules.protocols]
        for name, each in rules.numbers.items()
        if each.published
    }


@functools.cache
def read() -> list[PublishedScore]:
    """Return all scores of the file."""
    content, found = read_yaml(FILE), list[PublishedScore]()
    for table in content["tables"]:
        where = table["language"], table["suite"], table["protocol"]
        source = content["sources"][table["source"]]
        found += [
            PublishedScore(content["models"][name], *where, each, source) for name, each in table["scores"].items()
        ]
    return found
