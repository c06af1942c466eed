"""The weights of an encoder that goes on from a language model: which of that one's tensors are which of its own."""

from collections.abc import Collection

from babelmill.core.files import UserError


def names_in_source(
    wanted: Collection[str], there: Collection[str], prefix: str, head: Collection[str], where: str
) -> dict[str, str]:
    """Return {name of the encoder: name in the source}; heads and poolers that the source does not have are left out.

    Args:
        wanted: the encoder's weights, by the names of its class, with a classifier.
        there: names in the source's file, which may have them without the `prefix` of the class, or a language model's
            head besides.
        prefix: what the class calls the encoder without the head.
        head: those of `wanted` that belong to no encoder.
        where: the source's file, for the error.

    Raises:
        UserError: the source lacks a weight of the encoder.
    """
    found = {}
    for name in wanted:
        candidates = [name, name.removeprefix(f"{prefix}.")]
        theirs = next((each for each in candidates if each in there and name not in head), None)
        if theirs is not None:
            found[name] = theirs
        elif name not in head and ".pooler." not in f".{name}":
            raise UserError(f"{where}: {candidates[-1]} is not there: not the weights of this encoder")
    return found
