"""Define snapshots: weights of a training run, kept after given numbers of million words of text (`run.snapshots`).

BabyLM asks for a snapshot after every million words up to 10 million, every 10 million up to 100 million, and every
100 million up to 1,000 million, each as a branch of the repository, such as `chck_1M`. Words are separated by
whitespace; for scripts that do not separate words, see `Language.bytes_per_word`.
"""

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from babelmill.config.values import number

BABYLM = (*range(1, 10), *range(10, 100, 10), *range(100, 1001, 100))
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
