"""Marks on keys of the configuration: what settings files leave out, and where they hold what they do not.

`schema.py` puts them where the type of a key stands, and `canonical.py` does what they say.
"""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Neutral:
    """Marks a key that was added after a release: `value` is the behaviour from before the key existed.

    Settings files leave the key out where it has this value, so that the new key reruns nothing.
    """

    value: Any


@dataclasses.dataclass(frozen=True)
class OnlyIf:
    """Marks a key that can matter only if another key of its section has one of `values`.

    Elsewhere settings files leave it out, and a stage reads `value` in its place.
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
    """Marks a key that is None by default: `value` returns what that means, from the other values of the section.

    Settings files hold None where somebody has written the same value out.
    """

    value: Callable[[dict[str, Any]], Any]


def from_scratch(value: Any) -> OnlyIf:
    """Mark a key of an architecture: a model that goes on from another (`source`) has that one's value."""
    return OnlyIf("source", (None,), value)


def gpt_bert(value: Any) -> OnlyIf:
    """Mark a key of GPT-BERT alone."""
    return OnlyIf("architecture", ("gpt_bert",), value)
