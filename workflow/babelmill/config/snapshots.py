"""Define snapshots: weights of a training run, kept after given numbers of million words of text (`run.snapshots`).

BabyLM asks for a snapshot after every million words up to 10 million, every 10 million up to 100 million, and every
100 million up to 1,000 million, each as a branch of the repository, such as `chck_1M`. Words are separated by
whitespace; for scripts that do not separate words, see `Language.bytes_per_word`.
"""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from babelmill.config.schema import Snapshots
from babelmill.core import manifest
from babelmill.core.escape import some

BABYLM = (*range(1, 10), *range(10, 100, 10), *range(100, 1001, 100))
NEAR = 0.03  # a run that ends by this share before a point has the point, at its end
FOLDER = "snapshots"  # in the folder of a run, an exported model or a converted model
NEARLY = 0.15  # a run that ends by at most this share before a point of `babylm` was meant to have the point


def points(asked: Snapshots) -> list[float]:
    """Return the points, in millions of words."""
    return list(map(float, BABYLM)) if asked == "babylm" else list(asked)


def name_of(point: float) -> str:
    """Return the name of the snapshot after `point` million words, which is also its branch on the Hub."""
    return f"chck_{Decimal(repr(point)).normalize():f}M"


def kept_at_the_end(asked: Sequence[float], million_words: float) -> list[float]:
    """Return the points that a run has when it ends after so many words: those reached, and one shortly after its end.

    A run of ten epochs over 10 million words, of which 2 % are set aside for validation, ends after 98 million words:
    its last weights are those of the point 100.
    """
    reached = [point for point in asked if point <= million_words]
    next_one = asked[len(reached) : len(reached) + 1]
    return [*reached, *(point for point in next_one if point * (1 - NEAR) <= million_words)]


def missing_points(asked: Snapshots, million_words: float) -> list[float]:
    """Return the points that a run will not have, since it ends before them.

    `babylm` is a list for runs of any length: of its points after the end, only one that the run nearly reaches is
    missing.
    """
    every = points(asked)
    beyond = every[len(kept_at_the_end(every, million_words)) :]
    return [point for point in beyond[:1] if point * (1 - NEARLY) <= million_words] if asked == "babylm" else beyond


def say_missing(missing: Sequence[float], million_words: float, about: str = "") -> str:
    """Return a sentence on the points that a run will not have; "" if it will have all.

    `million_words`: how many words the run reads; `about`: a word before the number, if it is an estimate.
    """
    if not missing or not million_words:
        return ""
    found = some(map(name_of, missing), 3)
    return f"run.snapshots: {found}: the run ends after {about}{million_words:,.4g} million words"


def names(folder: Path) -> list[str]:
    """Return the names of the snapshots in a folder of a model, the earliest first."""
    found = {path.parent.name: about(path.parent) for path in (folder / FOLDER).glob(f"*/{manifest.NAME}")}
    return sorted(found, key=lambda name: found[name]["million_words"])


def about(folder: Path) -> dict[str, Any]:
    """Return the place of a snapshot in the run: `million_words`, `step`, `tokens`, and, if known, the true `words`."""
    return manifest.read(folder)["figures"]
