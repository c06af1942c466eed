"""A smaller model of the same class, which is put to the proof in place of one that fills the host's memory.

Whether documents see each other, which side a token reads, how positions are counted, and whether features times output
matrix are the scores: none of it depends on how many layers of a kind there are, or how many tokens. So the smaller
model has the first layers, until each kind of layer that the whole one has is there, and the first tokens. Kinds differ
in their modules, their shapes, their plain attributes or in what the configuration says of each layer. Widths stay,
since rounding and the size of scores, which the proof looks at, depend on them.
"""

import copy

from torch import nn
from transformers import PreTrainedConfig

from babelmill.training.transformers_models import blocks_of, first_position, on_meta

LAYERS = 2  # at least: with one alone, no layer would read what another has written
TOKENS = 1024  # of the vocabulary


def smaller(config: PreTrainedConfig, auto: str) -> PreTrainedConfig:
    """Return the configuration of the smaller model; `auto`: its class. `config` stays as it is."""
    whole, found = on_meta(config, auto), copy.deepcopy(config)
    blocks = blocks_of(whole)
    count = len(blocks)
    by_layer = {key: value for key, value in vars(config).items() if isinstance(value, list) and len(value) == count}
    kinds = [(*_kind(block, i), *(str(value[i]) for value in by_layer.values())) for i, block in enumerate(blocks)]
    layers = max(LAYERS, *(kinds.index(kind) + 1 for kind in kinds)) if kinds else 0
    if layers < count == getattr(config, "num_hidden_layers", None):
        for key, value in by_layer.items():
            setattr(found, key, value[:layers])
        found.num_hidden_layers = layers
    if not first_position(whole) and config.vocab_size > TOKENS:  # else positions are counted from an entry of it
        found.vocab_size = TOKENS
        for key, value in vars(config).items():
            if key.endswith("_token_id") and value is not None and not (isinstance(value, int) and value < TOKENS):
                setattr(found, key, None)
    return found


def _kind(block: nn.Module, number: int) -> list[str]:
    """Describe all of a layer but its number."""
    described = [str(block), *(str(tuple(parameter.shape)) for parameter in block.parameters())]
    for module in block.modules():
        plain = {key: value for key, value in vars(module).items() if isinstance(value, (int, float, str, type(None)))}
        described.append(str(sorted((k, v) for k, v in plain.items() if not ("layer" in k and v == number))))
    return described
