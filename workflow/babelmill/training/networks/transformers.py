"""Train a transformers model, with its own masked or causal class and dropout. Documents are kept apart.

Before training, `prove` tests whether the model computes what training assumes; if it does not, it is refused. The test
uses a small model of the same class, with random weights (`smaller` says why this is enough):

* A row of one document has the same scores as without our mask, also if it is longer than the model's window.
* If a row has two documents, neither changes the scores of the other, and each has the same scores as if it were alone.
* A model that predicts hidden tokens reads both sides; a model that predicts the next token reads only the left side.
* The features times the output matrix are the scores. A model that caps scores afterwards has another loss. (A model
  that scales scores passes, since the scale is then applied to the features.)
"""

import contextlib
import copy
import logging

import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from babelmill.config import schema
from babelmill.core.files import UserError
from babelmill.runtime.processes import Processes
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.batches import MicroBatch
from babelmill.training.networks import transformers_models
from babelmill.training.networks.loss import loss
from babelmill.training.networks.network import Network
from babelmill.training.networks.transformers_models import (
    MASKED,
    NAME,
    add_adapters,
    auto_class,
    blocks_of,
    checkpoint_activations,
    counted,
    documents,
    first_position,
    longest_row,
    make_model,
    on_meta,
    output_layer,
    positions,
    refused,
)
from babelmill.training.optimization.gradients import ShardedGradients, Sharding, local_rows, shard
from babelmill.training.plan import randomness
from babelmill.training.plan.objectives import hides_alone, objective_of
from babelmill.training.plan.randomness import INITIALIZATION

log = logging.getLogger(__name__)

TOLERANCE = 1e-5  # how much another order of sums may change a score, relative to the largest score
SHORTEST = 32  # tokens of a row, unless rows in training are shorter
LAYERS = 2  # the fewest layers of the smaller model: else no layer would read what another has written
TOKENS = 1024  # tokens of its vocabulary
WINDOWS = ("sliding_window", "local_attention", "attention_window")


class _Failed(Exception):
    """Says which check failed."""


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _Failed(otherwise)


def _same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool((found - wanted).abs().max() <= TOLERANCE * wanted.abs().max())


def pass_through(features: torch.Tensor) -> torch.Tensor:
    """Stand in for the output layer."""
    return features


def prove(config: PreTrainedConfig, auto: str, vocabulary: Vocabulary, length: int, whole: bool = False) -> int | None:
    """Test a kind of model. Return its first position id, or None if it takes no position ids.

    If the smaller model cannot be made or fails to compute, the `whole` model is tested, with rows up to `length`. A
    UserError says that it does not compute what training assumes.
    """
    try:
        made = make_model(config if whole else smaller(config, auto), auto)
        return prove_model(made, auto == MASKED, vocabulary, length)
    except _Failed as failure:
        raise refused(config.model_type, failure) from None
    except Exception as problem:  # whatever a model's code raises
        if whole:
            raise problem if isinstance(problem, UserError) else refused(config.model_type, problem) from problem
        log.warning("the test of a smaller model failed (%r): the whole model is made on the CPU and tested", problem)
    return prove(config, auto, vocabulary, length, whole=True)


def smaller(config: PreTrainedConfig, auto: str) -> PreTrainedConfig:
    """Return the configuration of a smaller model of the same class, `auto`, for a host whose memory is too small.

    It has only the first tokens of the vocabulary, and two layers, or the first layers up to the point where each kind
    of `layer_types` has occurred. Widths stay as they are: the test looks at rounding and at the size of scores, which
    depend on them. `config` itself does not change.
    """
    found, count = copy.deepcopy(config), getattr(config, "num_hidden_layers", 0)
    kinds = getattr(config, "layer_types", None) or []
    layers = max([LAYERS, *(kinds.index(kind) + 1 for kind in kinds)])
    if layers < count:
        found.num_hidden_layers = layers
        for key, value in vars(config).items():
            if isinstance(value, list) and len(value) == count:
                setattr(found, key, value[:layers])
    from_a_token = first_position(on_meta(config, auto))  # positions are counted from the id of a token
    if not from_a_token and config.vocab_size > TOKENS:
        found.vocab_size = TOKENS
        for key, value in vars(config).items():
            if key.endswith("_token_id") and isinstance(value, int) and value >= TOKENS:
                setattr(found, key, 0)
    return found


