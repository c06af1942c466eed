"""Decide which heads a model of labels takes over from its source (`labels/occcanine.py`)."""

from pathlib import Path
from typing import NamedTuple

from babelmill.config import schema
from babelmill.core.files import read_json
from babelmill.core.words import plural
from babelmill.labels.codes import SYSTEMS, Codes, written

FILE = "codes.json"
CLASSIFIER, DECODER = "classifier.", "decoder."


class Begun(NamedTuple):
    """Says what a model takes over from its source.

    Attributes:
        codes: the codes that the model knows. If the source's codes include all codes of the text, they are the
            source's, in the same order.
        heads: the weights whose names begin with one of these prefixes are taken over.
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
        return Begun(codes, (), f"its heads start with random weights: {problem} (labels.code)")
    known = set(names)
    if strange := [name for name in codes.names if name not in known]:
        classes = (
            "its linear head starts with random weights, since the source does not know"
            f" {plural(len(strange), 'code')}, such as {strange[0]}"
        )
    else:
        codes = Codes(names, codes.system, labels.block_size, labels.symbol_separator)
        classes = f"its linear head continues, with its {plural(len(names), 'code')}"
    differs = ""
    if not SYSTEMS[codes.system].symbols or theirs["entries"] != codes.entries:
        differs = f"labels.code: {codes.system} has other symbols"
    elif theirs["layers"] != labels.decoder_layers:
        differs = f"the source's has {theirs['layers']} layers, but labels.decoder_layers is {labels.decoder_layers}"
    elif theirs["inner"] != theirs["width"]:
        differs = f"the source's has feed-forward blocks of width {theirs['inner']}"
    spells = f"its decoder starts with random weights: {differs}" if differs else "its decoder continues"
    heads = (() if strange else (CLASSIFIER,)) + (() if differs else (DECODER,))
    return Begun(codes, heads, f"{classes}; {spells}")
