"""Which heads a model of labels takes over from its source (`release/occcanine.py`)."""

from pathlib import Path
from typing import NamedTuple

from babelmill.config import schema
from babelmill.core.files import read_json
from babelmill.core.words import plural
from babelmill.tokens.codes import SYSTEMS, Codes, written

FILE = "codes.json"
CLASSIFIER, DECODER = "classifier.", "decoder."


class Begun(NamedTuple):
    """What a model takes over from its source.

    Attributes:
        codes: the codes that the model knows: the source's, in its order, if these include all codes of the text.
        heads: prefixes of the names of the weights that are taken over.
        said: a description in words; empty if the source has no heads.
    """

    codes: Codes
    heads: tuple[str, ...] = ()
    said: str = ""


def begun(source: Path | None, codes: Codes, labels: schema.Labels) -> Begun:
    """Return which heads of a source are taken over, given the codes of the text."""
    if source is None or not (source / FILE).is_file():
        return Begun(codes)
    theirs = read_json(source / FILE)
    try:
        names = [written(c, labels.code, labels.block_size, labels.symbol_separator) for c in theirs["codes"]]
    except ValueError as problem:
        return Begun(codes, (), f"its heads begin anew: {problem} (labels.code)")
    known = set(names)
    if strange := [name for name in codes.names if name not in known]:
        classes = (
            f"its linear head begins anew, which does not know {plural(len(strange), 'code')}, such as {strange[0]}"
        )
    else:
        codes = Codes(names, codes.system, labels.block_size, labels.symbol_separator)
        classes = f"its linear head goes on, with its {plural(len(names), 'code')}"
    differs = ""
    if not SYSTEMS[codes.system].symbols or theirs["entries"] != codes.entries:
        differs = f"labels.code: {codes.system} has other symbols"
    elif theirs["layers"] != labels.decoder_layers:
        differs = f"it has {theirs['layers']} layers, labels.decoder_layers is {labels.decoder_layers}"
    elif theirs["inner"] != theirs["width"]:
        differs = f"its layers are {theirs['inner']} wide inside"
    spells = f"its decoder begins anew: {differs}" if differs else "its decoder goes on"
    heads = (() if strange else (CLASSIFIER,)) + (() if differs else (DECODER,))
    return Begun(codes, heads, f"{classes}; {spells}")
