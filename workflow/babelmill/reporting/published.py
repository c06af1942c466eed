"""Read `config/published.yaml`: the scores that others published for models that papers compare with."""

import functools
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pydantic

from babelmill.config.languages import read_table
from babelmill.config.layers import nearest
from babelmill.config.mistakes import worded
from babelmill.config.schema import Number, Section
from babelmill.config.submissions import Rules
from babelmill.core.files import UserError
from babelmill.core.places import ROOT
from babelmill.core.yaml_file import read_yaml

FILE = ROOT / "config/published.yaml"

Name = Annotated[str, pydantic.Field(min_length=1)]
Percent = Annotated[Number, pydantic.Field(ge=0, le=100)]


class PublishedScore(NamedTuple):
    """A score of a published model."""

    model: str  # the name of the model, for readers
    language: str  # the code of the language
    suite: str  # the name of the suite, or of the task
    protocol: str  # the program that scored the model, and how
    score: float  # percent of the items that are right
    source: str  # where the score was read


class PublishedTable(Section):
    """An entry of `tables`: the scores of several models on one suite."""

    suite: Name
    language: Name
    protocol: Name
    source: Name
    scores: Annotated[dict[str, Percent], pydantic.Field(min_length=1)]


class PublishedFile(Section):
    """The content of the file, whose first lines explain it."""

    sources: dict[str, Name]
    models: dict[str, Name]
    tables: list[PublishedTable]


def published(suite: str, language: str, path: Path = FILE) -> list[PublishedScore]:
    """Return the published scores on a suite in a language, in order; raise a UserError if the file has a mistake."""
    return [row for row in read(path) if (row.suite, row.language) == (suite, language)]


def beside(rules: Rules) -> dict[str, list[dict[str, Any]]]:
    """Return {number of a challenge: the published scores that stand beside it}."""
    return {
        name: [row._asdict() for row in published(each.published, each.language) if row.protocol in rules.protocols]
        for name, each in rules.numbers.items()
        if each.published
    }


@functools.cache
def read(path: Path) -> list[PublishedScore]:
    """Return all scores of a file; raise a UserError of one line if it has a mistake."""
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    values = read_yaml(path)
    try:
        content = PublishedFile.model_validate(values)
    except pydantic.ValidationError as error:
        raise UserError(f"{where}: {worded(error, values)[1]}") from None
    languages = read_table(ROOT / "config/languages.tsv")
    found: dict[tuple[str, ...], PublishedScore] = {}
    for number, table in enumerate(content.tables):
        names = [("source", table.source, content.sources), ("language", table.language, languages)]
        names += [(f"scores.{name}", name, content.models) for name in table.scores]
        for key, name, known in names:
            if name not in known:
                raise UserError(f"{where}: tables.{number}.{key}: {name!r} is not known{nearest(name, known)}")
        for name, score in table.scores.items():
            key = (name, table.language, table.suite, table.protocol)
            if key in found:
                raise UserError(f"{where}: tables.{number}.scores.{name}: an earlier table has this score, too")
            found[key] = PublishedScore(content.models[name], *key[1:], score, content.sources[table.source])
    return list(found.values())
