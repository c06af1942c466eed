"""Read OccCANINE's models (Dahl, Johansen and Vedel, 2024, arXiv:2402.13604) as its training saves them: `last.bin`.

The entry `model` of this file holds a CANINE (`encoder.`), the decoder that spells codes (`decoder.`, with our names)
and the linear head (`linear_decoder.`). The entry `key` says which code is which class of this head. The decoder has
one entry more than symbols.
"""

from collections.abc import Mapping
from typing import Any

import torch

from babelmill.core.files import UserError

ENCODER, DECODER, LINEAR = "encoder.", "decoder.", "linear_decoder."
SYMBOLS = ("decoder.token_emb.embedding.weight", "decoder.head.weight", "decoder.head.bias")  # one row per symbol


def is_of(weights: Mapping[str, torch.Tensor]) -> bool:
    """Return whether these are the weights of an OccCANINE model."""
    return SYMBOLS[0] in weights and any(name.startswith(LINEAR) for name in weights)


def encoder_of(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights of the encoder, under the names of the transformers class."""
    return {name.removeprefix(ENCODER): tensor for name, tensor in weights.items() if name.startswith(ENCODER)}


def heads_of(
    weights: Mapping[str, torch.Tensor], key: Any, where: str
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the weights of the heads under our names, and what `codes.json` says about them.

    These are the weights of the classifier, with one row per code, and those of the decoder; and `codes` in the order
    of the classifier, with the decoder's sizes `entries`, `layers`, `inner` and `width`. `key`: what tells which code
    is which class; a UserError says that it does not.
    """
    classes = classes_of(key, len(weights[f"{LINEAR}weight"]), where)
    rows = torch.tensor([row for row, _ in classes])
    heads = {f"classifier.{part}": weights[f"{LINEAR}{part}"][rows] for part in ("weight", "bias")}
    names = [name for name in weights if name.startswith(DECODER) and not name.endswith("pos_embedding")]
    heads |= {name: weights[name][:-1] if name in SYMBOLS else weights[name] for name in names}
    inner, width = weights["decoder.decoder.layers.0.linear1.weight"].shape
    shape = {"layers": sum(name.endswith(".linear1.weight") for name in names), "inner": inner, "width": width}
    return heads, {"codes": [code for _, code in classes], "entries": len(heads[SYMBOLS[0]]), **shape}


def classes_of(key: Any, count: int, where: str) -> list[tuple[int, str]]:
    """Return the pairs (class, code) in the order of the classes; `where` begins errors.

    `key`: {code: class}, or a list of the codes in the order of the classes. `count`: the number of classes of the
    linear head. A UserError says that there is no key that fits the head.
    """
    if isinstance(key, list):
        key = {code: i for i, code in enumerate(key)}
    numbers = [*key.values()] if isinstance(key, dict) else []
    fits = all(isinstance(number, int) and 0 <= number < count for number in numbers)
    if not numbers or not fits or len({*numbers}) < len(numbers):
        wanted = f"one of the {count:,} classes of its linear head for each code"
        raise UserError(f"{where} has no `key` with {wanted}; use the .bin file that the training saved")
    return sorted((number, str(code)) for code, number in key.items())
