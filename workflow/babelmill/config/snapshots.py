"""Define snapshots: weights of a training run, kept after given numbers of million words of text (`run.snapshots`).

BabyLM asks for a snapshot after every million words up to 10 million, every 10 million up to 100 million, and every
100 million up to 1,000 million, each as a branch of the repository, such as `chck_1M`. Words are separated by
whitespace; for scripts that do not separate words, see `Language.bytes_per_word`.
"""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from babelmill.config.values import number
from babelmill.core.escape import some

BABYLM = (*range(1, 10), *range(10, 100, 10), *range(100, 1001, 100))
NEAR = 0.03  # a run that ends by this share before a point has the point, at its end
FOLDER = "snapshots"  # in the folder of a run, an exported model or a converted model


def in_order(value: Any) -> Any:
    """Return the points in order, each once; raise a ValueError for any other value."""
    if value == "babylm":
        return value
    try:
        found = sorted({float(number(point)) for point in value})
    except (TypeError, ValueError):
        found = [0.0]
    if isinstance(value, str) or any(not 0 < point <= 1e6 for point in found):
        raise ValueError("expected babylm, or a list of millions of words, such as [1, 10, 100]")
    return found


Snapshots = Annotated[Literal["babylm"] | list[float], BeforeValidator(in_order)]


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


def missing_points(
    asked: Sequence[float], million_words: float, epochs: float, max_steps: int | None, set_aside: float
) -> tuple[list[float], str]:
    """Return the points that a run will not have, and a sentence on them with what to set; "" if it will have all.

    Args:
        asked: all points, in millions of words, in order.
        million_words: how many words the run reads.
        epochs: how often it reads the training text.
        max_steps: the key of `train`.
        set_aside: the share of the corpus that is set aside for validation.
    """
    missing = list(asked[len(kept_at_the_end(asked, million_words)) :])
    if not missing or not million_words:
        return missing, ""
    advice, times = [], missing[0] / million_words
    if 0 < set_aside < 1 and kept_at_the_end(missing[:1], million_words / (1 - set_aside)):
        advice.append(f"corpus.validation_files (now {set_aside:.1%} of the corpus are set aside for validation)")
    longer = f"train.epochs: {math.ceil(100 * epochs * times) / 100:g}"
    advice.append(longer if max_steps is None else "a higher train.max_steps")
    names = some(map(name_of, missing), 3)
    return missing, (
        f"no {names}: the run ends after {million_words:,.4g} million words; for {name_of(missing[0])}, set"
        f" {' or '.join(advice)}"
    )