@torch.no_grad()
def prove_model(model: PreTrainedModel, hides: bool, vocabulary: Vocabulary, length: int) -> int | None:
    """Check a model's scores of random rows of up to `length` ordinary tokens; raise `_Failed` if a check fails.

    Return the first position id, or None if the model takes no position ids. The model keeps documents apart and is on
    the CPU.
    """
    model.eval()
    windows = [value for name in WINDOWS if isinstance(value := getattr(model.config, name, None), int)]
    length = max(2, min(length, max(SHORTEST, 2 * max(windows, default=0) + 2)))
    ordinary = [i for i in range(min(vocabulary.size, model.config.vocab_size)) if i not in vocabulary.special]
    drawn = torch.randint(len(ordinary), (2, 1, length), generator=torch.Generator().manual_seed(0))
    ids, others = torch.tensor(ordinary)[drawn]
    one, middle = torch.zeros_like(ids), length // 2
    two = one.clone()
    two[:, middle:] = 1

    def scores(ids: torch.Tensor, segments: torch.Tensor | None = None, first: int | None = None) -> torch.Tensor:
        """Return the scores [T, V] of a row, whose position ids begin with `first`; None: it gets none."""
        given = {} if segments is None or first is None else {"position_ids": positions(segments) + first}
        with documents(segments):
            return model(input_ids=ids, **given).logits[0]

    model.set_attn_implementation("sdpa")
    wanted = scores(ids)  # by transformers' own masks
    model.set_attn_implementation(NAME)
    _require(_same(scores(ids, one), wanted), "a row of one document has other scores with document masks")
    first: int | None = None
    with contextlib.suppress(TypeError, IndexError):  # it takes no position ids, or has too few
        if _same(scores(ids, one, first_position(model)), wanted):
            first = first_position(model)

    before = scores(ids, two, first)
    for document in (0, 1):
        after, kept = scores(torch.where(two == document, others, ids), two, first), two[0] != document
        _require(_same(after[kept], before[kept]), "documents in the same row see each other")
    alone = scores(ids[:, middle:], one[:, middle:], first)
    _require(_same(alone, before[middle:]), "a document's scores depend on its place in the row")

    before, changed = scores(ids, one, first), ids.clone()
    changed[0, middle] = next(token for token in ordinary if token != ids[0, middle])
    # A mixture of experts may send other tokens to an expert, which changes the order of sums: 4e-7 were measured.
    # A token that is read changed them by 2e-4 and more (seven kinds of models, rows of up to 2,048 tokens).
    differs = (scores(changed, one, first) - before).abs().amax(1) > TOLERANCE * before.abs().max()
    _require(bool(differs[middle + 1 :].any()), "its scores do not depend on earlier tokens")
    left = bool(differs[:middle].any())
    _require(left or not hides, "it reads no later tokens, which train.objective: masked or diffusion needs")
    _require(not left or hides, "it reads later tokens, which train.objective: causal must not")

    layer = output_layer(model)
    layer.forward = pass_through
    features, matrix, bias = scores(ids, one, first), layer.get_parameter("weight"), getattr(layer, "bias", None)
    fits = features.size(-1) == matrix.size(-1)  # otherwise, something else comes between them
    text = "its scores are not the product of its features and its output matrix (it caps them)"
    _require(fits and _same(nn.functional.linear(features, matrix, bias), before), text)
    return first


BASE_LAYER = ".base_layer."  # peft inserts this into the names of frozen weights


