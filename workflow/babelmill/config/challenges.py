"""Read the challenges that models can take part in, `config/challenges/*.yaml`, and check a model against its limits.

A challenge is a layer of the models that name it (`models.NAME.challenge`), and brings corpora of its own.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pydantic

from babelmill.config.layers import CHALLENGES, nearest
from babelmill.config.mistakes import worded
from babelmill.config.own_files import config_file, config_names
from babelmill.config.schema import MODEL_SECTIONS, Challenge
from babelmill.core.files import UserError
from babelmill.core.formats import FORMATS, split_name
from babelmill.core.yaml_file import read_yaml

if TYPE_CHECKING:
    from babelmill.config.resolve import ResolvedCorpus, ResolvedModel


def file_of(name: str) -> str:
    """Return the file of a challenge, for messages and origins."""
    return f"{CHALLENGES}{name}.yaml"


def read_challenges(root: Path) -> dict[str, Challenge]:
    """Return {name: challenge} of all files in `config/challenges/`; raise a UserError for a mistake in one.

    An old copy of one of Babelmill's files is not read here: it matters only to who uses the challenge (`check_copy`).
    """
    files = {name: Path(file_of(name)) for name in sorted(config_names(CHALLENGES, root))}
    return {name: _read(root / own if (root / own).is_file() else own) for name, own in files.items()}


def check_copy(name: str, root: Path) -> None:
    """Raise a UserError if Babelmill and the user have different files of a challenge."""
    config_file(file_of(name), root)


def _read(path: Path) -> Challenge:
    where, values = file_of(path.stem), read_yaml(path)
    try:
        challenge = Challenge.model_validate(values)
    except pydantic.ValidationError as error:
        raise UserError(f"{where}: {worded(error, values)[1]}") from None
    for section in challenge.settings:
        if section not in MODEL_SECTIONS:
            raise UserError(f"{where}: settings has no section {section}{nearest(section, MODEL_SECTIONS)}")
    return challenge


def check_format(resolved: "ResolvedCorpus") -> None:
    """Raise a UserError if a challenge says how its own files are read, and the user's files are of another format."""
    corpus, where = resolved.corpus, resolved.origins["corpus.format"]
    for path in (*corpus.files, *corpus.validation_files):
        suffix = split_name(path)[0]
        if where.startswith(CHALLENGES) and suffix in FORMATS and suffix != f".{corpus.format}":
            raise UserError(
                f"{resolved.origins['corpus.files']}: languages.{resolved.name}.corpus names {path}, but {where} says"
                f" corpus.format = {corpus.format}, for its own files: set languages.{resolved.name}.corpus.format, too"
                f" ({suffix.removeprefix('.')}, or null if the names of the files say it)"
            )


def check_limit(resolved: "ResolvedModel", name: str, challenge: Challenge, sources: list["ResolvedModel"]) -> None:
    """Raise a UserError if a model, with the `sources` that it continues, may read more words than allowed."""
    where, limit = resolved.origins["train.words"], f"{challenge.words:,} words at most"
    if resolved.source and (not sources or [*sources][-1].source):
        raise UserError(
            f"{resolved.origins['model.source']}: model.source: a model of the challenge {name} reads {limit}, and what"
            " a model from elsewhere has read is not known; continue a model of this workflow, or none"
        )
    for each in (resolved, *sources):
        if each.train.words is None:
            raise UserError(
                f"{each.origins['train.words']}: train.words = null for model {each.name}: a model of the challenge"
                f" {name} reads {limit}, so its training ends by words; set train.words"
            )
    words = sum(each.train.words or 0 for each in (resolved, *sources))
    if words > challenge.words:
        beside = f" (with {', '.join(each.name for each in sources)})" if sources else ""
        raise UserError(
            f"{where}: train.words = {resolved.train.words:,}: a model of the challenge {name} reads {limit}, and"
            f" {resolved.name} would read {words:,}{beside}; lower it"
        )
