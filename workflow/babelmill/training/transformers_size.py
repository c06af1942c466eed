"""The size of a model of transformers, from its modules alone: what its training costs, before there are weights."""

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from babelmill.config import schema
from babelmill.config.model_size import Counted
from babelmill.tokens.vocabulary import SPECIAL_TOKENS, Vocabulary
from babelmill.training.objectives import hides_alone, objective_of
from babelmill.training.transformers_config import make_config
from babelmill.training.transformers_models import blocks_of, on_meta, output_layer


def counted(model: PreTrainedModel, frozen: bool = False) -> Counted:
    """Count a model, whose weights may be on the device `meta`; `frozen`: adapters are trained, which do not count."""
    layer, blocks = output_layer(model), blocks_of(model)
    matrices = [m.weight for m in model.modules() if isinstance(m, nn.Linear | Conv1D) and m is not layer]
    widths = [max(p.shape) for block in blocks[:1] for p in block.parameters() if p.ndim == 2]
    matrix: nn.Parameter = layer.weight  # pyright: ignore[reportAssignmentType]
    return Counted(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        matrices=sum(weight.numel() for weight in matrices),
        sides=sum(sum(weight.shape) for weight in matrices),
        output=matrix.numel(),
        hidden_size=matrix.size(-1),
        intermediate_size=max(widths, default=matrix.size(-1)),
        num_attention_heads=getattr(model.config, "num_attention_heads", 1),
        num_hidden_layers=len(blocks),
        frozen=frozen,
    )


def planned(model: schema.Model, train: schema.Train, vocab_size: int) -> Counted:
    """Count the model of some settings. UserError: transformers has no such model, or no such key of it."""
    vocabulary = Vocabulary(vocab_size, 1, 2, 3, 4, tuple(range(len(SPECIAL_TOKENS))))
    hides = hides_alone(objective_of(train))
    return counted(on_meta(make_config(model, hides, vocabulary), hides), frozen=train.lora_rank > 0)