class _ScoresAndLoss(nn.Module):
    """Computes scores and loss in one forward pass, since only during this pass a process has the whole output matrix.

    Position ids begin with `first_position`; None: the model counts positions by itself.
    """

    def __init__(self, model: PreTrainedModel, z_loss_weight: float, first_position: int | None):
        super().__init__()
        self.model = model
        self._z_loss_weight, self._first_position = z_loss_weight, first_position
        output_layer(model).forward = pass_through

    def forward(self, batch: MicroBatch, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
        given = {"input_ids": batch.input_ids}
        if self._first_position is not None:
            given["position_ids"] = positions(batch.segments) + self._first_position
        with documents(batch.segments):
            features = self.model(**given).logits.flatten(0, 1)[batch.positions]
        layer = output_layer(self.model)  # it did nothing in the pass above
        matrix, bias = layer.weight, getattr(layer, "bias", None)
        bias = matrix.new_zeros(len(matrix)) if bias is None else bias  # pyright: ignore
        return loss(features, matrix, bias, batch, self._z_loss_weight, groups)  # pyright: ignore


class TransformersNetwork(Network):
    """Trains a transformers model, which is spread over all processes (`gradients.shard`).

    Masked classes predict hidden tokens at their own positions; causal classes predict next tokens. If `loaded`, each
    process later reads its rows of all weights from files; otherwise they begin random. A UserError says that
    transformers has no such model, or that it does not compute what training assumes.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        train: schema.Train,
        vocabulary: Vocabulary,
        processes: Processes,
        loaded: bool = False,
    ):
        transformers_logging.set_verbosity_error()  # transformers would warn of padding, which our masks hide
        self.in_place = hides_alone(objective_of(train))
        longest = max(train.sequence_lengths)
        auto = auto_class(train)
        first_position = processes.on_main(lambda: prove(config, auto, vocabulary, longest))
        torch.manual_seed(randomness.key(train.seed, INITIALIZATION))
        # Constants keep their values, which no file holds.
        with init_empty_weights(include_buffers=False) if loaded else contextlib.nullcontext():
            made = make_model(config, auto)
        made.tie_weights()  # a weight in two places became two
        self.config = {
            "architecture": "transformers",
            "auto_class": auto,
            "class": type(made).__name__,
            "vocab_size": config.vocab_size,
            "max_position_embeddings": longest_row(made),
            "config": transformers_models.as_json(config),
        }
        self.size = counted(made, output_layer(made), frozen=train.lora_rank > 0)
        if train.activation_checkpointing:
            checkpoint_activations(made)
        if train.lora_rank:
            self.frozen = True
            alpha = train.lora_alpha or 2 * train.lora_rank
            self.config["adapter"] = {"rank": train.lora_rank, "alpha": alpha}
            torch.manual_seed(randomness.key(train.seed, INITIALIZATION))  # whether or not frozen weights were drawn
            add_adapters(made, train.lora_rank, alpha, torch.bfloat16 if train.precision == "bf16" else None)
        self._spread(made, _ScoresAndLoss(made, train.z_loss_weight, first_position), train, processes)

    def _spread(self, made: nn.Module, with_loss: nn.Module, train: schema.Train, processes: Processes) -> None:
        """Spread a model, as part of a module that computes its loss, over all processes; see `gradients.shard`."""
        shapes = {name: parameter.shape for name, parameter in made.named_parameters()}
        plain = {name.replace(BASE_LAYER, "."): shape for name, shape in shapes.items()}
        self.sharding = Sharding(shapes | plain, processes)
        self.model, self._with_loss = made, with_loss
        shard(with_loss, blocks_of(made), processes, train)
        self._parts = {n: nn.Parameter(local_rows(p)) for n, p in made.named_parameters() if p.requires_grad}
        self.gradients = ShardedGradients(made, self._parts, self.sharding)

    def forward(self, batch: MicroBatch, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
        result = self._with_loss(batch, groups)
        if not torch.is_grad_enabled():
            self._with_loss.reshard()  # pyright: ignore  # else FSDP2 keeps weights for a backward pass
        return result

    def decays(self, name: str, parameter: nn.Parameter) -> bool:
        """Return whether a parameter has weight decay. Biases and scales of norms, which are vectors, have none."""
        return parameter.ndim > 1

    def trained(self) -> dict[str, nn.Parameter]:
        """See `Network.trained`: this process's rows."""
        return self._parts

    @property
    def parameters(self) -> int:
        """Return the number of parameters of the model, without adapters, which are merged into it later."""
        return self.size.parameters

    def begun_with(self) -> dict[str, torch.Tensor]:
        """See `Network.begun_with`: with adapters, the frozen weights, by their names in a model without adapters."""
        if not self.frozen:
            return self.weights()
        frozen = {n: local_rows(p) for n, p in self.model.named_parameters() if not p.requires_grad}
        return {name.replace(BASE_LAYER, "."): value for name, value in (frozen | self._buffers()).items()}

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the weights by their names in the class. A tied weight has its first name, as in published files.

        If a part of the model is frozen, only the trained weights are returned.
        """
        parts = {name: part.detach() for name, part in self._parts.items()}
        return parts if self.frozen else parts | self._buffers()

    def _buffers(self) -> dict[str, torch.Tensor]:
        named = dict(self.model.named_parameters(remove_duplicate=False))
        return {name: value for name, value in self.model.state_dict().items() if name not in named}
