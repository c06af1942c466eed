"""Find the weights of an encoder in the language model that it starts from: which tensor of the source is which."""

from collections.abc import Collection

from babelmill.core.files import UserError


def names_in_source(
    wanted: Collection[str], there: Collection[str], prefix: str, head: Collection[str], where: str
) -> dict[str, str]:
    """Return {name in the encoder: name in the source}, without heads, and without poolers that the source lacks.

    Args:
        wanted: names of the encoder's weights in its class, which has a classifier.
        there: names in the source's file. They may lack the `prefix` of the class, and may include a language model's
            head.
        prefix: the class's name for the encoder without its head.
        head: those of `wanted` that belong to the head.
        where: the source's file, for the error message.

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
            raise UserError(f"{where}: {candidates[-1]} is missing: these are not the weights of this encoder")
    return found
