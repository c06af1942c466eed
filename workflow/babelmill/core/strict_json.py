"""Parse JSON from outside: what the standard library takes silently, or fails on with a traceback, is a ValueError.

The standard library keeps the last of two equal keys, which hides text or settings. It recurses into nested values, so
that 100,000 brackets end in a RecursionError.
"""

import json
from typing import Any

from babelmill.core import escape


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of an object as a dictionary. Raise a ValueError if a key occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {escape.line(repr(twice), 100)} occurs twice in an object")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def parse(text: str) -> Any:
    """Return the value of a JSON text. Raise a ValueError, whose message is one line, if it is not JSON.

    A key that occurs twice in an object is refused, and so are values that are nested too deeply.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("not JSON that can be read: its values are nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    except ValueError as error:
        if "digits" not in str(error):
            raise
        raise ValueError("not JSON that can be read: an integer has thousands of digits") from None
