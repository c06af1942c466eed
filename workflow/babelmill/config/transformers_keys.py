"""Check what the configuration says about a transformers model: its type and its keys.

Importing transformers takes a second or two, so only what needs it imports it.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any

from babelmill.config.layers import nearest
from babelmill.core.files import UserError

# Names from earlier versions for the content of `rope_parameters`, which transformers still accepts.
ROPE = ("rope_theta", "rope_scaling", "global_rope_theta", "local_rope_theta")
# Keys that say how many layers a model has. (Others with `layer` in their names are about some of these layers.)
LAYERS = re.compile(r"(n|num)_(hidden_|encoder_|decoder_)?layers?|(en|de)coder_layers")
MOST_LAYERS = 1000


def check_layers(config: Mapping[str, Any], where: str, tensors: int | None = None) -> None:
    """Raise a UserError if a config.json describes more layers than any model has: to make them would take hours.

    If it is known how many tensors the model's files hold, there cannot be more layers, either.
    """
    for key, value in config.items():
        most = max(MOST_LAYERS, tensors or 0)
        if LAYERS.fullmatch(key) and isinstance(value, int | float) and value > most:
            raise UserError(f"{where}: config.json: {key} = {value:,}: {most:,} layers at most are expected")


@functools.cache
def keys(model_type: str) -> frozenset[str]:
    """Return the keys that the configuration class of a model type has, with aliases; none if there is no such type."""
    from transformers import PreTrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        return frozenset()
    kind = CONFIG_MAPPING[model_type]
    own = {field.name for field in dataclasses.fields(kind)} - {f.name for f in dataclasses.fields(PreTrainedConfig)}
    return frozenset(own | kind.attribute_map.keys() | (set(ROPE) if "rope_parameters" in own else set()))


def wrong(config: dict[str, Any]) -> str | None:
    """Return what transformers does not accept in a `model.config`, and what it knows; None if it accepts all."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type, known = config["model_type"], keys(config["model_type"])
    if model_type not in CONFIG_MAPPING:
        near = nearest(model_type, CONFIG_MAPPING)
        return f"model.config.model_type = {model_type!r}: transformers has no such model{near}"
    for key in sorted(config.keys() - known - {"model_type"}):
        return (
            f"model.config.{key} = {config[key]!r}: {model_type} of transformers has no such key{nearest(key, known)}"
        )
    try:
        CONFIG_MAPPING[model_type](**{key: value for key, value in config.items() if key != "model_type"})
    except Exception as error:  # each class checks its values by itself
        return f"model.config: {' '.join(str(error).split())}"
    return None
