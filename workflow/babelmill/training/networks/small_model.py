"""Make a smaller model of the same class, which is tested instead of a model that may fill the host's memory.

The test (`transformers_proof.py`) checks whether documents see each other, which side a token reads, how positions are
counted, and whether the features times the output matrix are the scores. None of this depends on the number of layers
of a kind, or on the number of tokens in the vocabulary. So the smaller model has only the first tokens, and the first
layers up to the point where each kind of layer has occurred. Two layers are of different kinds if their modules, shapes
or plain attributes differ, or if the configuration gives different values for them. Widths stay as they are: the test
looks at rounding and at the size of scores, which depend on them.
"""

import copy

from huggingface_hub.errors import StrictDataclassFieldValidationError
from torch import nn
from transformers import PreTrainedConfig

from babelmill.training.networks.transformers_models import blocks_of, first_position, on_meta

LAYERS = 2  # the fewest layers: if there were only one, no layer would read what another has written
TOKENS = 1024  # tokens of the vocabulary


def smaller(config: PreTrainedConfig, auto: str) -> PreTrainedConfig:
    """Return the configuration of the smaller model, whose class is `auto`. `config` itself does not change."""
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
    if not first_position(whole) and config.vocab_size > TOKENS:  # else positions are counted from the id of a token
        found.vocab_size = TOKENS
        for key, value in vars(config).items():
            if key.endswith("_token_id") and value is not None and not (isinstance(value, int) and value < TOKENS):
                _forget_token(found, key)
    return found


def _forget_token(config: PreTrainedConfig, key: str) -> None:
    """Set the id of a token to None, or to 0 if the configuration's class allows numbers only."""
    try:
        setattr(config, key, None)
    except StrictDataclassFieldValidationError:
        setattr(config, key, 0)


def _kind(block: nn.Module, number: int) -> list[str]:
    """Describe a layer completely, except for its number."""
    described = [str(block), *(str(tuple(parameter.shape)) for parameter in block.parameters())]
    for module in block.modules():
        plain = {key: value for key, value in vars(module).items() if isinstance(value, (int, float, str, type(None)))}
        described.append(str(sorted((k, v) for k, v in plain.items() if not ("layer" in k and v == number))))
    return described
