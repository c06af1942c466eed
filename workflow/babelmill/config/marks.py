"""Mark keys of the configuration: when settings files leave a key out, and at which place in the file a key is.

`schema.py` puts the marks beside the types of the keys, and `canonical.py` applies them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Neutral:
    """Marks a key that was added after a release: `value` is the behaviour from before the key existed.

    Settings files leave the key out if it has this value, so that the new key reruns nothing.
    """

    value: Any


@dataclasses.dataclass(frozen=True)
class OnlyIf:
    """Marks a key that can matter only if another key of its section has one of `values`.

    Otherwise settings files leave it out, and a stage reads `value` instead.
    """

    key: str
    values: tuple[Any, ...]
    value: Any


@dataclasses.dataclass(frozen=True)
class Was:
    """Marks a key that has moved: settings files keep it in its old place, `section.key`."""

    key: str


@dataclasses.dataclass(frozen=True)
class Implied:
    """Marks a key that is None by default: `value` computes what None means from the other values of the section.

    Settings files hold None if the user writes this same value explicitly.
    """

    value: Callable[[dict[str, Any]], Any]


def from_scratch(value: Any) -> OnlyIf:
    """Mark a key of the architecture: a model that continues another (`source`) takes the value from it."""
    return OnlyIf("source", (None,), value)


def gpt_bert(value: Any) -> OnlyIf:
    """Mark a key that only GPT-BERT has."""
    return OnlyIf("architecture", ("gpt_bert",), value)
