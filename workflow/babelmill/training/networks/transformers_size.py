"""Count the parameters of a model of transformers from its modules, so that costs are known before it has weights."""

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from babelmill.config import schema
from babelmill.config.model_size import Counted
from babelmill.tokens.vocabulary import SPECIAL_TOKENS, Vocabulary
from babelmill.training.networks.transformers_config import make_config
from babelmill.training.networks.transformers_models import CLASSIFIER, auto_class, blocks_of, on_meta, output_layer


def counted(model: PreTrainedModel, frozen: bool = False) -> Counted:
    """Count a model's parameters, also on the meta device. If `frozen`, only adapters are trained, and not counted."""
    layer = output_layer(model)
    matrix: nn.Parameter = layer.weight  # pyright: ignore[reportAssignmentType]
    return counted_without(model, layer, matrix.numel(), matrix.size(-1), frozen)


def counted_without(
    model: nn.Module, layer: nn.Module | None, output: int, width: int, frozen: bool = False
) -> Counted:
    """Count the parameters of a model whose output layer computes only with the targets.

    Args:
        model: the model.
        layer: the output layer, or None.
        output: number of elements of its matrix.
        width: width of its features.
        frozen: see `counted`.
    """
    blocks = blocks_of(model)
    matrices = [m.weight for m in model.modules() if isinstance(m, nn.Linear | Conv1D) and m is not layer]
    widths = [max(p.shape) for block in blocks[:1] for p in block.parameters() if p.ndim == 2]
    return Counted(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        matrices=sum(weight.numel() for weight in matrices),
        sides=sum(sum(weight.shape) for weight in matrices),
        output=output,
        hidden_size=width,
        intermediate_size=max(widths, default=width),
        num_attention_heads=getattr(getattr(model, "config", None), "num_attention_heads", 1),
        num_hidden_layers=len(blocks),
        frozen=frozen,
    )


def planned(model: schema.Model, train: schema.Train, vocab_size: int) -> Counted:
    """Count the parameters of the model that the settings describe.

    Raises:
        UserError: transformers has no such model, or its configuration has no such key.
    """
    vocabulary = Vocabulary(vocab_size, 1, 2, 3, 4, tuple(range(len(SPECIAL_TOKENS))))
    auto = auto_class(train)
    made = on_meta(make_config(model, auto, vocabulary), auto)
    if auto == CLASSIFIER:
        return counted_without(made, None, 0, made.config.hidden_size)
    return counted(made, frozen=train.lora_rank > 0)
